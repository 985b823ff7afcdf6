// Changes the protection of no bytes in the midst of shared memory, then unmaps parts and ends.
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  char *shared = mmap(0, 5 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int results[2] = {mprotect(shared + 4096, 0, PROT_READ), mprotect(shared + 8192, 0, PROT_NONE)};
  int status;
  shared[4096] = 1;
  if (fork() == 0) _exit(++shared[4096] + ++shared[8192]);
  wait(&status);
  printf("%d %d %d %d\n", results[0], results[1], shared[4096], WEXITSTATUS(status));
  printf("%d\n", munmap(shared, 2 * 4096));
  printf("%d\n", shared[8192]);
  return 0;
}

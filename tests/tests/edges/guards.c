// A guard is refused as by a kernel that has none, and a child can be made.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  char *at = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(at, 1, 4 << 20);
  for (int advice = 100; advice < 104; advice++)
    printf("%d: %d\n", advice, madvise(at, 4096, advice) ? errno : 0);
  int status;
  if (!fork()) _exit(at[0]);
  wait(&status);
  printf("child %x\n", status);
}

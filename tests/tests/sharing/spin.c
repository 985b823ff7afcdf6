// A process that waits for another one without a system call.
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  volatile int *words =
      mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (fork() == 0) {
    words[0] = 1;
    while (!words[1]) {}
    _exit(0);
  }
  while (!words[0]) getppid();
  words[1] = 1;
  wait(0);
  puts("seen");
  return 0;
}

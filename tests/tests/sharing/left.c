/* A process and its child share memory. The child waits for a byte that never comes; the parent
   answers each byte from the pipe `in` with a number from that memory, until the pipe is closed. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int never[2], in = open("in", O_RDONLY);
  char byte;
  pipe(never);
  int child = fork();
  if (child == 0) {
    *shared = 41;
    write(1, "ready\n", 6);
    read(never[0], &byte, 1);
    _exit(1);
  }
  while (read(in, &byte, 1) == 1) dprintf(1, "%d\n", ++*shared);
  kill(child, SIGKILL);
  wait(0);
  return 7;
}

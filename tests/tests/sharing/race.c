/* Four processes count without a lock; the value depends on how they interleave. */
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  volatile long *count =
      mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int p = 0; p < 4; p++)
    if (!fork()) {
      for (int i = 0; i < 300; i++) {
        long value = *count;
        getppid();
        *count = value + 1;
        if (i % 16 == p) sched_yield();
      }
      _exit(0);
    }
  for (int p = 0; p < 4; p++) wait(0);
  printf("%ld\n", *count);
  return 0;
}

// Reads clocks in a loop until there is a file `stop`, in children too; none may go back. Every so
// many readings it writes a line with the time, so replicas that see different times are noticed.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long last[3];

static long reading(int at) {
  static const int clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW};
  struct timespec t;
  if (clock_gettime(clocks[at], &t)) exit(4);
  long now = t.tv_sec * 1000000000 + t.tv_nsec;
  if (now < last[at]) exit(5);
  return last[at] = now;
}

int main(int argc, char **argv) {
  long lines = 0;
  do {
    unsigned long mixed = 0;
    for (int i = 0; i < 3000; i++) mixed = mixed * 31 + reading(i % 3);
    printf("%ld %lx\n", lines, mixed);
    fflush(stdout);
    if (++lines % 64 == 0) {
      pid_t child = fork();
      if (!child) {
        for (int i = 0; i < 3000; i++) reading(i % 3);
        _exit(0);
      }
      int status;
      waitpid(child, &status, 0);
      if (status) return 6;
    }
  } while (access("stop", F_OK));
  return 3;
}

// Reads clocks, and makes children that do so and end at once, until there is a file `enough`;
// then waits for a file `stop`.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void read_clocks(void) {
  struct timespec now;
  for (int i = 0; i < 3000; i++) clock_gettime(i % 2 ? CLOCK_BOOTTIME : CLOCK_MONOTONIC, &now);
}

int main(void) {
  for (int round = 0; round % 64 || access("enough", F_OK); round++) {
    read_clocks();
    write(1, ".", 1);
    if (round % 64) continue;
    pid_t child = fork();
    if (!child) {
      read_clocks();
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status) return 6;
  }
  while (access("stop", F_OK)) usleep(1000);
  return 3;
}

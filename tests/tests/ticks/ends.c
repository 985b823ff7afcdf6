/* Computes until somebody sets a word, then comes to a call; with an argument to some before that
 * of which the others need not hear at once. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

volatile unsigned long word;
volatile unsigned long table[4096];

int main(int count, char **arguments) {
  (void)arguments;
  write(1, "ready\n", 6);
  for (unsigned long i = 1; !word; i++) table[i * i & 4095] += i;
  for (int i = 0; count > 1 && i < 3; i++) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  }
  write(1, "done\n", 5);
  return 0;
}

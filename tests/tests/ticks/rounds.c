/* As loop.c, in rounds that take tens of microseconds each. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

volatile unsigned long word = 7;
volatile unsigned long table[4096];
static volatile sig_atomic_t enough;

static void stop(int signal) { enough = signal; }

int main(void) {
  signal(SIGUSR1, stop);
  write(1, "ready\n", 6);
  for (unsigned long i = 1; !enough; i++) {
    for (unsigned long j = 0; j < 20000; j++) table[i * j & 4095] += word;
    table[i & 4095] ^= i;
  }
  printf("%lu\n", word);
  return 0;
}

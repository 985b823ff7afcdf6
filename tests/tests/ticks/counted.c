/* As loop.c, in rounds of many visits to one instruction. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

volatile unsigned long word = 7;
volatile unsigned long table[4096];
static volatile sig_atomic_t enough;

static void stop(int signal) { enough = signal; }

__attribute__((noinline)) void visit(unsigned long at) { table[at & 4095] += word; }

int main(void) {
  signal(SIGUSR1, stop);
  write(1, "ready\n", 6);
  for (unsigned long i = 1; !enough; i++) {
    for (unsigned long j = 0; j < 200; j++) visit(i * j);
    table[i & 4095] ^= i;
  }
  printf("%lu\n", word);
  return 0;
}

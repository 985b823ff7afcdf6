// Handlers of timers unwind from wherever the program is, which is mostly in the vDSO.
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

static volatile int handled, within, whole;
static unsigned long base;
int main(void);

static void on_time(int signal, siginfo_t *info, void *context) {
  void *frames[64];
  unsigned long rip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  int inside = rip >= base && rip < base + 8192, found = 0;
  int count = backtrace(frames, 64);
  char **names = backtrace_symbols(frames, count);
  for (int i = 0; i < count; i++) found |= strstr(names[i], "(reads") != 0;
  free(names);
  handled++;
  within += inside;
  whole += found;
}

__attribute__((noinline)) void reads(void) {
  struct timespec t;
  for (int i = 0; i < 2000 || handled < 20; i++) clock_gettime(CLOCK_MONOTONIC, &t);
  asm volatile("");
}

int main(void) {
  void *warm[4];
  base = getauxval(AT_SYSINFO_EHDR);
  backtrace(warm, 4);
  struct sigaction action = {.sa_sigaction = on_time, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGALRM, &action, 0);
  struct itimerval every = {{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &every, 0);
  reads();
  memset(&every, 0, sizeof every);
  setitimer(ITIMER_REAL, &every, 0);
  printf("handled %d, all whole %d\n", handled >= 20, whole == handled);
  return 0;
}

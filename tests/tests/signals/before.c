/* A signal that comes while the program computes, just before it waits: it must not wait for ever. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void note(int signal) { (void)signal; came = 1; }

static void compute(void) {
  for (volatile long i = 0; i < 100000000; i++) {}
}

int main(void) {
  int ends[2];
  char c;
  struct sigaction action;
  struct itimerval soon = {.it_value = {.tv_usec = 1000}};
  memset(&action, 0, sizeof action);
  action.sa_handler = note;
  sigaction(SIGALRM, &action, NULL);
  pipe(ends);
  setitimer(ITIMER_REAL, &soon, NULL);
  compute();
  if (!came) read(ends[0], &c, 1);
  printf("read over, came %d\n", came);
  came = 0;
  setitimer(ITIMER_REAL, &soon, NULL);
  compute();
  struct pollfd one = {.fd = ends[0], .events = POLLIN};
  if (!came) poll(&one, 1, -1);
  printf("poll over, came %d\n", came);
  return 0;
}

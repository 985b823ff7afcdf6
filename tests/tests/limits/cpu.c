// The limit on CPU time: warnings that are handled, and ends of what makes no call.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int warned;

static void warn(int signal, siginfo_t *info, void *context) {
  warned++;
  if (signal != SIGXCPU || info->si_code != SI_KERNEL) warned = -100;
}

static void limit(rlim_t soft, rlim_t hard) {
  struct rlimit wish = { soft, hard };
  setrlimit(RLIMIT_CPU, &wish);
}

static void compute(void) {
  struct rlimit now;
  getrlimit(RLIMIT_CPU, &now);
  if (now.rlim_max == RLIM_INFINITY) limit(1, 5);
  for (volatile long i = 0;; i++) {}
}

static void be_warned(void) {
  struct sigaction action = { .sa_sigaction = warn, .sa_flags = SA_SIGINFO };
  struct rlimit now;
  sigaction(SIGXCPU, &action, 0);
  limit(1, 2);
  while (warned == 0) {
    for (volatile int i = 0; i < 100000; i++) {}
    getppid();
  }
  getrlimit(RLIMIT_CPU, &now);
  printf("warned %d, limits %d %d\n", warned, (int)now.rlim_cur, (int)now.rlim_max);
  fflush(stdout);
  for (volatile long i = 0;; i++) {}
}

static void in_child(void (*body)(void)) {
  int status = 0;
  if (fork() == 0) body();
  wait(&status);
  printf("ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
  fflush(stdout);
}

int main(int count, char **words) {
  if (count > 1) compute();
  in_child(be_warned);
  return 0;
}

// No room for signals that wait: what is lost, and who is told.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *word(int failed) { return failed ? strerrorname_np(errno) : "done"; }

static void took(int signal, siginfo_t *info, void *context) {
  printf("signal %d code %d value %d\n", signal, info->si_code, info->si_int);
}

int main(void) {
  int late = SIGRTMIN + 3;
  struct sigaction action = { .sa_sigaction = took, .sa_flags = SA_SIGINFO };
  struct rlimit none = { 0, 0 };
  union sigval value = { .sival_int = 42 };
  sigset_t all;
  timer_t timer;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, 0);
  sigaction(SIGUSR1, &action, 0);
  sigaction(SIGUSR2, &action, 0);
  sigaction(late, &action, 0);
  printf("queued %s\n", word(sigqueue(getpid(), late, value)));
  printf("limit %s\n", word(setrlimit(RLIMIT_SIGPENDING, &none)));
  printf("queued %s\n", word(sigqueue(getpid(), late, value)));
  printf("an old one %s\n", word(sigqueue(getpid(), SIGUSR1, value)));
  printf("plain %s\n", word(kill(getpid(), late + 1)));
  printf("plain, old %s\n", word(kill(getpid(), SIGUSR2)));
  printf("to a thread %s\n", word(syscall(SYS_tgkill, getpid(), getpid(), late)));
  struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = late };
  printf("timer %s\n", word(timer_create(CLOCK_MONOTONIC, &event, &timer)));
  signal(late + 1, SIG_IGN);
  fflush(stdout);
  sigprocmask(SIG_UNBLOCK, &all, 0);
  fflush(stdout);
  // Children, pipes and shells do not need any.
  int status;
  if (fork() == 0) execlp("sh", "sh", "-c", "echo $(echo a | cat); exit 3", (char *)0);
  wait(&status);
  printf("child %x\n", status);
  return 0;
}

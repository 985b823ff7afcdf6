// Timers with every way of telling, and those that there is not.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void try(int how, int signal) {
  sigset_t set;
  siginfo_t info;
  struct timespec longest = {10, 0};
  struct itimerspec soon = {.it_value = {0, 1}};
  struct sigevent event = {.sigev_notify = how, .sigev_signo = signal};
  int timer = -1;
  event.sigev_value.sival_int = 77;
  event._sigev_un._tid = syscall(SYS_gettid);
  int made = syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer);
  printf("%d %d: %s\n", how, signal, made < 0 ? strerrorname_np(errno) : "made");
  if (made < 0 || how == SIGEV_NONE) return;
  sigemptyset(&set);
  sigaddset(&set, signal);
  syscall(SYS_timer_settime, timer, 0, &soon, 0);
  int got = sigtimedwait(&set, &info, &longest);
  printf("  %d %d %d\n", got, info.si_code, info.si_value.sival_int);
  syscall(SYS_timer_delete, timer);
}

int main(void) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, 0);
  for (int how = 0; how < 8; how++) {
    try(how, SIGALRM);
    try(how, SIGRTMIN + 3);
    try(how, 0);
    try(how, 65);
  }
}

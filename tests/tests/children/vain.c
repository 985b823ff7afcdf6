// More requests that come to nothing than a request's number has places, and then one that does.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int way, descriptor;

static int ask(void) {
  pid_t group = getpid();
  siginfo_t info = {.si_code = SI_QUEUE};
  switch (way) {
    case 0: return syscall(SYS_pidfd_send_signal, descriptor, 0, 0, 0);
    case 1: return syscall(SYS_pidfd_open, 1, ~0u);
    case 2: return setpgid(-1, 0);
    case 3: return ioctl(descriptor, TIOCSPGRP, &group);
    case 4: return ioctl(descriptor, TIOCNOTTY);
    case 5: return syscall(SYS_rt_sigqueueinfo, -5, SIGUSR1, &info);
  }
  return kill(1, 0);
}

int main(void) {
  descriptor = syscall(SYS_pidfd_open, 1, 0);
  for (; way < 7; way++) {
    int error = 0;
    for (int i = 0; i < 256 + way; i++) error = ask() ? errno : 0;
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(way);
    int status;
    if (wait(&status) != child) return 1;
    printf("%d: error %d, child's status %d\n", way, error, WEXITSTATUS(status));
  }
  // Of a PID namespace's first process they may be another one's.
  printf("%d %d\n", getsid(1), getpgid(1));
}

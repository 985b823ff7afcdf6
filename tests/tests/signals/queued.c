// Signals with a value between processes of the program, none of which is the first one.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void block(sigset_t *set) {
  sigemptyset(set);
  for (int number = SIGRTMIN; number <= SIGRTMAX; number++) sigaddset(set, number);
  sigaddset(set, SIGUSR1);
  sigaddset(set, SIGUSR2);
  sigprocmask(SIG_BLOCK, set, 0);
}

int main(void) {
  sigset_t set;
  block(&set);
  setvbuf(stdout, 0, _IOLBF, 0);
  int sending[2];
  if (pipe(sending)) return 1;
  pid_t receiver = fork();
  if (!receiver) {
    siginfo_t info;
    pid_t first = 0;
    char byte;
    close(sending[1]);
    if (read(sending[0], &byte, 1)) _exit(1);
    do {
      sigwaitinfo(&set, &info);
      if (!first) first = info.si_pid;
      printf("%d code %d value %d same sender %d uid %d\n", info.si_signo, info.si_code,
             info.si_value.sival_int, info.si_pid == first, info.si_uid == getuid());
    } while (info.si_signo != SIGRTMAX);
    _exit(0);
  }
  pid_t sender = fork();
  if (!sender) {
    // Every real-time signal, those that rcoe uses itself among them.
    for (int number = SIGRTMIN; number < SIGRTMAX; number++)
      for (int i = 0; i < 3; i++)
        if (sigqueue(receiver, number, (union sigval){number * 10 + i})) _exit(1);
    sigqueue(receiver, SIGUSR2, (union sigval){11});
    if (sigqueue(receiver, 0, (union sigval){0}) || sigqueue(getppid(), 0, (union sigval){0}))
      _exit(2);
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = 0};
    if (syscall(SYS_rt_sigqueueinfo, receiver, SIGUSR1, &info) != -1 || errno != EPERM) _exit(3);
    info.si_code = -60;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = 77;
    if (syscall(SYS_rt_sigqueueinfo, receiver, SIGRTMIN, &info)) _exit(4);
    if (syscall(SYS_rt_tgsigqueueinfo, receiver, receiver, SIGUSR1, &info)) _exit(5);
    sigqueue(receiver, SIGRTMAX, (union sigval){1});
    if (sigqueue(-receiver, SIGUSR1, (union sigval){1}) != -1) _exit(6);
    if (sigqueue(receiver, 99, (union sigval){1}) != -1 || errno != EINVAL) _exit(7);
    sigqueue(getppid(), SIGRTMIN + 1, (union sigval){5});
    _exit(0);
  }
  int status, sent;
  siginfo_t info;
  close(sending[1]);
  waitpid(sender, &sent, 0);
  waitpid(receiver, &status, 0);
  printf("sender %d\n", WEXITSTATUS(sent));
  printf("receiver %d\n", WEXITSTATUS(status));
  sigwaitinfo(&set, &info);
  printf("%d %d %d\n", info.si_signo, info.si_value.sival_int, info.si_pid == sender);
  return 0;
}

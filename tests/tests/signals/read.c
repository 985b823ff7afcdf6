// Signals that are read, and all that comes with a signal.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int ready(int fd) {
  struct pollfd it = {fd, POLLIN, 0};
  return poll(&it, 1, 0) == 1 && it.revents == POLLIN;
}

static void show(const struct signalfd_siginfo *info) {
  printf("[%u %d pid %d uid %d status %d int %d overrun %u]", info->ssi_signo, info->ssi_code,
         info->ssi_pid == (unsigned)getpid(), info->ssi_uid == getuid(), info->ssi_status,
         info->ssi_int, info->ssi_overrun);
}

static void *sends(void *unused) {
  (void)unused;
  usleep(20000);
  kill(getpid(), SIGUSR2);
  return 0;
}

static void ends_of_children(int fd) {
  struct signalfd_siginfo info;
  int status;
  pid_t pid = fork();
  if (!pid) _exit(7);
  printf("%d", read(fd, &info, sizeof info) == sizeof info);
  printf(" %d %d %d %d %d\n", info.ssi_signo == SIGCHLD, info.ssi_code == CLD_EXITED,
         info.ssi_status, info.ssi_pid == (unsigned)pid, waitpid(pid, &status, 0) == pid);
  if (!(pid = fork())) raise(SIGKILL);
  read(fd, &info, sizeof info);
  printf("%d %d\n", info.ssi_code == CLD_KILLED, info.ssi_status);
  waitpid(pid, 0, 0);
}

static void waiting(int fd) {
  struct signalfd_siginfo info;
  int set = epoll_create1(0);
  struct epoll_event event = {EPOLLIN, {.u32 = 5}};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  printf("%d", epoll_wait(set, &event, 1, 0));
  pid_t pid = fork();
  if (!pid) {
    usleep(20000);
    kill(getppid(), SIGUSR1);
    _exit(0);
  }
  memset(&event, 0, sizeof event);
  printf(" %d", epoll_wait(set, &event, 1, 100000));
  printf(" %u", event.data.u32);
  read(fd, &info, sizeof info);
  printf(" %d %d", info.ssi_signo == SIGUSR1, info.ssi_pid == (unsigned)pid);
  // Edge or level: nothing, until the child's end.
  event.data.u32 = 0;
  do printf(" %d", epoll_wait(set, &event, 1, 100000));
  while (read(fd, &info, sizeof info) < 0 || info.ssi_signo != SIGCHLD);
  waitpid(pid, 0, 0);
  printf(" %d\n", ready(fd));
  pthread_t thread;
  pthread_create(&thread, 0, sends, 0);
  fd_set in;
  FD_ZERO(&in);
  FD_SET(fd, &in);
  printf("%d", select(fd + 1, &in, 0, 0, 0));
  printf(" %d", read(fd, &info, sizeof info) == sizeof info);
  printf(" %d\n", info.ssi_signo == SIGUSR2);
  pthread_join(thread, 0);
  pthread_create(&thread, 0, sends, 0);
  printf("%d", read(fd, &info, sizeof info) == sizeof info);
  printf(" %d\n", info.ssi_signo == SIGUSR2);
  pthread_join(thread, 0);
  close(set);
}

static volatile int got[8], count;
static void on(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  if (count < 8) got[count++] = info->si_value.sival_int * 100 + -info->si_code;
}

static void values(void) {
  sigset_t set;
  siginfo_t info;
  struct sigaction action = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
  sigaction(SIGRTMIN + 3, &action, 0);
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 3);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, 0);
  for (int i = 1; i <= 3; i++) sigqueue(getpid(), SIGRTMIN + 3, (union sigval){i});
  sigqueue(getpid(), SIGUSR1, (union sigval){11});
  sigqueue(getpid(), SIGUSR1, (union sigval){12});
  printf("%d", sigwaitinfo(&set, &info) == SIGUSR1);
  printf(" %d %d\n", info.si_value.sival_int, info.si_code == SI_QUEUE);
  printf("%d", sigwaitinfo(&set, &info) == SIGRTMIN + 3);
  printf(" %d\n", info.si_value.sival_int);
  sigprocmask(SIG_UNBLOCK, &set, 0);
  printf("%d %d %d\n", count, got[0], got[1]);
  pid_t pid = fork();
  if (!pid) {
    for (int i = 0; i < 3; i++) sigqueue(getppid(), SIGRTMIN + 3, (union sigval){40 + i});
    _exit(0);
  }
  waitpid(pid, 0, 0);
  while (count < 5) sigpending(&set);
  printf("%d %d %d\n", got[2], got[3], got[4]);
  pthread_sigqueue(pthread_self(), SIGRTMIN + 3, (union sigval){70});
  printf("%d\n", got[5]);
  info.si_code = SI_USER;
  printf("%ld", syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &info));
  printf(" %d\n", errno == EPERM);
}

int main(void) {
  sigset_t set;
  struct signalfd_siginfo info[4];
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGUSR2);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGRTMIN);
  sigprocmask(SIG_BLOCK, &set, 0);
  int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  printf("%d %d", fd >= 0, ready(fd));
  printf(" %zd", read(fd, info, sizeof info));
  printf(" %d", errno == EAGAIN);
  printf(" %zd", read(fd, info, 100));
  printf(" %d\n", errno == EINVAL);
  kill(getpid(), SIGUSR2);
  raise(SIGUSR1);
  sigqueue(getpid(), SIGRTMIN, (union sigval){8});
  sigqueue(getpid(), SIGRTMIN, (union sigval){9});
  int copy = dup(fd);
  close(fd);
  printf("%d ", ready(copy));
  printf("%zd\n", read(copy, info, sizeof info) / sizeof *info);
  for (int i = 0; i < 4; i++) show(&info[i]);
  printf("\n%d\n", ready(copy));
  // Other signals from now on, and a child that hears of its own only.
  sigdelset(&set, SIGUSR1);
  printf("%d", signalfd(copy, &set, 0) == copy);
  raise(SIGUSR1);
  printf(" %d", ready(copy));
  raise(SIGUSR2);
  printf(" %d", ready(copy));
  fflush(stdout);
  if (!fork()) {
    printf(" %d", ready(copy));
    raise(SIGUSR2);
    printf(" %d", ready(copy));
    printf(" %d", read(copy, info, sizeof info) == sizeof *info);
    printf(" %d\n", info[0].ssi_pid == (unsigned)getpid());
    fflush(stdout);
    _exit(0);
  }
  wait(0);
  printf("%d", read(copy, info, sizeof *info) == sizeof *info);
  printf(" %u", info[0].ssi_signo);
  printf(" %d\n", read(copy, info, sizeof *info) == sizeof *info && info[0].ssi_signo == SIGCHLD);
  sigaddset(&set, SIGUSR1);
  signalfd(copy, &set, 0);
  printf("%d\n", read(copy, info, sizeof *info) == sizeof *info && info[0].ssi_signo == SIGUSR1);
  fcntl(copy, F_SETFL, 0);
  ends_of_children(copy);
  waiting(copy);
  close(copy);
  printf("%d", signalfd(copy, &set, 0));
  printf(" %d", errno == EBADF);
  printf(" %d", signalfd(0, &set, 0));
  printf(" %d\n", errno == EINVAL);
  values();
  return 0;
}

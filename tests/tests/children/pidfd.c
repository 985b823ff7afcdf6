// Descriptors of processes: made in all ways, waited for in all ways, signalled through.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int opened(pid_t pid, unsigned flags) { return syscall(SYS_pidfd_open, pid, flags); }
static int sent(int fd, int number, siginfo_t *info, unsigned flags) {
  return syscall(SYS_pidfd_send_signal, fd, number, info, flags);
}
static int ready(int fd, int time) {
  struct pollfd it = {fd, POLLIN, 0};
  int found = poll(&it, 1, time);
  return found == 1 ? it.revents & POLLIN : found;
}
static int failed(long result) { return result == -1 ? errno : 0; }

// A child that waits until the pipe is closed, or for ever.
static pid_t waiting(int hold[2], int status) {
  if (pipe2(hold, O_CLOEXEC)) exit(9);
  pid_t pid = fork();
  if (pid) return pid;
  char byte;
  close(hold[1]);
  if (read(hold[0], &byte, 1) < 0) _exit(8);
  _exit(status);
}

static void a_child(void) {
  int hold[2];
  pid_t pid = waiting(hold, 7);
  int fd = opened(pid, 0);
  printf("open %d cloexec %d\n", fd >= 0, fcntl(fd, F_GETFD));
  siginfo_t info = {0};
  printf("running %d ", ready(fd, 0));
  printf("%d", waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG));
  printf(" %d\n", info.si_pid);
  close(hold[0]);
  close(hold[1]);
  printf("ready %d\n", ready(fd, -1));
  int set = epoll_create1(0);
  struct epoll_event event = {EPOLLIN, {.u32 = 5}};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  printf("epoll %d %u\n", epoll_wait(set, &event, 1, -1), event.data.u32);
  int other = opened(pid, 0);
  printf("zombie %d %d\n", other >= 0, ready(other, 0));
  int got = waitid(P_PIDFD, fd, &info, WEXITED | WNOWAIT);
  printf("wait %d %d %d %d\n", got, info.si_pid == pid, info.si_code == CLD_EXITED, info.si_status);
  printf("again %d", waitid(P_PIDFD, fd, &info, WEXITED));
  printf(" gone %d", failed(waitid(P_PIDFD, fd, &info, WEXITED)) == ECHILD);
  printf(" %d", ready(fd, 0));
  printf(" %d\n", failed(sent(fd, 0, 0, 0)) == ESRCH);
  printf("closed %d\n", failed(opened(pid, 0)) == ESRCH);
  close(set);
  close(fd);
  close(other);
}

static void errors(void) {
  siginfo_t info;
  int null = open("/dev/null", O_RDONLY);
  printf("errors %d", failed(opened(0, 0)) == EINVAL);
  printf(" %d", failed(opened(-5, 0)) == EINVAL);
  printf(" %d", failed(opened(getpid(), 1)) == EINVAL);
  printf(" %d", failed(waitid(P_PIDFD, null, &info, WEXITED)) == EBADF);
  printf(" %d", failed(waitid(P_PIDFD, 99, &info, WEXITED)) == EBADF);
  printf(" %d", failed(sent(null, 0, 0, 0)) == EBADF);
  printf(" %d", failed(sent(99, 0, 0, 0)) == EBADF);
  int own = opened(getpid(), 0);
  printf(" %d", failed(waitid(P_PIDFD, own, &info, WEXITED)) == ECHILD);
  printf(" %d", failed(sent(own, 0, 0, 77)) == EINVAL);
  printf(" %d %d\n", sent(own, 0, 0, 0), ready(own, 0));
  close(own);
  close(null);
}

static void on(int number, siginfo_t *info, void *context) {
  (void)context;
  printf("got %d %d %d\n", number, info->si_code, info->si_value.sival_int);
  fflush(stdout);
}

static void signals(void) {
  struct sigaction action = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR1, &action, 0);
  int own = opened(getpid(), 0);
  printf("own %d\n", sent(own, SIGUSR1, 0, 0));
  siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
  info.si_pid = getpid();
  info.si_value.sival_int = 12;
  printf("value %d\n", sent(own, SIGUSR1, &info, 0));
  printf("contradiction %d\n", failed(sent(own, SIGUSR2, &info, 0)) == EINVAL);
  close(own);
  own = open("/proc/self", O_DIRECTORY);
  printf("folder %d\n", sent(own, SIGUSR1, 0, 0));
  printf("%d\n", failed(waitid(P_PIDFD, own, &info, WEXITED)) == EBADF);
  close(own);
  char path[30];
  sprintf(path, "/proc/%d", getpid());
  own = open(path, O_DIRECTORY);
  printf("folder %d\n", sent(own, SIGUSR1, 0, 0));
  close(own);
  int hold[2];
  pid_t pid = waiting(hold, 0);
  int fd = opened(pid, 0);
  printf("kill %d", sent(fd, SIGTERM, 0, 0));
  printf(" %d", waitid(P_PIDFD, fd, &info, WEXITED));
  printf(" %d %d %d\n", info.si_pid == pid, info.si_code == CLD_KILLED, info.si_status);
  close(fd);
  close(hold[0]);
  close(hold[1]);
}

static void not_blocking(void) {
  int hold[2];
  siginfo_t info;
  pid_t pid = waiting(hold, 3);
  int fd = opened(pid, O_NONBLOCK);
  printf("not blocking %d\n", failed(waitid(P_PIDFD, fd, &info, WEXITED)) == EAGAIN);
  kill(pid, SIGKILL);
  ready(fd, -1);
  printf("%d", waitid(P_PIDFD, fd, &info, WEXITED));
  printf(" %d\n", info.si_status);
  close(fd);
  close(hold[0]);
  close(hold[1]);
}

static pid_t cloned(int *fd, int old) {
  if (old) return syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, fd, 0, 0);
  struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (unsigned long)fd, .exit_signal = SIGCHLD};
  return syscall(SYS_clone3, &args, sizeof args);
}

static void made_with_the_child(int old) {
  int fd = -1;
  siginfo_t info;
  pid_t pid = cloned(&fd, old);
  if (!pid) _exit(fcntl(fd, F_GETFD) == -1 ? 4 : 5);
  printf("clone %d %d", fd >= 0, fcntl(fd, F_GETFD));
  printf(" %d", waitid(P_PIDFD, fd, &info, WEXITED));
  printf(" %d\n", info.si_status);
  close(fd);
}

static void *waits(void *fd) {
  siginfo_t info;
  int result = waitid(P_PIDFD, *(int *)fd, &info, WEXITED);
  printf("thread %d %d\n", result, info.si_status);
  return 0;
}

static void in_threads(void) {
  int hold[2];
  pthread_t thread;
  pid_t pid = waiting(hold, 6);
  int fd = opened(pid, 0);
  pthread_create(&thread, 0, waits, &fd);
  usleep(10000);
  close(hold[0]);
  close(hold[1]);
  pthread_join(thread, 0);
  close(fd);
}

// A descriptor of a sibling, passed from one child to another.
static void passed(void) {
  int pair[2], hold[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  pid_t target = waiting(hold, 0);
  pid_t killer = fork();
  char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
                           .msg_controllen = sizeof room};
  int fd;
  if (!killer) {
    recvmsg(pair[1], &message, 0);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    siginfo_t info;
    int not_mine = failed(waitid(P_PIDFD, fd, &info, WEXITED)) == ECHILD;
    int done = sent(fd, SIGTERM, 0, 0);
    _exit(ready(fd, -1) && !done && not_mine ? 0 : 1);
  }
  fd = opened(target, 0);
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  sendmsg(pair[0], &message, 0);
  int status;
  waitpid(killer, &status, 0);
  printf("passed %d", WEXITSTATUS(status));
  waitpid(target, &status, 0);
  printf(" %d\n", WTERMSIG(status));
}

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  a_child();
  errors();
  signals();
  not_blocking();
  made_with_the_child(0);
  made_with_the_child(1);
  in_threads();
  passed();
  return 0;
}

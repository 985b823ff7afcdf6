/* Signals that come while the program computes do not interrupt a call that does not wait. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void note(int signal) { (void)signal; came++; }

/* For longer than the timer's period. */
static void compute(void) {
  for (volatile long i = 0; i < 6000000; i++) {}
}

/* How often a call failed of those that come after computing. */
#define FAILED(call) ({ \
  int failed = 0; \
  for (int i = 0; i < 20; i++) { \
    compute(); \
    if ((call) < 0) failed++; \
  } \
  failed; \
})

int main(void) {
  int ends[2], pair[2];
  char c = 0;
  struct sigaction action;
  struct itimerval often = {{0, 2000}, {0, 2000}}, never;
  memset(&action, 0, sizeof action);
  memset(&never, 0, sizeof never);
  action.sa_handler = note;
  sigaction(SIGALRM, &action, NULL);
  int file = open("busy.out", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
  pipe(ends);
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  int set = epoll_create1(0);
  struct epoll_event ready = {.events = EPOLLIN}, got;
  epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &ready);
  setitimer(ITIMER_REAL, &often, NULL);
  printf("file %d\n", FAILED(write(file, "x", 1)));
  printf("pipe %d\n", FAILED(write(ends[1], "x", 1)));
  printf("ready %d\n", FAILED(epoll_wait(set, &got, 1, -1)));
  printf("read %d\n", FAILED(read(ends[0], &c, 1)));
  printf("send %d\n", FAILED(send(pair[0], "x", 1, 0)));
  printf("receive %d\n", FAILED(recv(pair[1], &c, 1, 0)));
  setitimer(ITIMER_REAL, &never, NULL);
  printf("bytes %ld\n", (long)lseek(file, 0, SEEK_END));
  return 0;
}

// Waits that end by their timeouts, on both clocks, relative and absolute, while others wait too.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static struct timespec after(clockid_t clock, long ms) {
  struct timespec t;
  clock_gettime(clock, &t);
  long ns = t.tv_nsec + ms * 1000000;
  t.tv_sec += ns / 1000000000;
  t.tv_nsec = ns % 1000000000;
  if (t.tv_nsec < 0) t.tv_nsec += 1000000000, t.tv_sec--;
  return t;
}

static struct timespec begun;
static void begin(void) { clock_gettime(CLOCK_MONOTONIC, &begun); }
static int lasted(long ms) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  long us = (now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000;
  return us >= ms * 1000;
}

static void *forever(void *unused) {
  for (;;) pause();
  return unused;
}

static void locks(void) {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
  struct timespec t = after(CLOCK_REALTIME, 30);
  begin();
  pthread_mutex_lock(&lock);
  int result = pthread_cond_timedwait(&cond, &lock, &t);
  printf("cond %d %d\n", result == ETIMEDOUT, lasted(29));
  t = after(CLOCK_MONOTONIC, 20);
  begin();
  result = pthread_cond_clockwait(&cond, &lock, CLOCK_MONOTONIC, &t);
  printf("clock %d %d\n", result == ETIMEDOUT, lasted(19));
  sem_t sem;
  sem_init(&sem, 0, 0);
  t = after(CLOCK_REALTIME, 20);
  result = sem_timedwait(&sem, &t);
  printf("sem %d %d\n", result, errno == ETIMEDOUT);
  t = after(CLOCK_REALTIME, -1000);
  result = sem_timedwait(&sem, &t);
  printf("past %d %d\n", result, errno == ETIMEDOUT);
}

static void sleeps(void) {
  begin();
  struct timespec t = {0, 20000000};
  printf("nanosleep %d %d\n", nanosleep(&t, 0), lasted(20));
  begin();
  t = after(CLOCK_MONOTONIC, 20);
  int result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
  printf("absolute %d %d\n", result, lasted(20));
  printf("again %d\n", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0));
  t.tv_nsec = -1;
  result = nanosleep(&t, 0);
  printf("malformed %d %d\n", result, errno);
}

static void descriptors(void) {
  int ends[2];
  pipe(ends);
  struct pollfd poll_fd = {ends[0], POLLIN, 0};
  begin();
  printf("poll %d %d\n", poll(&poll_fd, 1, 20), lasted(20));
  struct timespec t = {0, 20000000};
  printf("ppoll %d\n", ppoll(&poll_fd, 1, &t, 0));
  fd_set set;
  FD_ZERO(&set);
  FD_SET(ends[0], &set);
  struct timeval v = {0, 20000};
  begin();
  printf("select %d %d\n", select(ends[0] + 1, &set, 0, 0, &v), lasted(20));
  printf("cleared %d\n", FD_ISSET(ends[0], &set));
  int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN}, got;
  epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
  printf("epoll %d %d\n", epoll_wait(epoll, &got, 1, 20), epoll_wait(epoll, &got, 1, 0));
  int pair[2];
  char byte;
  struct timeval limit = {0, 20000};
  socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
  setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  int result = recv(pair[0], &byte, 1, 0);
  printf("recv %d %d\n", result, errno == EAGAIN);
  result = recv(pair[1], &byte, 1, MSG_DONTWAIT);
  printf("now %d %d\n", result, errno == EAGAIN);
  int timer = timerfd_create(CLOCK_MONOTONIC, 0);
  struct itimerspec once = {.it_value = {0, 20000000}};
  timerfd_settime(timer, 0, &once, 0);
  uint64_t count = 0;
  printf("timerfd %zd %d\n", read(timer, &count, 8), (int)count);
}

static volatile int slept;
static void *sleep_a_little(void *unused) {
  struct timespec t = {0, 20000000};
  nanosleep(&t, 0);
  slept = 1;
  return unused;
}

// The only thread that can run makes calls that wait for nothing.
static void busy(void) {
  pthread_t thread;
  pthread_create(&thread, 0, sleep_a_little, 0);
  while (!slept) getppid();
  pthread_join(thread, 0);
  printf("busy %d\n", slept);
}

int main(void) {
  busy();
  pthread_t thread;
  pthread_create(&thread, 0, forever, 0);
  locks();
  sleeps();
  descriptors();
  pthread_cancel(thread);
  void *result;
  pthread_join(thread, &result);
  printf("cancelled %d\n", result == PTHREAD_CANCELED);
  return 0;
}

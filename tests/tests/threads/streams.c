// One thread blocks on a descriptor, another one makes it ready: no call may hold up both.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_t thread;
static void start(void *(*f)(void *), long argument) {
  pthread_create(&thread, 0, f, (void *)argument);
}
static long joined(void) {
  void *result;
  pthread_join(thread, &result);
  return (long)result;
}

static int there[2], back[2];
static void *echo(void *unused) {
  (void)unused;
  char c;
  while (read(there[0], &c, 1) == 1) {
    c++;
    write(back[1], &c, 1);
  }
  close(back[1]);
  return 0;
}

static void ping_pong(void) {
  char c = 'a';
  pipe(there);
  pipe(back);
  start(echo, 0);
  for (int i = 0; i < 25; i++) {
    write(there[1], &c, 1);
    read(back[0], &c, 1);
  }
  close(there[1]);
  printf("%c %zd\n", c, read(back[0], &c, 1));
  joined();
}

static char big[1000000];
static void *drain(void *argument) {
  static char buffer[70000];
  long length, all = 0;
  uint32_t hash = 5381;
  while ((length = read((int)(long)argument, buffer, sizeof buffer)) > 0) {
    for (long i = 0; i < length; i++) hash = hash * 33 + (unsigned char)buffer[i];
    all += length;
  }
  return (void *)(all * 1000003 + hash);
}

static void more_than_fits(void) {
  struct iovec parts[] = {{big, 100000}, {big + 100000, 3}, {big, 0}, {big + 100003, 700000}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
  for (int way = 0; way < 6; way++) {
    int ends[2];
    if (way < 2) pipe(ends);
    else socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    start(drain, ends[0]);
    ssize_t sent = 0;
    switch (way) {
      case 0: case 2: sent = write(ends[1], big, sizeof big); break;
      case 1: case 3: sent = writev(ends[1], parts, 4); break;
      case 4: sent = send(ends[1], big, sizeof big, 0); break;
      case 5: sent = sendmsg(ends[1], &message, 0); break;
    }
    close(ends[1]);
    printf("%zd %ld\n", sent, joined());
    close(ends[0]);
  }
}

static void *wake(void *argument) {
  uint64_t one = 1;
  return (void *)write((int)(long)argument, &one, 8);
}

static void waits_for_many(void) {
  int event = eventfd(0, 0);
  uint64_t count;
  struct pollfd fd = {event, POLLIN, 0};
  start(wake, event);
  printf("%d", poll(&fd, 1, -1));
  printf(" %d %zd %ld\n", fd.revents, read(event, &count, 8), joined());
  fd_set set;
  FD_ZERO(&set);
  FD_SET(event, &set);
  start(wake, event);
  printf("%d %d", select(event + 1, &set, 0, 0, 0), !!FD_ISSET(event, &set));
  printf(" %zd %ld\n", read(event, &count, 8), joined());
  int epoll = epoll_create1(0);
  struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = 77}, got = {0};
  epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted);
  start(wake, event);
  printf("%d %u", epoll_wait(epoll, &got, 1, -1), got.data.u32);
  printf(" %zd %ld\n", read(event, &count, 8), joined());
  start(wake, event);
  printf("%zd %ld\n", read(event, &count, 8), joined());
}

static in_port_t port;
static int result_of_connect(in_port_t to, int *s) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = to};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  *s = socket(AF_INET, SOCK_STREAM, 0);
  return connect(*s, (struct sockaddr *)&address, sizeof address);
}

static void *client(void *argument) {
  char text[20] = {0};
  int s, result = result_of_connect(port, &s);
  if (result) return 0;
  snprintf(text, sizeof text, "hello %ld", (long)argument);
  send(s, text, 8, 0);
  recv(s, text, 7, MSG_WAITALL);
  close(s);
  return (void *)(long)(result == 0 && strncmp(text, "HELLO", 5) == 0);
}

static void sockets(void) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  bind(listener, (struct sockaddr *)&address, sizeof address);
  listen(listener, 9);
  socklen_t length = sizeof address;
  getsockname(listener, (struct sockaddr *)&address, &length);
  port = address.sin_port;
  pthread_t clients[6];
  for (long i = 0; i < 6; i++) pthread_create(&clients[i], 0, client, (void *)i);
  for (int i = 0; i < 6; i++) {
    char text[9] = {0};
    int s = accept(listener, 0, 0);
    recv(s, text, 8, MSG_WAITALL);
    for (int k = 0; k < 5; k++) text[k] -= 32;
    send(s, text, 8, 0);
    close(s);
  }
  long good = 0;
  for (int i = 0; i < 6; i++) {
    void *result;
    pthread_join(clients[i], &result);
    good += (long)result;
  }
  close(listener);
  start(client, 0);
  int s, refused = result_of_connect(port, &s);
  printf("%ld %d %d\n", good, refused, errno == ECONNREFUSED);
}

static void *holder(void *argument) {
  int file = open("lock", O_RDWR);
  flock(file, LOCK_EX);
  write((int)(long)argument, "x", 1);
  sched_yield();
  write((int)(long)argument, "y", 1);
  flock(file, LOCK_UN);
  return 0;
}

static void file_locks(void) {
  int ends[2], file = open("lock", O_RDWR | O_CREAT, 0600);
  char text[2];
  pipe(ends);
  start(holder, ends[1]);
  read(ends[0], text, 1);
  printf("%d", flock(file, LOCK_EX));
  printf(" %zd %c\n", read(ends[0], text + 1, 1), text[1]);
  joined();
}

int main(void) {
  for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7 + i / 251);
  ping_pong();
  more_than_fits();
  waits_for_many();
  file_locks();
  sockets();
  return 0;
}

// What a program may do with a connection whose bytes leave later: peer PORT MODE
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int port;

static int join(void) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) _exit(100);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

static void say(int fd, const char *words) {
  size_t len = strlen(words);
  if (write(fd, words, len) != (ssize_t)len) _exit(101);
}

// The first writes to a connection are made at once: from here on they may wait.
static int joined(void) {
  int fd = join();
  say(fd, "one ");
  say(fd, "two ");
  say(fd, "three ");
  return fd;
}

// Echoes on sixteen connections until all are closed.
static int rounds(void) {
  int all = epoll_create1(0), open = 16;
  for (int i = 0; i < open; i++) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = join()};
    if (epoll_ctl(all, EPOLL_CTL_ADD, event.data.fd, &event)) return 1;
  }
  while (open) {
    struct epoll_event events[16];
    int ready = epoll_wait(all, events, 16, -1);
    for (int i = 0; i < ready; i++) {
      char buffer[256];
      int fd = events[i].data.fd;
      ssize_t len = read(fd, buffer, sizeof buffer);
      if (len == 0) {
        close(fd);
        open--;
      } else if (len > 0) {
        struct iovec parts[2] = {{"<", 1}, {buffer, len}};
        if (writev(fd, parts, 2) != len + 1) return 2;
      }
    }
  }
  return 0;
}

// Two ends of a connection of its own.
static void connected(int *near, int *far) {
  int listening = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t len = sizeof at;
  if (bind(listening, (struct sockaddr *)&at, len) || listen(listening, 1)) _exit(102);
  getsockname(listening, (struct sockaddr *)&at, &len);
  port = ntohs(at.sin_port);
  *near = join();
  *far = accept4(listening, 0, 0, SOCK_NONBLOCK);
}

// Reads what it has just written to itself: both ends are its own.
static int own(void) {
  int near, far;
  connected(&near, &far);
  for (int i = 0; i < 50; i++) {
    char word[2] = {'a' + i % 26, 0};
    say(near, word);
    char got = 0;
    if (read(far, &got, 1) != 1 || got != word[0]) return 2;
    say(far, word);
    if (read(near, &got, 1) != 1 || got != word[0]) return 3;
  }
  puts("read all");
  return 0;
}

static void *reads_nothing(void *pipe) {
  char byte;
  return (void *)read(*(int *)pipe, &byte, 1);
}

// Asks in each way what is ready right after it has written to itself; `threads`: beside another
// thread, which waits.
static int looks(int threads) {
  int near, far, empty[2], full[2], one = 1;
  connected(&near, &far);
  if (setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) return 7;
  if (pipe(empty) || pipe(full) || write(full[1], "x", 1) != 1) return 1;
  pthread_t other;
  if (threads && pthread_create(&other, 0, reads_nothing, &empty[0])) return 2;
  int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = far};
  if (epoll_ctl(set, EPOLL_CTL_ADD, far, &event)) return 3;
  const int times[3] = {0, -1, 60000};
  for (int i = 0; i < 60; i++) {
    struct pollfd both[2] = {{far, POLLIN, 0}, {full[0], POLLIN, 0}};
    char got[3];
    say(near, "a");
    say(near, "b");
    int ready = i % 2 ? poll(both, 1, times[i % 3]) : epoll_wait(set, &event, 1, times[i % 3]);
    if (ready != 1 || read(far, got, 3) < 1) return 4;
    // What is left of the two, if the answer came between them, and then nothing.
    while (poll(both, 1, 1) == 1 && read(far, got, 3) > 0) {}
    say(near, "c");
    do poll(both, 2, -1); while (!both[0].revents);
    if (read(far, got, 3) != 1 || got[0] != 'c') return 5;
    say(far, "d");
    if (epoll_wait(set, &event, 1, 0) != 0 || read(near, got, 3) != 1) return 6;
  }
  puts("all ready");
  fflush(stdout);
  _exit(0);
}

// Writes until there is no more room, tells how much, and waits to be told to go on.
static int full(void) {
  int fd = joined();
  char block[1000];
  long sent = 14;
  for (uint32_t i = 0;; i++) {
    memset(block, 'a' + i % 26, sizeof block);
    ssize_t done = write(fd, block, sizeof block);
    if (done < 0) break;
    sent += done;
  }
  if (errno != EAGAIN) return 1;
  printf("%ld\n", sent);
  fflush(stdout);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  char go;
  return read(fd, &go, 1) == 1 ? 0 : 2;
}

static volatile sig_atomic_t pipes;
static void on_pipe(int signal) { pipes += signal == SIGPIPE; }

// Writes to a peer that has gone: how does it learn?
static int gone(void) {
  signal(SIGPIPE, on_pipe);
  int fd = joined();
  char byte;
  while (read(fd, &byte, 1) < 0 && errno == EAGAIN) usleep(1000);
  int errors = 0;
  for (int i = 0; i < 20 && errors < 2; i++) {
    if (write(fd, "more", 4) < 0) {
      if (errno != EPIPE && errno != ECONNRESET) return 1;
      errors++;
    }
    usleep(1000);
  }
  printf("%d errors, %s\n", errors, pipes ? "signalled" : "not signalled");
  return 0;
}

// Sends its connection to itself: the description is then no longer one descriptor's alone.
static int sent(void) {
  int fd = joined(), pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
  memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
  struct iovec part = {"x", 1};
  struct msghdr message = {
    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  if (sendmsg(pair[0], &message, 0) != 1) return 2;
  for (int i = 0; i < 50; i++) say(fd, "more ");
  return 0;
}

// Goes on when somebody changes its memory. Before that it writes more than may wait.
volatile long go;
static int told(void) {
  static char block[20000];
  int fd = joined();
  memset(block, 'x', sizeof block);
  if (write(fd, block, sizeof block) != sizeof block) return 1;
  say(fd, "four ");
  say(fd, "five ");
  while (go < 1) {}
  say(fd, "last");
  while (go < 2) {}
  return 0;
}

// Reads a word when it is told to, and again when it is told that.
static int reads(void) {
  int fd = joined();
  char word[8];
  while (go < 1) {}
  say(fd, recv(fd, word, sizeof word, 0) == 5 ? "word, " : "no word, ");
  while (go < 2) {}
  say(fd, read(fd, word, sizeof word) < 0 && errno == EAGAIN ? "no more" : "more");
  return 0;
}

// Opens a regular file, and asks about it in one of two ways.
static int opened(int way) {
  struct stat status;
  int fd = open("/bin/sh", O_RDONLY | O_NONBLOCK);
  if (fd < 0) _exit(102);
  long asked = way ? fstatat(fd, "", &status, AT_EMPTY_PATH) : syscall(SYS_fstat, fd, &status);
  if (asked || !S_ISREG(status.st_mode)) _exit(103);
  return fd;
}

// Is a file whose descriptor was closed gone, by this way of asking?
static int is_gone(int fd, int way) {
  char path[32], byte;
  struct stat status;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  switch (way) {
    case 0: return read(fd, &byte, 1) < 0 && errno == EBADF;
    case 1: return fstat(fd, &status) < 0 && errno == EBADF;
    case 2: return stat(path, &status) < 0 && errno == ENOENT;
    case 3: return close(fd) < 0 && errno == EBADF;
    case 4: return pread(fd, &byte, 1, 0) < 0 && errno == EBADF;
    case 5: return openat(fd, "x", O_RDONLY | O_NONBLOCK) < 0 && errno == EBADF;
    case 6: return send(fd, "x", 1, 0) < 0 && errno == EBADF;
    default: return fcntl(fd, F_GETFD) < 0 && errno == EBADF;
  }
}

// Opens and closes a file for each word that it says: its number is always the same.
static int files(void) {
  int connection = joined(), number = -1;
  for (int i = 0; i < 200; i++) {
    int fd = opened(i % 2);
    char magic[4];
    if (number < 0) number = fd;
    if (fd != number || pread(fd, magic, 4, 0) != 4 || memcmp(magic, "\177ELF", 4)) return 1;
    say(connection, "x");
    if (close(fd)) return 2;
    if (i >= 160 && !is_gone(fd, i % 8)) return 3;
  }
  return 0;
}

// Closes a file when it is told to; what number comes next when it is told to open one.
static int closes(void) {
  int connection = joined(), fd = opened(0);
  while (go < 1) {}
  if (close(fd)) return 1;
  say(connection, "last");
  while (go < 2) {}
  say(connection, opened(0) == fd ? " same" : " other");
  return 0;
}

// A child says something in between.
static int family(void) {
  int fd = joined();
  say(fd, "parent ");
  pid_t child = fork();
  if (child == 0) {
    say(fd, "child ");
    _exit(0);
  }
  waitpid(child, 0, 0);
  say(fd, "parent again");
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 3) return 99;
  port = atoi(argv[1]);
  const char *mode = argv[2];
  if (!strcmp(mode, "rounds")) return rounds();
  if (!strcmp(mode, "own")) return own();
  if (!strcmp(mode, "looks")) return looks(0);
  if (!strcmp(mode, "thread")) return looks(1);
  if (!strcmp(mode, "full")) return full();
  if (!strcmp(mode, "gone")) return gone();
  if (!strcmp(mode, "family")) return family();
  if (!strcmp(mode, "told")) return told();
  if (!strcmp(mode, "sent")) return sent();
  if (!strcmp(mode, "reads")) return reads();
  if (!strcmp(mode, "files")) return files();
  if (!strcmp(mode, "closes")) return closes();
  int fd = joined();
  say(fd, "last");
  if (!strcmp(mode, "compute")) for (volatile long i = 0;; i++) {}
  if (!strcmp(mode, "exit")) return 0;
  if (!strcmp(mode, "close")) return close(fd);
  if (!strcmp(mode, "shutdown")) return shutdown(fd, SHUT_WR) || pause();
  if (!strcmp(mode, "fault")) *(volatile char *)8 = 1;
  if (!strcmp(mode, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(mode, "exec")) execl("/bin/true", "true", (char *)0);
  if (!strcmp(mode, "replace")) return dup2(open("/dev/null", O_RDONLY), fd) != fd;
  return 98;
}

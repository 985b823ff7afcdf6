/* Workloads whose effects can be counted from outside, for replicas that get killed.
 *
 * ledger pipe | socket | edge | datagram | file | names | numbers
 *
 * Each goes on until its input ends. What a workload can check by itself it checks, and ends with
 * status 1 and a line that names the call. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[70000];

static void fail(const char *call, long result) {
  char line[100];
  int len = snprintf(line, sizeof line, "%s: %ld, errno %d\n", call, result, errno);
  write(1, line, len);
  _exit(1);
}

#define MUST(call) ({ long r_ = (call); if (r_ < 0) fail(#call, r_); r_; })

static int is_over(void) {
  struct pollfd input = {0, POLLIN, 0};
  return poll(&input, 1, 0) == 1;
}

static uint64_t state = 88172645463325252ull;
static unsigned chance(unsigned below) {
  state ^= state << 13; state ^= state >> 7; state ^= state << 17;
  return state % below;
}

static void put(int fd, const char *from, size_t len) {
  while (len > 0) {
    long done = MUST(write(fd, from, len));
    from += done; len -= done;
  }
}

/* Whatever comes in goes out again. */
static void echo_pipe(void) {
  for (;;) {
    size_t most = 1 + chance(chance(4) ? 5000 : sizeof buffer - 1);
    long len;
    if (chance(2)) {
      len = MUST(read(0, buffer, most));
    } else {
      struct iovec parts[2] = {{buffer, most / 3}, {buffer + most / 3, most - most / 3}};
      len = MUST(readv(0, parts, 2));
    }
    if (len == 0) return;
    put(1, buffer, len);
  }
}

static int listener(int type) {
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof own;
  int fd = MUST(socket(AF_INET, type, 0));
  MUST(bind(fd, (struct sockaddr *)&own, sizeof own));
  MUST(getsockname(fd, (struct sockaddr *)&own, &len));
  if ((type & 3) == SOCK_STREAM) MUST(listen(fd, 64));
  char line[16];
  put(1, line, snprintf(line, sizeof line, "%d\n", ntohs(own.sin_port)));
  return fd;
}

static void greet(int fd, uint64_t number) {
  if (MUST(send(fd, &number, sizeof number, 0)) != sizeof number) fail("short greeting", 0);
}

/* One connection after the other: its number, then whatever comes in. */
static void serve(void) {
  int fd = listener(SOCK_STREAM);
  for (uint64_t number = 0;; number++) {
    struct pollfd both[2] = {{fd, POLLIN, 0}, {0, POLLIN, 0}};
    MUST(poll(both, 2, -1));
    if (both[1].revents) return;
    struct sockaddr_in peer;
    socklen_t peer_len = sizeof peer;
    int client = MUST(accept(fd, (struct sockaddr *)&peer, &peer_len));
    if (peer_len != sizeof peer || peer.sin_addr.s_addr != htonl(INADDR_LOOPBACK)) fail("peer", 0);
    greet(client, number);
    long len;
    while ((len = MUST(recv(client, buffer, 1 + chance(sizeof buffer - 1), 0))) > 0) {
      if (chance(2)) {
        for (long done = 0; done < len; done += MUST(send(client, buffer + done, len - done, 0)));
      } else {
        put(client, buffer, len);
      }
    }
    MUST(close(client));
  }
}

/* The same, all connections at once, never waiting but for events that are told once. */
static void serve_edges(void) {
  int fd = listener(SOCK_STREAM | SOCK_NONBLOCK);
  int set = MUST(epoll_create1(0));
  uint64_t number = 0;
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
  event = (struct epoll_event){.events = EPOLLIN, .data.fd = 0};
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, 0, &event));
  for (;;) {
    struct epoll_event events[8];
    int count = MUST(epoll_wait(set, events, 8, -1));
    for (int i = 0; i < count; i++) {
      int from = events[i].data.fd;
      if (from == 0) return;
      if (from == fd) {
        int client;
        while ((client = accept4(fd, 0, 0, SOCK_NONBLOCK)) >= 0) {
          greet(client, number++);
          event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.fd = client};
          MUST(epoll_ctl(set, EPOLL_CTL_ADD, client, &event));
        }
        if (errno != EAGAIN) fail("accept4", client);
        continue;
      }
      long len;
      while ((len = recv(from, buffer, 4096, 0)) > 0)
        if (MUST(send(from, buffer, len, 0)) != len) fail("short send", len);
      if (len < 0 && errno != EAGAIN) fail("recv", len);
      if (len == 0) {
        MUST(epoll_ctl(set, EPOLL_CTL_DEL, from, 0));
        MUST(close(from));
      }
    }
  }
}

/* Every datagram goes back once. */
static void serve_datagrams(void) {
  int fd = listener(SOCK_DGRAM);
  for (;;) {
    struct pollfd both[2] = {{fd, POLLIN, 0}, {0, POLLIN, 0}};
    MUST(poll(both, 2, -1));
    if (both[1].revents) return;
    struct sockaddr_in peer;
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {&peer, sizeof peer, &part, 1, 0, 0, 0};
    part.iov_len = MUST(recvmsg(fd, &message, 0));
    if (chance(2)) {
      MUST(sendmsg(fd, &message, 0));
    } else {
      MUST(sendto(fd, buffer, part.iov_len, 0, (struct sockaddr *)&peer, sizeof peer));
    }
  }
}

/* Numbered lines, appended to one file and written on in another; how many, at the end. */
static void keep_files(void) {
  int end = MUST(open("appended", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644));
  int on = MUST(open("written", O_RDWR | O_CREAT | O_TRUNC, 0644));
  int at = MUST(open("placed", O_RDWR | O_CREAT | O_TRUNC, 0644));
  char line[32], back[32];
  long i = 0;
  do {
    snprintf(line, sizeof line, "%08ld\n", i);
    put(end, line, 9);
    put(on, line, 9);
    if (MUST(pwrite(at, line, 9, 9 * i)) != 9) fail("pwrite", 0);
    if (MUST(pread(at, back, 9, 9 * i)) != 9 || memcmp(line, back, 9)) fail("pread", i);
    if (i % 50 == 0) MUST(fsync(at));
    i++;
  } while (!is_over());
  put(1, line, snprintf(line, sizeof line, "%ld\n", i));
}

static void make_names(void) {
  MUST(mkdir("names", 0755));
  MUST(chdir("names"));
  do {
    MUST(mkdir("d", 0755));
    MUST(rename("d", "e"));
    MUST(symlink("target", "e/l"));
    int fd = MUST(open("e/f", O_WRONLY | O_CREAT | O_EXCL, 0600));
    put(fd, "x", 1);
    MUST(fchmod(fd, 0640));
    MUST(close(fd));
    MUST(link("e/f", "e/g"));
    MUST(renameat(AT_FDCWD, "e/g", AT_FDCWD, "e/h"));
    MUST(chdir("e"));
    MUST(chdir(".."));
    MUST(unlink("e/f"));
    MUST(unlinkat(AT_FDCWD, "e/h", 0));
    MUST(unlink("e/l"));
    MUST(rmdir("e"));
  } while (!is_over());
  MUST(chdir(".."));
  MUST(rmdir("names"));
}

/* Descriptors get the same numbers in every round, and their own pipes hold what was put in. */
static void count_descriptors(void) {
  long first[10] = {0};
  for (unsigned long round = 0; !is_over(); round++) {
    int pair[2], both[2];
    long now[10];
    now[0] = MUST(open("/dev/null", O_RDWR));
    now[1] = MUST(dup(now[0]));
    MUST(pipe(pair));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, both));
    now[2] = pair[0]; now[3] = pair[1]; now[4] = both[0]; now[5] = both[1];
    now[6] = MUST(eventfd(0, 0));
    now[7] = MUST(epoll_create1(0));
    now[8] = MUST(fcntl(now[0], F_DUPFD, 20));
    now[9] = MUST(dup2(now[0], 30));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = round}, told;
    MUST(epoll_ctl(now[7], EPOLL_CTL_ADD, now[6], &event));
    uint64_t one = 1, got = 0;
    if (MUST(write(now[6], &one, 8)) != 8) fail("write", 8);
    if (MUST(epoll_wait(now[7], &told, 1, -1)) != 1 || told.data.u64 != round) fail("epoll", round);
    if (MUST(read(now[6], &got, 8)) != 8 || got != 1) fail("eventfd", got);
    if (MUST(write(pair[1], &round, 8)) != 8) fail("write", 8);
    if (MUST(read(pair[0], &got, 8)) != 8 || got != round) fail("pipe", got);
    if (MUST(send(both[0], &round, 8, 0)) != 8) fail("send", 8);
    if (MUST(recv(both[1], &got, 100, 0)) != 8 || got != round) fail("socketpair", got);
    MUST(epoll_ctl(now[7], EPOLL_CTL_DEL, now[6], 0));
    if (round == 0) memcpy(first, now, sizeof now);
    for (int i = 0; i < 10; i++) if (now[i] != first[i]) fail("number", now[i]);
    for (int i = 0; i < 10; i++) MUST(close(now[i]));
  }
}

int main(int argc, char **argv) {
  static const struct { const char *name; void (*work)(void); } all[] = {
    {"pipe", echo_pipe}, {"socket", serve}, {"edge", serve_edges},
    {"datagram", serve_datagrams}, {"file", keep_files}, {"names", make_names},
    {"numbers", count_descriptors},
  };
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
    if (argc > 1 && !strcmp(argv[1], all[i].name)) {
      all[i].work();
      return 0;
    }
  return 2;
}

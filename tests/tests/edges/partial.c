// Calls that write something and then meet a pointer that they cannot write to. What they have
// written is told, or handed to a call that fails, which is where replicas that differ are found.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static char *below, *page, *fixed, *end;

static void told(const char *what, long result) {
  int error = result < 0 ? errno : 0;
  pwrite(-1, page, 4096, 0);
  printf("%s %ld %d\n", what, result, error);
}

static void addresses(void) {
  int udp = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in own = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
  socklen_t *len = (socklen_t *)(page + 64);
  bind(udp, (void *)&own, sizeof own);
  *len = 1234;
  told("no address", getsockname(udp, NULL, len));
  printf("length %u\n", *len);
  *len = 16;
  told("half an address", getsockname(udp, (void *)(end - 1), len));
  printf("family %d\n", end[-1]);
  told("fixed length", getsockname(udp, (void *)page, (socklen_t *)fixed));
  told("no length", getsockname(udp, (void *)page, (socklen_t *)end));
  *len = 4;
  told("option", getsockopt(udp, SOL_SOCKET, SO_TYPE, page + 128, (socklen_t *)fixed));
  printf("type %d\n", page[128]);
  *len = sizeof own;
  getsockname(udp, (void *)&own, len);
  sendto(udp, "datagram", 8, 0, (void *)&own, sizeof own);
  told("sender", recvfrom(udp, page + 256, 8, MSG_DONTWAIT, (void *)end, len));
  printf("%s\n", page + 256);
  sendto(udp, "portions", 8, 0, (void *)&own, sizeof own);
  struct iovec parts[] = { { page + 512, 5 }, { end, 3 } };
  struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
  told("parts", recvmsg(udp, &message, MSG_DONTWAIT));
  printf("%s\n", page + 512);
}

/* The first is told of; the second is begun and goes no further. */
static void portions(void) {
  static char block[4096];
  int stream[2];
  pipe(stream);
  memset(block, 'x', sizeof block);
  write(stream[1], block, sizeof block);
  memset(block, 'y', sizeof block);
  write(stream[1], block, sizeof block);
  memset(page, 0, 4096);
  memset(below, 0, 4096);
  told("portion", read(stream[0], end - 4096 - 16, 8192));
  printf("%.4s %.4s\n", below + 4080, end - 4);
  char names[64];
  for (int i = 0; i < 8; i++) {
    snprintf(names, sizeof names, "a-rather-long-name-%d", i);
    close(open(names, O_WRONLY | O_CREAT, 0600));
  }
  memset(page, 0, 4096);
  int folder = open(".", O_RDONLY | O_DIRECTORY);
  told("entries", syscall(SYS_getdents64, folder, end - 120, 120) > 0);
  lseek(folder, 0, SEEK_SET);
  told("begun", syscall(SYS_getdents64, folder, end - 120, 4096) > 0);
  /* An entry ends with padding that is counted and not written. */
  mkdir("empty", 0700);
  int empty = open("empty", O_RDONLY | O_DIRECTORY);
  for (int room = 18; room <= 24; room++)
    for (int size = 24; size <= 12288; size += 12264) {
      lseek(empty, 0, SEEK_SET);
      told("padding", syscall(SYS_getdents64, empty, end - room, size));
    }
}

static void files(void) {
  int pair[2];
  pipe(pair);
  write(pair[1], "abcdefgh", 8);
  told("pipe", read(pair[0], end - 2, 8));
  printf("%.2s\n", end - 2);
  told("rest", read(pair[0], page + 16, 64));
  printf("%s\n", page + 16);
  write(pair[1], "", 1);
  fd_set *ready = (fd_set *)(page + 1024), *never = (fd_set *)fixed;
  FD_SET(pair[0], ready);
  FD_SET(0, ready);
  struct timeval now = { 0 };
  told("select", select(pair[0] + 1, ready, never, NULL, &now));
  int set = epoll_create1(0);
  struct epoll_event event = { EPOLLIN, { .u64 = 77 } };
  epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event);
  told("events", epoll_wait(set, (void *)(end - 6), 4, 0));
  portions();
  told("status", fstat(pair[0], (void *)(end - 40)));
  told("folder", syscall(SYS_getdents64, open(".", O_RDONLY), end - 10, 4096));
}

static void attributes(void) {
  uid_t *ids = (uid_t *)(page + 2048);
  ids[0] = ids[1] = 12345678;
  told("ids", getresuid(ids, ids + 1, (uid_t *)end));
  printf("%d %d\n", ids[0] == getuid(), ids[1] == getuid());
  long *time = (long *)(page + 2064);
  told("time", syscall(SYS_gettimeofday, time, end));
  printf("set %d\n", time[0] > 0);
  told("clock", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, end - 8));
  told("name", uname((struct utsname *)(end - 100)));
  told("usage", getrusage(RUSAGE_SELF, (struct rusage *)(end - 20)));
  told("path", syscall(SYS_getcwd, end - 3, 4096));
  told("path beyond all", syscall(SYS_getcwd, end - 3, 1UL << 62));
  told("fixed time", syscall(SYS_gettimeofday, fixed, page));
  told("large", read(open("/dev/zero", O_RDONLY), page, 1L << 62));
}

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  below = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  page = below + 4096;
  end = page + 4096;
  fixed = page + 8192;
  *(int *)fixed = 16;
  mprotect(end, 4096, PROT_NONE);
  mprotect(fixed, 4096, PROT_READ);
  addresses();
  files();
  attributes();
  return 0;
}

// Descriptors to be polled: how many there may be is asked for before the list is read, and time
// and mask before that.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void tell(const char *what, long result) {
  if (result == -1) printf("%s: %s\n", what, strerrorname_np(errno));
  else printf("%s: %ld\n", what, result);
  fflush(stdout);
}

static void ask(const char *what, void *list, unsigned count) {
  struct timespec time = { 0, 0 }, wrong = { 0, -1 };
  unsigned long mask = 0;
  void *nowhere = (void *)8;
  printf("%s, %u\n", what, count);
  tell("poll", syscall(SYS_poll, list, count, 0));
  tell("poll, waiting", count ? syscall(SYS_poll, list, count, 1) : 0);
  tell("ppoll", syscall(SYS_ppoll, list, count, &time, &mask, 8L));
  tell("no mask", syscall(SYS_ppoll, list, count, &time, 0, 3L));
  tell("wrong time", syscall(SYS_ppoll, list, count, &wrong, &mask, 8L));
  tell("wrong mask", syscall(SYS_ppoll, list, count, &time, &mask, 4L));
  tell("no time there", syscall(SYS_ppoll, list, count, nowhere, &mask, 4L));
  tell("no mask there", syscall(SYS_ppoll, list, count, &time, nowhere, 8L));
}

// The same order where a wait has a mask, too.
static void others(const char *what, void *list) {
  struct timespec time = { 0, 0 }, wrong = { 0, -1 };
  unsigned long mask = 0;
  struct { void *mask; long bytes; } right = { &mask, 8 }, less = { &mask, 4 }, none = { 0, 4 };
  struct { void *mask; long bytes; } away = { (void *)8, 8 };
  int set = epoll_create1(0);
  puts(what);
  tell("select", syscall(SYS_pselect6, 40, list, 0, 0, &time, &right));
  tell("no mask", syscall(SYS_pselect6, 40, list, 0, 0, &time, &none));
  tell("wrong mask", syscall(SYS_pselect6, 40, list, 0, 0, &time, &less));
  tell("no mask there", syscall(SYS_pselect6, 40, list, 0, 0, &time, &away));
  tell("wrong time", syscall(SYS_pselect6, 40, list, 0, 0, &wrong, &away));
  tell("nothing there", syscall(SYS_pselect6, 40, list, 0, 0, &wrong, (void *)8));
  tell("no time there", syscall(SYS_pselect6, 40, list, 0, 0, (void *)8, &less));
  tell("epoll", syscall(SYS_epoll_pwait, set, list, 1, 0, &mask, 8L));
  tell("wrong mask", syscall(SYS_epoll_pwait, set, list, 1, 0, &mask, 4L));
  tell("huge mask", syscall(SYS_epoll_pwait, set, list, 1, 0, &mask, 1L << 40));
  tell("no mask there", syscall(SYS_epoll_pwait, set, list, 1, 0, (void *)8, 8L));
  tell("wrong mask, no set", syscall(SYS_epoll_pwait, 999, list, 1, 0, &mask, 4L));
  close(set);
}

int main(void) {
  struct rlimit limit = { 64, 512 };
  setrlimit(RLIMIT_NOFILE, &limit);
  char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(page + 4096, 4096, PROT_NONE);
  memset(page, -1, 4096);
  unsigned counts[] = { 0, 1, 64, 65, 512, 513, 1 << 20, -1 };
  for (int i = 0; i < sizeof counts / sizeof *counts; i++) {
    ask("all there", page, counts[i]);
    ask("half there", page + 4096 - 8 * 32, counts[i]);
    ask("nowhere", (void *)8, counts[i]);
    ask("beyond", (void *)-1, counts[i]);
  }
  memset(page, 0, 4096);
  others("there", page);
  others("nowhere", (void *)8);
  return 0;
}

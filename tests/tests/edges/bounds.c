// Numbers beyond all bounds, and a stack that grows in a program that was executed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile int signalled;
static void on(int number) { signalled++; }

#define TELL(call) (errno = 0, tell(#call, (call)))
static void tell(const char *call, long result) {
  printf("%s: %s, %d signals\n", call, result < 0 ? strerrorname_np(errno) : "done", signalled);
}

static int deep(int left) {
  volatile char room[1 << 20];
  for (int i = 0; i < 1 << 20; i += 4096) room[i] = left;
  return left ? deep(left - 1) + room[4096] - left : room[0];
}

// Never called: a library may have as many.
__attribute__((used)) static void draw(void) {
  asm volatile(".rept 700; rdrand %%rax; .endr" : : : "rax", "cc");
}

static void ids(void) {
  TELL(kill(INT_MIN, SIGKILL));
  TELL(kill(INT_MAX, 0));
  TELL(kill(1 << 22, 0));
  TELL(kill(-(1 << 22) - getpid(), SIGTERM));
}

static void sizes(void) {
  struct rlimit limit = {8192, RLIM_INFINITY};
  int file = open("large", O_RDWR | O_CREAT, 0600);
  signal(SIGXFSZ, on);
  TELL(fallocate(file, 0, 0x7ffffffffffff000 - 1, 4096));
  TELL(ftruncate(file, 0x7fffffffffffffff));
  TELL(pwrite(file, "x", 1, 0x7ffffffffffffff0));
  setrlimit(RLIMIT_FSIZE, &limit);
  TELL(ftruncate(file, 8192));
  TELL(ftruncate(file, 8193));
  TELL(pwrite(file, "x", 1, 8191));
  TELL(pwrite(file, "x", 1, 8192));
  limit.rlim_cur = RLIM_INFINITY;
  setrlimit(RLIMIT_FSIZE, &limit);
}

int main(int count, char **arguments) {
  setvbuf(stdout, 0, _IOLBF, 0);
  if (count > 1) return printf("deep %d\n", deep(80)) < 0;
  ids();
  sizes();
  struct rlimit limit;
  getrlimit(RLIMIT_STACK, &limit);
  if (limit.rlim_max < 128 << 20) return puts("no room for a deep stack") < 0;
  limit.rlim_cur = 128 << 20;
  setrlimit(RLIMIT_STACK, &limit);
  execl(arguments[0], arguments[0], "deep", (char *)0);
}

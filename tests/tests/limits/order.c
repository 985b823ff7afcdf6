// What is wrong beside being too much: the kernel asks for limits on memory last.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MB (1UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static void tell(const char *what, long result) {
  printf("%s: %s\n", what, result == -1 ? strerrorname_np(errno) : "done");
  fflush(stdout);
}

static void map(const char *what, void *at, size_t len, int prot, int flags, int fd, long offset) {
  tell(what, syscall(SYS_mmap, at, len, prot, flags, fd, offset));
}

int main(void) {
  size_t size = 300 * MB;
  /* Far from the end of all addresses. */
  char *at = mmap((void *)0x100000000000, 100 * MB, RW, PRIVATE, -1, 0);
  int pipe[2], zero = open("/dev/zero", O_RDONLY), out = open("file", O_WRONLY | O_CREAT, 0600);
  pipe2(pipe, 0);
  strcpy(at + 4096, "kept");
  struct rlimit limit = { 256 * MB, 256 * MB };
  tell("limit", setrlimit(RLIMIT_AS, &limit));
  map("too much", 0, size, RW, PRIVATE, -1, 0);
  map("offset", 0, size, RW, PRIVATE, -1, 1);
  map("closed", 0, size, RW, MAP_PRIVATE, 700, 0);
  map("no kind", 0, size, RW, MAP_ANONYMOUS, -1, 0);
  map("unaligned", (void *)0x10001, size, RW, PRIVATE | MAP_FIXED, -1, 0);
  map("taken", at, size, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0);
  map("over it", at, size, RW, PRIVATE | MAP_FIXED, -1, 0);
  map("pipe", 0, size, PROT_READ, MAP_PRIVATE, pipe[0], 0);
  map("for writing only", 0, size, PROT_READ, MAP_PRIVATE, out, 0);
  map("shared, for reading only", 0, size, PROT_WRITE, MAP_SHARED, zero, 0);
  map("too much of a file", 0, size, PROT_READ, MAP_PRIVATE, zero, 0);
  tell("moved, unaligned", (long)mremap(at + 1, 4096, size, MREMAP_MAYMOVE));
  tell("moved, unknown", (long)mremap(at, 4096, size, 64));
  tell("moved, must not", (long)mremap(at, 4096, size, MREMAP_FIXED, at + 8192));
  tell("moved, stays", (long)mremap(at, 4096, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
  tell("moved", (long)mremap(at, 100 * MB, size, MREMAP_MAYMOVE));
  printf("%s\n", at + 4096);
  return 0;
}

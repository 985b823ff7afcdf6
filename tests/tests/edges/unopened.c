// Maps descriptors that are not open, each just before it is. A replica that is behind the primary
// must not find what was opened since.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 200, AT_ONCE = 32, FIRST = 300 };

static int refused(size_t size, int protection, int flags, int fd, long offset) {
  void *at = (void *)syscall(SYS_mmap, NULL, size, protection, flags, fd, offset);
  return at == MAP_FAILED ? errno : 0;
}

int main(void) {
  int event = eventfd(0, 0), seen[3] = { 0 };
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < AT_ONCE; i++) {
      int kind = i % 2 ? MAP_PRIVATE : MAP_SHARED;
      int error = refused(4096, PROT_READ, kind, FIRST + i, 0);
      seen[error == EBADF ? 0 : error == ENODEV ? 1 : 2]++;
      if (fcntl(event, F_DUPFD, FIRST + i) != FIRST + i) return 1;
    }
    close_range(FIRST, FIRST + AT_ONCE - 1, 0);
  }
  printf("closed %d, no memory %d, others %d\n", seen[0], seen[1], seen[2]);
  int pipe[2], file = open("/proc/self/exe", O_RDONLY), path = open("/", O_PATH);
  pipe2(pipe, 0);
  printf("offset first %d\n", refused(4096, PROT_READ, MAP_PRIVATE, 700, 1));
  printf("descriptor before length %d\n", refused(0, PROT_READ, MAP_PRIVATE, 700, 0));
  printf("length %d\n", refused(0, PROT_READ, MAP_SHARED, file, 0));
  printf("pipe %d\n", refused(4096, PROT_READ, MAP_PRIVATE, pipe[0], 0));
  printf("name only %d\n", refused(4096, PROT_READ, MAP_PRIVATE, path, 0));
  printf("nothing behind it %d\n", refused(4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, 700, 0));
  return 0;
}

// Reads a file of which the host has only the first page in memory, with a second thread about.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SIZE = 1 << 20, PAGE = 4096 };
static char buffer[SIZE];
static sem_t never;

static void *wait_for_ever(void *unused) {
  sem_wait(&never);
  return unused;
}

// Leaves the first page in memory and nothing else, where the host heeds advice.
static int cooled(int flags) {
  int fd = open("pages", O_RDONLY | flags);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  char first[PAGE];
  if (pread(fd, first, PAGE, 0) != PAGE) _exit(3);
  return fd;
}

int main(void) {
  sem_init(&never, 0, 0);
  pthread_t thread;
  pthread_create(&thread, 0, wait_for_ever, 0);
  int out = open("pages", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (int i = 0; i < SIZE; i++) buffer[i] = i / PAGE;
  if (write(out, buffer, SIZE) != SIZE || fsync(out)) return 1;
  for (int flags = 0; flags <= O_NONBLOCK; flags += O_NONBLOCK) {
    int fd = cooled(flags);
    printf("read %zd\n", read(fd, buffer, SIZE));
    printf("then %zd\n", read(fd, buffer, SIZE));
    fd = cooled(flags);
    struct iovec parts[3] = {{buffer, 100}, {buffer + 100, PAGE}, {buffer + 5000, SIZE - 5000}};
    printf("readv %zd\n", readv(fd, parts, 3));
    for (int i = 5000; i < SIZE; i++)
      if (buffer[i] != (char)((i - 5000 + 100 + PAGE) / PAGE)) return 2;
  }
  fflush(stdout);
  _exit(0);
}

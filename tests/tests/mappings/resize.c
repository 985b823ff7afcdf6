// Shared mappings that grow, shrink and move.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *map(int fd, int pages, int first) {
  int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
  char *at = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, (off_t)first * PAGE);
  if (at == MAP_FAILED) perror("mmap"), _exit(1);
  return at;
}

static const char *what(const void *result) {
  return result == MAP_FAILED ? strerror(errno) : "done";
}

static void refusals(char *at, char *free) {
  printf("to nothing: %s\n", what(mremap(at, PAGE, 0, MREMAP_MAYMOVE)));
  printf("not aligned: %s\n", what(mremap(at + 1, PAGE, PAGE, MREMAP_MAYMOVE)));
  printf("unknown flag: %s\n", what(mremap(at, PAGE, PAGE, 64)));
  printf("fixed without moving: %s\n", what(mremap(at, PAGE, PAGE, MREMAP_FIXED, free)));
  int both = MREMAP_MAYMOVE | MREMAP_FIXED;
  printf("onto itself: %s\n", what(mremap(at, PAGE, PAGE, both, at)));
  printf("to an odd place: %s\n", what(mremap(at, PAGE, PAGE, both, free + 1)));
}

// A room of so many pages, of which the first ones can be mapped over.
static char *room(int pages) {
  return mmap(0, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void show(const char *name, const char *at, int pages) {
  printf("%s:", name);
  for (int i = 0; i < pages; i++) printf(" [%.10s]", at + i * PAGE);
  printf("\n");
}

static void resize_all(const char *name, int fd, int grows) {
  printf("%s\n", name);
  char *place = room(12);
  char *at = map(fd, 3, 0);
  at = mremap(at, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  printf("moved to a place: %d\n", at == place);
  refusals(at, place + 8 * PAGE);
  strcpy(at, "one"), strcpy(at + PAGE, "two"), strcpy(at + 2 * PAGE, "three");
  printf("in the way: %s\n", what(mremap(at, 3 * PAGE, 4 * PAGE, 0)));
  char *less = mremap(at, 3 * PAGE, 2 * PAGE, 0);
  printf("shrunk in place: %d\n", less == at);
  if (grows) {
    char *more = mremap(at, 2 * PAGE, 3 * PAGE, 0);
    printf("grown in place: %d\n", more == at);
    show("after growth", at, 3);
    more = mremap(at, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
    printf("grown elsewhere: %d\n", more != at && more != MAP_FAILED);
    at = more;
    strcpy(at + 4 * PAGE, "five");
    show("after growth", at, 5);
  }
  int pages = grows ? 5 : 2;
  at = mremap(at, pages * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 5 * PAGE);
  printf("moved and shrunk: %d\n", at == place + 5 * PAGE);
  show("shrunk", at, 2);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    strcpy(at, "child's");
    char *moved = mremap(at, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    strcpy(moved + PAGE, "too");
    _exit(0);
  }
  waitpid(child, 0, 0);
  show("after the child", at, 2);
  // A part in the middle, and one that is in the way of another.
  at = mremap(at, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  char *second = mremap(at + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 9 * PAGE);
  show("the second page", second, 1);
  char *over = mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, second);
  show("the first over it", over, 1);
  munmap(place, 12 * PAGE);
}

static int file(const char *name, int pages) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ftruncate(fd, pages * PAGE)) perror(name), _exit(2);
  return fd;
}

int main(void) {
  int fd = file("alone", 3);
  // As an interpreter does it: the file first, then the mapping.
  char *at = map(fd, 3, 0);
  strcpy(at + 2 * PAGE, "kept");
  if (ftruncate(fd, 20 * PAGE)) return 3;
  at = mremap(at, 3 * PAGE, 20 * PAGE, MREMAP_MAYMOVE);
  strcpy(at + 19 * PAGE, "last");
  msync(at, 20 * PAGE, MS_SYNC);
  char text[5] = {0};
  printf("%zd %s\n", pread(fd, text, 4, 19 * PAGE), text);
  show("grown with its file", at + 2 * PAGE, 1);
  munmap(at, 20 * PAGE);
  // One that grows to where another one is.
  char *low = map(fd, 1, 0), *high = map(fd, 1, 1);
  low = mremap(low, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
  strcpy(high, "seen twice");
  show("grown into another", low + PAGE, 1);
  munmap(low, 2 * PAGE), munmap(high, PAGE);
  resize_all("a file", file("mapped", 6), 1);
  resize_all("anonymous memory", -1, 0);
  int memory = memfd_create("memory", 0);
  if (ftruncate(memory, 6 * PAGE)) return 4;
  resize_all("a file in memory", memory, 1);
  return 0;
}

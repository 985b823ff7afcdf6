// Seals of files in memory, mapped or not.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[8];
static int failed(long result) { return result == -1 ? errno : 0; }
static int seal(int file, int what) { return failed(fcntl(file, F_ADD_SEALS, what)); }
static int file_of(const char *name) {
  int file = memfd_create(name, MFD_ALLOW_SEALING);
  ftruncate(file, 8192);
  return file;
}
static char *map(int file, int access) {
  return mmap(0, 8192, access, MAP_SHARED, file, 0);
}
static const char *content(int file) {
  memset(text, 0, sizeof text);
  pread(file, text, 7, 0);
  return text;
}

int main(int count, char **arguments) {
  int both = PROT_READ | PROT_WRITE, status;
  if (count > 1 && !fork()) _exit(0);
  if (count > 1) wait(&status);
  int file = file_of("mapped");
  char *at = map(file, both);
  strcpy(at, "before");
  printf("while mapped %d\n", seal(file, F_SEAL_WRITE));
  strcpy(at, "after");
  printf("content %s\n", content(file));
  if (count > 1) {
    if (!fork()) {
      int refused = seal(file, F_SEAL_WRITE);
      munmap(at, 8192);
      _exit(refused == EBUSY && seal(file, F_SEAL_WRITE) == EBUSY);
    }
    wait(&status);
    printf("while my parent maps it %x\n", status);
  }
  munmap(at, 8192);
  printf("unmapped %d\n", seal(file, F_SEAL_WRITE));
  printf("content %s\n", content(file));
  printf("write %d\n", failed(write(file, "x", 1)));
  printf("map %d\n", failed((long)map(file, both)));
  at = mmap(0, 8192, both, MAP_PRIVATE, file, 0);
  printf("private %s\n", at);
  file = file_of("size");
  at = map(file, both);
  printf("size %d\n", seal(file, F_SEAL_SHRINK | F_SEAL_GROW));
  strcpy(at, "sized");
  printf("content %s\n", content(file));
  printf("shrink %d\n", failed(ftruncate(file, 1)));
  printf("odd %d\n", seal(file, 1 << 20));
  printf("last %d\n", seal(file, F_SEAL_SEAL));
  printf("too late %d\n", seal(file, F_SEAL_WRITE));
  printf("none %d\n", seal(memfd_create("none", 0), F_SEAL_WRITE));
  printf("no file in memory %d\n", seal(0, F_SEAL_WRITE) != 0);
  file = file_of("future");
  printf("future %d\n", seal(file, 0x10));
  printf("map %d\n", failed((long)map(file, both)));
  printf("look %d\n", map(file, PROT_READ)[5]);
  file = file_of("tail");
  at = map(file, both);
  strcpy(at + 4096, "tail");
  ftruncate(file, 4096);
  ftruncate(file, 8192);
  printf("tail '%s'\n", at + 4096);
}

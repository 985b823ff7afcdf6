// Writing to be left to mappings that there are: refused.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
  char text[8] = {0};
  int file = memfd_create("future", MFD_ALLOW_SEALING);
  ftruncate(file, 4096);
  char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  printf("%d\n", fcntl(file, F_ADD_SEALS, 0x10) ? errno : 0);
  strcpy(at, "hello");
  munmap(at, 4096);
  pread(file, text, 6, 0);
  puts(text);
}

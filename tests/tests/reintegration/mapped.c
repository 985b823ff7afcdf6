#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 64
int main(void) {
  int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
  ftruncate(fd, PAGES * 4096);
  long *all = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), i = 0, seen;
  int file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644);
  char line[32];
  do {
    long *own = all + i % PAGES * 512, *other = all + i * 7 % PAGES * 512;
    int len = snprintf(line, sizeof line, "%ld\n", i);
    if (own[1] != i / PAGES) len = sprintf(line, "wrong\n");
    own[1]++;
    own[2] += i;
    if (i % 3 == 0) msync(own, 4096, MS_SYNC);
    if (i % 5 == 0) {
      pread(fd, &seen, 8, (char *)(other + 1) - (char *)all);
      if (seen != other[1]) len = sprintf(line, "wrong\n");
    }
    if (i % 7 == 0) {
      seen = i;
      pwrite(fd, &seen, 8, (char *)(other + 3) - (char *)all);
      if (other[3] != i) len = sprintf(line, "wrong\n");
    }
    write(1, line, len); write(file, line, len);
    i++;
    usleep(300);
  } while (access("stop", F_OK) != 0);
  int len = snprintf(line, sizeof line, "end %ld\n", i);
  write(1, line, len); write(file, line, len);
  return 7;
}

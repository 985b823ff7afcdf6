/* Reads a file again and again, each piece to a place of its own, and prints a sum of each pass,
 * until there is a file `stop`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIZE = 1 << 18, PIECE = 1 << 14 };
unsigned char bytes[SIZE];

int main(int argc, char **argv) {
  int fd = open(argv[1], O_RDONLY);
  if (fd != 3) return 1;
  do {
    unsigned long length = 0, sum = 0;
    ssize_t got;
    if (lseek(fd, 0, SEEK_SET)) return 2;
    while (length < SIZE && (got = read(fd, bytes + length, PIECE)) > 0) length += got;
    if (got < 0) return 2;
    for (unsigned long at = 0; at < length; at++) sum = sum * 31 + bytes[at];
    printf("%lu %lx\n", length, sum);
    fflush(stdout);
  } while (access("stop", F_OK) != 0);
  return 3;
}

/* A file is read in pieces of many sizes; every byte that is read counts. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES = 300000 };
static unsigned char buffer[65536];
static unsigned long sum, calls;

static long count(long got) {
  sum = sum * 1099511628211 + got;
  for (long at = 0; at < got; at++) sum = (sum ^ buffer[at]) * 1099511628211;
  calls++;
  return got;
}

static void tell(const char *what) {
  printf("%s: %lx after %lu\n", what, sum, calls);
  fflush(stdout);
}

static void make(const char *name, int seed) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  unsigned word = seed;
  for (long at = 0; at < BYTES; at += sizeof buffer) {
    for (unsigned long i = 0; i < sizeof buffer; i++) buffer[i] = (word = word * 1103515245 + 12345) >> 16;
    if (write(fd, buffer, BYTES - at < sizeof buffer ? BYTES - at : sizeof buffer) < 0) _exit(1);
  }
  close(fd);
}

/* To its end, which is no whole piece, one file after the other by the same descriptor. */
static void through(const char *name, long piece) {
  int fd = open(name, O_RDONLY);
  while (count(read(fd, buffer, piece)) > 0);
  close(fd);
}

/* The program itself writes a little ahead of where it reads. */
static void behind_a_writer(const char *name) {
  int fd = open(name, O_RDONLY), writer = open(name, O_WRONLY);
  for (int at = 0; at < 60 && count(read(fd, buffer, 4096)) == 4096; at++) {
    char text[16] = {0};
    snprintf(text, sizeof text, "piece %d", at);
    if (pwrite(writer, text, sizeof text, (at + 2) * 4096L + 100) < 0) _exit(1);
  }
  close(writer);
  close(fd);
}

/* To and fro, by position and by offset, in several parts, and cut off. */
static void here_and_there(const char *name) {
  int fd = open(name, O_RDWR);
  for (int i = 0; i < 30; i++) {
    count(read(fd, buffer, 4096));
    if (i % 9 == 8) lseek(fd, -3 * 4096L - 5, SEEK_CUR);
    if (i % 10 == 9) dup2(open(name, O_RDONLY), fd);
    count(pread(fd, buffer, 4096, 8192L * i));
  }
  for (int i = 0; i < 20; i++) count(pread(fd, buffer, 5000, 5000L * i));
  struct iovec parts[] = {{buffer, 3000}, {buffer + 3000, 0}, {buffer + 3001, 6000}};
  lseek(fd, 1, SEEK_SET);
  for (int i = 0; i < 20; i++) count(readv(fd, parts, 3));
  int other = open(name, O_RDWR);
  lseek(other, 0, SEEK_SET);
  for (int i = 0; i < 12; i++) {
    if (i == 8 && ftruncate(other, 9 * 4096 + 17)) _exit(1);
    count(read(other, buffer, 4096));
  }
}

int main(void) {
  make("first", 1);
  make("second", 2);
  long pieces[] = {4095, 4096, 4104, 5000, 8192, 16384, 32752, 32768, 65536};
  for (unsigned i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    through("first", pieces[i]);
    through("second", pieces[i]);
    tell("through");
  }
  behind_a_writer("first");
  tell("behind a writer");
  here_and_there("second");
  tell("here and there");
}

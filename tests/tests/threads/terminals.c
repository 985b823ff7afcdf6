// A thread that writes to a terminal waits until another one of the same program has read of it:
// by one long write, by many short ones, to either end of it, and by splice from a pipe, whatever
// that is told about waiting.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), exit(1)))

enum { TOTAL = 300000 };

struct reader {
  int fd;
  long wanted;
  uint64_t sum;
};

static uint64_t add(uint64_t sum, const char *bytes, long count) {
  for (long i = 0; i < count; i++) sum = sum * 31 + (unsigned char)bytes[i];
  return sum;
}

static void *reads(void *argument) {
  struct reader *reader = argument;
  char bytes[1000];
  while (reader->wanted > 0) {
    long count = read(reader->fd, bytes, sizeof bytes);
    CHECK(count > 0);
    reader->sum = add(reader->sum, bytes, count);
    reader->wanted -= count;
  }
  return NULL;
}

static char text[TOTAL];

// What another thread reads at `from` of what `writes` puts into `to`.
static void moved(const char *name, int to, int from, void (*writes)(int)) {
  struct reader reader = {from, TOTAL, 0};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, reads, &reader) == 0);
  writes(to);
  CHECK(pthread_join(thread, NULL) == 0);
  printf("%s: %s\n", name, reader.sum == add(0, text, TOTAL) ? "all" : "something else");
}

static void at_once(int to) { CHECK(write(to, text, TOTAL) == TOTAL); }

static void by_and_by(int to) {
  for (int at = 0; at < TOTAL; at += 1000) CHECK(write(to, text + at, 1000) == 1000);
}

static void splices(int to, unsigned flags) {
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  for (int at = 0; at < TOTAL; at += 10000) {
    CHECK(write(pipes[1], text + at, 10000) == 10000);
    for (long left = 10000; left > 0;) {
      long count = splice(pipes[0], NULL, to, NULL, left, flags);
      CHECK(count > 0);
      left -= count;
    }
  }
  CHECK(splice(pipes[0], NULL, to, NULL, 1, SPLICE_F_NONBLOCK) == -1);
  close(pipes[0]), close(pipes[1]);
}

static void spliced(int to) { splices(to, 0); }

static void spliced_without_waiting(int to) { splices(to, SPLICE_F_NONBLOCK); }

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  for (int i = 0; i < TOTAL; i++) text[i] = 'a' + i * 7 % 26;
  int outer = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(outer >= 0 && grantpt(outer) == 0 && unlockpt(outer) == 0);
  int inner = open(ptsname(outer), O_RDWR | O_NOCTTY);
  CHECK(inner >= 0);
  struct termios settings;
  CHECK(tcgetattr(inner, &settings) == 0);
  cfmakeraw(&settings);
  CHECK(tcsetattr(inner, TCSANOW, &settings) == 0);
  moved("out, at once", inner, outer, at_once);
  moved("out, by and by", inner, outer, by_and_by);
  moved("out, spliced", inner, outer, spliced);
  moved("out, spliced without waiting", inner, outer, spliced_without_waiting);
  moved("in, at once", outer, inner, at_once);
  moved("in, by and by", outer, inner, by_and_by);
  CHECK((fcntl(inner, F_GETFL) & O_NONBLOCK) == 0);
  CHECK((fcntl(outer, F_GETFL) & O_NONBLOCK) == 0);
  return 0;
}

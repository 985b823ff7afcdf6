// A parent that fills a table and three children, without another program, that work on it: what
// is in the parent's memory at each fork is all that they have.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3, WORDS = 64 << 10 };

static uint64_t table[WORDS];

static uint64_t step(uint64_t x) {
  x ^= x << 13;
  x ^= x >> 7;
  return x ^ x << 17;
}

static uint64_t work(int self) {
  uint64_t sum = (uint64_t)self + 1;
  for (int pass = 0; pass < 8; pass++)
    for (int i = self; i < WORDS; i += WORKERS) sum = step(sum + table[i]);
  return sum;
}

int main(void) {
  for (int pass = 0; pass < 4; pass++)
    for (int i = 0; i < WORDS; i++) table[i] = step(table[i] + (uint64_t)i + 1);
  for (int self = 0; self < WORKERS; self++) {
    int ends[2], status;
    if (pipe(ends)) return 1;
    pid_t child = fork();
    if (child == 0) {
      uint64_t sum = work(self);
      return write(ends[1], &sum, sizeof sum) == sizeof sum ? 10 + self : 1;
    }
    uint64_t sum = 0;
    close(ends[1]);
    if (read(ends[0], &sum, sizeof sum) != sizeof sum) return 2;
    close(ends[0]);
    waitpid(child, &status, 0);
    printf("%d %016llx %d\n", self, (unsigned long long)sum, WEXITSTATUS(status));
    fflush(stdout);
    for (int i = 0; i < WORDS; i += 64) table[i] ^= sum;
  }
  return 0;
}

// Four threads that share out a table under one lock, and wait for each other by a condition.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 40, WORDS = 32 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static uint64_t table[WORDS];
static uint64_t total;
static int next;

static uint64_t step(uint64_t x) {
  x ^= x << 13;
  x ^= x >> 7;
  return x ^ x << 17;
}

static void *run(void *number) {
  int self = (int)(intptr_t)number;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t part = 0;
    for (int i = self; i < WORDS; i += THREADS) {
      table[i] = step(table[i] + (uint64_t)round);
      part += table[i];
    }
    pthread_mutex_lock(&lock);
    while (next % THREADS != self) pthread_cond_wait(&turn, &lock);
    total = step(total + part);
    next++;
    if (round % 8 == self) {
      printf("%d %d %016llx\n", self, round, (unsigned long long)total);
      fflush(stdout);
    }
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&lock);
  }
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < WORDS; i++) table[i] = (uint64_t)i * 2654435761u + 1;
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, run, (void *)(intptr_t)i);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
  printf("%016llx\n", (unsigned long long)total);
  return 0;
}

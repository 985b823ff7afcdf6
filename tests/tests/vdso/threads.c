// Threads that wait for a time, or for each other, by reading the clock again and again.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static volatile int turn;

static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *spins(void *of) {
  long me = (long)of, before = 0;
  for (int i = 0; i < 50; i++) {
    while (turn % 4 != me) {
      long read = now();
      if (read < before) return (void *)1;
      before = read;
    }
    turn++;
  }
  for (long end = now() + 20000000; now() < end;) {
  }
  return 0;
}

int main(void) {
  pthread_t all[4];
  void *bad, *any = 0;
  for (long i = 0; i < 4; i++) pthread_create(&all[i], 0, spins, (void *)i);
  for (int i = 0; i < 4; i++) {
    pthread_join(all[i], &bad);
    any = bad ? bad : any;
  }
  printf("turns %d, back %d\n", turn, any != 0);
  return 0;
}

// The papers' data race: 32 threads and a counter without a lock. The call between reading and
// writing is where a thread may give way.
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long counter;

static void *run(void *unused) {
  (void)unused;
  for (int i = 0; i < 20; i++) {
    long seen = counter;
    syscall(SYS_getppid);
    counter = seen + 1;
  }
  return 0;
}

int main(void) {
  pthread_t threads[32];
  for (int i = 0; i < 32; i++) pthread_create(&threads[i], 0, run, 0);
  for (int i = 0; i < 32; i++) pthread_join(threads[i], 0);
  printf("%ld\n", counter);
  return 0;
}

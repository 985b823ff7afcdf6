// Threads of one process wake each other in memory that could be shared with another.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
  int word, other;
  sem_t asked, done;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int value;
} *shared;

static long futex(int *word, int what, int value, long more, int *other) {
  return syscall(SYS_futex, word, what, value, more, other, 0);
}

// Comes back when somebody waits there.
static void wake(int *word, int what) {
  while (futex(word, what, 1, 0, 0) == 0) sched_yield();
}

static void *helper(void *none) {
  wake(&shared->word, FUTEX_WAKE);
  wake(&shared->word, FUTEX_WAKE_PRIVATE);
  while (futex(&shared->word, FUTEX_REQUEUE, 0, 1, &shared->other) == 0) sched_yield();
  wake(&shared->other, FUTEX_WAKE);
  for (int i = 0; i < 3; i++) {
    sem_wait(&shared->asked);
    sem_post(&shared->done);
  }
  pthread_mutex_lock(&shared->lock);
  shared->value = 7;
  pthread_cond_signal(&shared->changed);
  pthread_mutex_unlock(&shared->lock);
  return none;
}

int main(void) {
  shared = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_mutexattr_t of_lock;
  pthread_condattr_t of_change;
  pthread_mutexattr_init(&of_lock);
  pthread_condattr_init(&of_change);
  pthread_mutexattr_setpshared(&of_lock, PTHREAD_PROCESS_SHARED);
  pthread_condattr_setpshared(&of_change, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->lock, &of_lock);
  pthread_cond_init(&shared->changed, &of_change);
  sem_init(&shared->asked, 1, 0);
  sem_init(&shared->done, 1, 0);
  pthread_t thread;
  pthread_create(&thread, 0, helper, 0);
  printf("shared %ld\n", futex(&shared->word, FUTEX_WAIT, 0, 0, 0));
  printf("private %ld\n", futex(&shared->word, FUTEX_WAIT_PRIVATE, 0, 0, 0));
  printf("moved %ld\n", futex(&shared->word, FUTEX_WAIT, 0, 0, 0));
  struct timespec soon = {0, 1000000}, later;
  long result = futex(&shared->word, FUTEX_WAIT, 0, (long)&soon, 0);
  printf("timed %ld %d\n", result, errno == ETIMEDOUT);
  for (int i = 0; i < 3; i++) {
    sem_post(&shared->asked);
    clock_gettime(CLOCK_REALTIME, &later);
    later.tv_sec += 100;
    printf("done %d\n", i == 1 ? sem_timedwait(&shared->done, &later) : sem_wait(&shared->done));
  }
  pthread_mutex_lock(&shared->lock);
  while (!shared->value) pthread_cond_wait(&shared->changed, &shared->lock);
  pthread_mutex_unlock(&shared->lock);
  pthread_join(thread, 0);
  printf("value %d\n", shared->value);
}

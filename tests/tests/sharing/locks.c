/* Locks of all kinds in memory that processes share. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 4 };

struct all {
  pthread_mutex_t mutex, robust, handed, recursive;
  pthread_cond_t cond;
  sem_t two, none;
  pthread_barrier_t barrier;
  long count, sum, turn, deep;
  int inside, most;
};

static void init_mutex(pthread_mutex_t *mutex, int robust, int protocol, int type) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, robust);
  pthread_mutexattr_setprotocol(&kind, protocol);
  pthread_mutexattr_settype(&kind, type);
  pthread_mutex_init(mutex, &kind);
}

static struct all *init(void) {
  struct all *a =
      mmap(0, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  init_mutex(&a->mutex, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_NORMAL);
  init_mutex(&a->robust, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_NORMAL);
  init_mutex(&a->handed, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_NORMAL);
  init_mutex(&a->recursive, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_RECURSIVE);
  pthread_condattr_t shared;
  pthread_condattr_init(&shared);
  pthread_condattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&a->cond, &shared);
  pthread_barrierattr_t all;
  pthread_barrierattr_init(&all);
  pthread_barrierattr_setpshared(&all, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&a->barrier, &all, PROCESSES);
  sem_init(&a->two, 1, 2);
  sem_init(&a->none, 1, 0);
  return a;
}

static struct all *a;

/* Second threads of all processes: their ids must differ, or the lock counts as one's own. */
static void *recurse(void *nothing) {
  for (int i = 0; i < 50; i++) {
    pthread_mutex_lock(&a->recursive);
    long value = a->deep;
    sched_yield();
    a->deep = value + 1;
    pthread_mutex_unlock(&a->recursive);
  }
  return nothing;
}

static int child(int number) {
  for (int i = 0; i < 100; i++) {
    pthread_mutex_lock(&a->mutex);
    long value = a->count;
    sched_yield();
    a->count = value + 1;
    pthread_mutex_unlock(&a->mutex);
    pthread_mutex_lock(&a->handed);
    value = a->sum;
    sched_yield();
    a->sum = value + 2;
    pthread_mutex_unlock(&a->handed);
  }
  for (int i = 0; i < 25; i++) {
    pthread_mutex_lock(&a->mutex);
    while (a->turn % PROCESSES != number) pthread_cond_wait(&a->cond, &a->mutex);
    a->turn++;
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->mutex);
  }
  for (int i = 0; i < 25; i++) {
    sem_wait(&a->two);
    int inside = __atomic_add_fetch(&a->inside, 1, __ATOMIC_SEQ_CST);
    if (inside > a->most) a->most = inside;
    sched_yield();
    __atomic_sub_fetch(&a->inside, 1, __ATOMIC_SEQ_CST);
    sem_post(&a->two);
    pthread_barrier_wait(&a->barrier);
  }
  pthread_t second;
  pthread_create(&second, 0, recurse, 0);
  pthread_join(second, 0);
  if (number == 0) pthread_mutex_lock(&a->robust);
  return number;
}

int main(void) {
  int status, sum = 0;
  a = init();
  for (int p = 0; p < PROCESSES; p++)
    if (!fork()) _exit(child(p));
  for (int p = 0; p < PROCESSES; p++) {
    wait(&status);
    sum += WEXITSTATUS(status);
  }
  printf("%d: %ld %ld %ld %ld\n", sum, a->count, a->sum, a->turn, a->deep);
  printf("at most two: %d\n", a->most <= 2);
  printf("the owner is dead: %d\n", pthread_mutex_lock(&a->robust) == EOWNERDEAD);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  printf("nobody posts: %d %d\n", sem_timedwait(&a->none, &now), errno == ETIMEDOUT);
  return 0;
}

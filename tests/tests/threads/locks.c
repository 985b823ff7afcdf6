// Locks that the kernel knows about: priority inheritance, robust ones, and many waiters; and calls
// that are asked not to wait.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock;
static long value;

static void *increments(void *unused) {
  (void)unused;
  for (int i = 0; i < 300; i++) {
    pthread_mutex_lock(&lock);
    long seen = value;
    if (i % 7 == 0) sched_yield();
    value = seen + 1;
    pthread_mutex_unlock(&lock);
  }
  return 0;
}

static void *dies_with(void *mutex) {
  pthread_mutex_lock(mutex);
  return 0;
}

static void kind(int protocol) {
  pthread_mutexattr_t attributes;
  pthread_t threads[6];
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, protocol);
  pthread_mutex_init(&lock, &attributes);
  value = 0;
  for (int i = 0; i < 6; i++) pthread_create(&threads[i], 0, increments, 0);
  for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
  printf("%ld", value);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t robust;
  pthread_mutex_init(&robust, &attributes);
  pthread_create(&threads[0], 0, dies_with, &robust);
  pthread_join(threads[0], 0);
  printf(" %d", pthread_mutex_lock(&robust) == EOWNERDEAD);
  printf(" %d", pthread_mutex_consistent(&robust));
  printf(" %d", pthread_mutex_unlock(&robust));
  printf(" %d", pthread_mutex_lock(&robust));
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  printf(" %d\n", pthread_mutex_timedlock(&lock, &now));
}

static pthread_barrier_t barrier;
static void *meets(void *unused) {
  (void)unused;
  long serial = 0;
  for (int i = 0; i < 30; i++)
    serial += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
  return (void *)serial;
}

static void *forever(void *unused) {
  for (;;) pause();
  return unused;
}

// Who asks not to wait is told, though another thread could run.
static void at_once(void) {
  pthread_t thread;
  int one = open("locked", O_RDWR | O_CREAT, 0600), other = open("locked", O_RDWR);
  int from[2], to[2];
  struct iovec part = {(char[8]){0}, 8};
  pipe(from);
  pipe(to);
  pthread_create(&thread, 0, forever, 0);
  flock(one, LOCK_EX);
  int result = flock(other, LOCK_EX | LOCK_NB);
  printf("flock %d %d\n", result, errno == EWOULDBLOCK);
  result = splice(from[0], 0, to[1], 0, 8, SPLICE_F_NONBLOCK);
  printf("splice %d %d\n", result, errno == EAGAIN);
  result = tee(from[0], to[1], 8, SPLICE_F_NONBLOCK);
  printf("tee %d %d\n", result, errno == EAGAIN);
  result = preadv2(from[0], &part, 1, -1, RWF_NOWAIT);
  printf("preadv2 %d %d\n", result, errno == EAGAIN);
  pthread_cancel(thread);
  pthread_join(thread, 0);
}

int main(void) {
  at_once();
  kind(PTHREAD_PRIO_NONE);
  kind(PTHREAD_PRIO_INHERIT);
  pthread_t threads[9];
  long serials = 0;
  pthread_barrier_init(&barrier, 0, 9);
  for (int i = 0; i < 9; i++) pthread_create(&threads[i], 0, meets, 0);
  for (int i = 0; i < 9; i++) {
    void *result;
    pthread_join(threads[i], &result);
    serials += (long)result;
  }
  printf("%ld\n", serials);
  return 0;
}

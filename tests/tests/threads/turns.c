// Eight threads that take turns by a condition variable; thread-local storage; results of join.
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread int own;
static int turn, sum;

static void *run(void *argument) {
  int id = (int)(long)argument;
  own = id;
  for (int i = 0; i < 50; i++) {
    pthread_mutex_lock(&lock);
    while (turn != id) pthread_cond_wait(&changed, &lock);
    sum += own;
    turn = (turn + 1) % 8;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
  }
  return (void *)(long)(own * own);
}

static void *once(void *argument) { return argument; }

int main(void) {
  pthread_t threads[8];
  for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, run, (void *)i);
  for (int i = 0; i < 8; i++) {
    void *result;
    pthread_join(threads[i], &result);
    printf("%d %ld\n", i, (long)result);
  }
  printf("%d\n", sum);
  // Many short lives, one after the other and at once.
  long all = 0;
  for (long round = 0; round < 20; round++) {
    pthread_t many[50];
    for (long i = 0; i < 50; i++) pthread_create(&many[i], 0, once, (void *)i);
    for (int i = 0; i < 50; i++) {
      void *result;
      pthread_join(many[i], &result);
      all += (long)result;
    }
  }
  printf("%ld\n", all);
  return 0;
}

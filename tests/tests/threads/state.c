// What each thread has to itself: vector registers and their modes, name, ids, errno; and the end of
// the first thread before the others.
#define _GNU_SOURCE
#include <errno.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define YIELD_KEEPING(v)                                                            \
  do {                                                                              \
    register long n __asm__("rax") = SYS_sched_yield;                               \
    __asm__ volatile("vmovaps %1, %%ymm9\n syscall\n vmovaps %%ymm9, %1"            \
                     : "+r"(n), "+x"(v) : : "rcx", "r11", "memory", "xmm9");        \
  } while (0)

__attribute__((target("avx"))) static long wide(long id) {
  __m256 v = _mm256_set1_ps((float)id), before = v;
  long wrong = 0;
  for (int i = 0; i < 50; i++) {
    YIELD_KEEPING(v);
    wrong += _mm256_movemask_ps(_mm256_cmp_ps(v, before, _CMP_NEQ_OQ));
  }
  return wrong;
}

static void *vectors(void *argument) {
  long wrong = __builtin_cpu_supports("avx") ? wide((long)argument) : 0;
  return (void *)(wrong << 32 | (_mm_getcsr() & ~0x3fu));
}

static void *named(void *unused) {
  (void)unused;
  char name[16];
  cpu_set_t cpus;
  int policy;
  struct sched_param parameter;
  pthread_getname_np(pthread_self(), name, sizeof name);
  printf("%s ", name);
  pthread_setname_np(pthread_self(), "worker-seven");
  pthread_getname_np(pthread_self(), name, sizeof name);
  printf("%s ", name);
  printf("%d ", pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus));
  printf("%d ", pthread_getschedparam(pthread_self(), &policy, &parameter));
  printf("%d %d\n", gettid() != getpid(), close(-1) == -1 && errno == EBADF);
  return 0;
}

static pthread_t leader;
static void *last(void *unused) {
  (void)unused;
  int joined = pthread_join(leader, 0);
  printf("last %d\n", joined);
  return 0;
}

int main(void) {
  pthread_t threads[6];
  _mm_setcsr(_mm_getcsr() | 0x8000);
  for (long i = 0; i < 6; i++) pthread_create(&threads[i], 0, vectors, (void *)i);
  for (int i = 0; i < 6; i++) {
    void *result;
    pthread_join(threads[i], &result);
    printf("%lx\n", (unsigned long)result);
  }
  pthread_create(&threads[0], 0, named, 0);
  pthread_join(threads[0], 0);
  char name[16];
  pthread_getname_np(pthread_self(), name, sizeof name);
  printf("%s %d %d\n", name, gettid() == getpid(), errno);
  fflush(stdout);
  leader = pthread_self();
  pthread_create(&threads[0], 0, last, 0);
  pthread_exit(0);
}

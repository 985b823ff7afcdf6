/* Two children add to a sum under a lock. They say when they have begun, and then pass the lock to
   and fro until there is a file named `go`. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct all {
  pthread_mutex_t mutex;
  unsigned long sum, steps, waits;
};

int main(void) {
  struct all *a =
      mmap(0, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&a->mutex, &kind);
  for (int p = 0; p < 2; p++)
    if (!fork()) {
      for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&a->mutex);
        for (unsigned long k = 0; k < 2000; k++) a->sum += k ^ a->steps;
        a->steps++;
        pthread_mutex_unlock(&a->mutex);
        if (i == 10) write(1, "x", 1);
        while (i == 10 && access("go", F_OK)) {
          pthread_mutex_lock(&a->mutex);
          a->waits++;
          pthread_mutex_unlock(&a->mutex);
          usleep(1);
        }
      }
      _exit(3);
    }
  int status, sum = 0;
  for (int p = 0; p < 2; p++) {
    wait(&status);
    sum += WEXITSTATUS(status);
  }
  printf("\n%d %lu %lu\n", sum, a->steps, a->sum);
  return 0;
}

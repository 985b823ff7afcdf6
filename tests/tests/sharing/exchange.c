/* Two processes and their parent pass numbers round in memory that they share: each adds one to
   what the one before it has left, and tells every number once. They stop at a file named `stop`.
   A segment and a mapped file hold the same numbers. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 3
#define PAGES 600
/* Where the shared memory is. */
#define PLACE ((void *)0x100000000)

/* For the test to change. */
volatile unsigned long unused;
const volatile unsigned long constant[1024] = {7};

struct all {
  unsigned long spare;
  pthread_mutex_t mutex;
  pthread_cond_t turn;
  long next, over;
  long pages[PAGES][512];
};

static void tell(int file, const char *text, int len) {
  write(1, text, len);
  write(file, text, len);
}

static void run(struct all *a, long *segment, long *mapped, int id, int file) {
  char line[64];
  long own = id;
  for (;;) {
    pthread_mutex_lock(&a->mutex);
    while (!a->over && a->next % PROCESSES != id) pthread_cond_wait(&a->turn, &a->mutex);
    long i = a->next;
    if (a->over) break;
    long *page = a->pages[i * 7 % PAGES];
    if (own != i || *segment != i || *mapped != i || page[1] != page[2])
      tell(file, "wrong\n", 6);
    tell(file, line, snprintf(line, sizeof line, "%ld\n", i));
    page[1] += i, page[2] += i;
    own += PROCESSES;
    *segment = *mapped = a->next = i + 1;
    a->over = access("stop", F_OK) == 0;
    pthread_cond_broadcast(&a->turn);
    pthread_mutex_unlock(&a->mutex);
    usleep(300);
  }
  pthread_mutex_unlock(&a->mutex);
}

int main(void) {
  /* So the page is the process's own. */
  unused = 0;
  struct all *a =
      mmap(PLACE, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int memory = memfd_create("numbers", 0);
  ftruncate(memory, 4096);
  long *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  long *segment = shmat(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), 0, 0);
  int file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644), status;
  char line[64];
  pthread_mutexattr_t kind;
  pthread_condattr_t way;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&a->mutex, &kind);
  pthread_condattr_init(&way);
  pthread_condattr_setpshared(&way, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&a->turn, &way);
  for (int id = 1; id < PROCESSES; id++)
    if (fork() == 0) {
      run(a, segment, mapped, id, file);
      _exit(0);
    }
  run(a, segment, mapped, 0, file);
  while (wait(&status) > 0)
    if (status != 0) return 1;
  tell(file, line, snprintf(line, sizeof line, "end %ld\n", a->next));
  return 7;
}

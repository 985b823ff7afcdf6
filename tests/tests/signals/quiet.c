/* Signals reach loops whose calls need no answer from outside the program. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t came;
static char *page;

static void note(int signal) { (void)signal; came = 1; }

static void set_timer(void) {
  struct itimerval soon = {{0, 0}, {0, 10000}};
  came = 0;
  setitimer(ITIMER_REAL, &soon, NULL);
}

#define UNTIL_IT_COMES(what, call) \
  do { \
    set_timer(); \
    while (!came) call; \
    puts(what); \
  } while (0)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

/* Two threads hand a turn to each other: they wait, but never for anything outside. */
static void *hand_over(void *argument) {
  int own = argument != NULL;
  pthread_mutex_lock(&lock);
  while (!came) {
    while (turn != own && !came) pthread_cond_wait(&turned, &lock);
    turn = !own;
    pthread_cond_broadcast(&turned);
  }
  /* The other one may wait already when this one comes too late for a first turn. */
  pthread_cond_broadcast(&turned);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void *yield(void *argument) {
  (void)argument;
  while (!came) sched_yield();
  return NULL;
}

static void two_threads(const char *what, void *(*work)(void *)) {
  pthread_t threads[2];
  set_timer();
  for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  puts(what);
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = note;
  sigaction(SIGALRM, &action, NULL);
  page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  UNTIL_IT_COMES("yield", sched_yield());
  UNTIL_IT_COMES("thread", syscall(SYS_gettid));
  UNTIL_IT_COMES("parent", syscall(SYS_getppid));
  UNTIL_IT_COMES("user", syscall(SYS_getuid));
  UNTIL_IT_COMES("memory", mprotect(page, 4096, PROT_READ));
  UNTIL_IT_COMES("mask", sigprocmask(SIG_BLOCK, NULL, NULL));
  UNTIL_IT_COMES("wake", syscall(SYS_futex, page, 1, 1, NULL, NULL, 0));
  two_threads("yields", yield);
  two_threads("turns", hand_over);
  return 0;
}

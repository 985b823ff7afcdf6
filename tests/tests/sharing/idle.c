// A process that waits in an empty loop, which holds no instruction that a jump could replace, for
// a signal: others that share memory with it go on, and it hears of its timer.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), exit(1)))

static volatile int *told;

static void rings(int signal) {
  *told = signal;
  _exit(7);
}

static pid_t idle(void (*before)(void)) {
  *told = 0;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child > 0) return child;
  before();
  for (;;) {
  }
}

static void tells(void) { *told = 1; }

static void sets_a_timer(void) {
  struct itimerval soon = {{0, 0}, {0, 20000}};
  signal(SIGALRM, rings);
  setitimer(ITIMER_REAL, &soon, NULL);
}

int main(void) {
  told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(told != MAP_FAILED);
  int status;
  pid_t child = idle(tells);
  while (!*told) usleep(1000);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
  printf("killed by %d\n", WTERMSIG(status));
  child = idle(sets_a_timer);
  CHECK(waitpid(child, &status, 0) == child);
  printf("ended with %d after signal %d\n", WEXITSTATUS(status), *told);
  return 0;
}

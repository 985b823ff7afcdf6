// A child that ends while a thread waits for it is what the wait finds, whatever signal tells of the
// end and whatever its handler says.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), exit(1)))

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t heard;

static void *waits(void *nothing) {
  pthread_mutex_lock(&held);
  return nothing;
}

static void hears(int signal) {
  (void)signal;
  heard++;
}

static int ends(void *status) {
  usleep(2000);
  _exit(*(int *)status);
}

int main(void) {
  static char stack[65536];
  struct sigaction action = {.sa_handler = hears};
  CHECK(sigaction(SIGCHLD, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
  pthread_t thread;
  pthread_mutex_lock(&held);
  CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
  for (int i = 0; i < 20; i++) {
    int end = i % 2 ? SIGCHLD : SIGUSR2, status;
    pid_t child = clone(ends, stack + sizeof stack, end, &i);
    CHECK(child > 0);
    pid_t found = waitpid(child, &status, __WALL);
    if (found != child) printf("%d: %s\n", i, strerror(errno));
    CHECK(found == child && WIFEXITED(status) && WEXITSTATUS(status) == i);
  }
  printf("all found, %d heard\n", heard);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (;;) {
      kill(getppid(), SIGUSR2);
      usleep(1000);
    }
  }
  CHECK(waitpid(child, NULL, 0) == -1);
  printf("another signal: %s\n", strerror(errno));
  kill(child, SIGKILL);
  while (waitpid(child, NULL, 0) != child) CHECK(errno == EINTR);
  pthread_mutex_unlock(&held);
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}

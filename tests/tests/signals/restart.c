/* A handler that has calls go on: reading does, polls end nevertheless. The signals come as long as
 * it takes, since each may come just before the call. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

static int ends[2];
static volatile sig_atomic_t came, enough;

static void note(int signal) {
  (void)signal;
  if (++came == enough && write(ends[1], "x", 1) != 1) _exit(1);
}

static void tell(const char *what, long result, int error) {
  int interrupted = result < 0 && error == EINTR;
  printf("%s: %ld%s\n", what, result, interrupted ? ", interrupted" : "");
}

static pid_t start_sender(void) {
  pid_t child = fork();
  if (child == 0) {
    for (;;) {
      usleep(20000);
      if (kill(getppid(), SIGUSR1) != 0) _exit(1);
    }
  }
  return child;
}

int main(void) {
  struct sigaction action;
  char c;
  memset(&action, 0, sizeof action);
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, NULL);
  if (pipe(ends) != 0) return 1;
  struct pollfd one = {.fd = ends[0], .events = POLLIN};
  struct epoll_event event = {.events = EPOLLIN};
  int set = epoll_create1(0);
  epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event);
  pid_t sender = start_sender();
  long result = poll(&one, 1, -1);
  tell("poll", result, errno);
  result = epoll_wait(set, &event, 1, -1);
  tell("epoll", result, errno);
  came = 0;
  enough = 3;
  result = read(ends[0], &c, 1);
  tell("read", result, errno);
  kill(sender, SIGKILL);
  waitpid(sender, NULL, 0);
  return 0;
}

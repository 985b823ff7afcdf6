// Orphans go to the nearest ancestor that takes them in (PR_SET_CHILD_SUBREAPER).
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int gate[2], told[2];

static void open_pipes(void) { pipe(gate), pipe(told); }

static void close_pipes(void) {
  for (int end = 0; end < 2; end++) close(gate[end]), close(told[end]);
}

static int is_subreaper(void) {
  int is = -1;
  prctl(PR_GET_CHILD_SUBREAPER, &is);
  return is;
}

// A child makes an orphan, which waits for the gate and then ends with this status.
static pid_t orphan(int status) {
  pid_t own;
  char byte;
  pid_t child = fork();
  if (!child) {
    if (!fork()) {
      pid_t first = getppid();
      write(told[1], &first, sizeof first);
      read(gate[0], &byte, 1);
      own = getppid();
      write(told[1], &own, sizeof own);
      _exit(status);
    }
    read(told[0], &own, sizeof own);
    _exit(own == getpid() ? 1 : 2);
  }
  return child;
}

static void await_all(const char *when) {
  int status, count = 0;
  while (waitpid(-1, &status, 0) > 0) printf("%s: %d\n", when, WEXITSTATUS(status)), count++;
  printf("%s: %d, then %s\n", when, count, strerrorname_np(errno));
}

static void takes_in(void) {
  int status;
  pid_t parent;
  open_pipes();
  pid_t child = orphan(7);
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
  printf("running %d\n", waitpid(-1, &status, WNOHANG));
  write(gate[1], "g", 1);
  read(told[0], &parent, sizeof parent);
  printf("parent is %s\n", parent == getpid() ? "this one" : "another");
  await_all("adopted");
  close_pipes();
}

// The nearest one that lives: of three generations the middle one ends, too.
static void nearest(void) {
  int status;
  open_pipes();
  pid_t middle = fork();
  if (!middle) {
    printf("inherited %d\n", is_subreaper());
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t child = orphan(9), parent;
    waitpid(child, 0, 0);
    fflush(stdout);
    _exit(5);
  }
  waitpid(middle, &status, 0);
  printf("middle %d\n", WEXITSTATUS(status));
  write(gate[1], "g", 1);
  await_all("passed on");
  close_pipes();
}

// One that had ended before its parent did is told of again.
static void zombies(void) {
  siginfo_t info;
  struct timespec longest = {20, 0};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigtimedwait(&set, &info, &(struct timespec){0, 0});
  pid_t middle = fork();
  if (!middle) {
    pid_t child = fork();
    if (!child) _exit(3);
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    _exit(4);
  }
  waitpid(middle, 0, 0);
  while (sigtimedwait(&set, &info, &longest) == SIGCHLD && info.si_status != 3) continue;
  printf("told %d %d\n", info.si_code, info.si_status);
  await_all("zombie");
}

static void unawaited(void) {
  int status;
  open_pipes();
  signal(SIGCHLD, SIG_IGN);
  orphan(11);
  write(gate[1], "g", 1);
  await_all("unawaited");
  signal(SIGCHLD, SIG_DFL);
  close_pipes();
}

static void stopped(void) {
  int status;
  pid_t orphan;
  open_pipes();
  pid_t child = fork();
  if (!child) {
    pid_t own = fork();
    if (!own) {
      pause();
      _exit(1);
    }
    write(told[1], &own, sizeof own);
    _exit(0);
  }
  waitpid(child, 0, 0);
  read(told[0], &orphan, sizeof orphan);
  kill(orphan, SIGSTOP);
  printf("stop: %d %x\n", waitpid(orphan, &status, WUNTRACED) == orphan, status);
  kill(orphan, SIGCONT);
  printf("go on: %d %x\n", waitpid(orphan, &status, WCONTINUED) == orphan, status);
  kill(orphan, SIGKILL);
  await_all("killed");
  close_pipes();
}

int main(int count, char **arguments) {
  sigset_t set;
  setvbuf(stdout, 0, _IOLBF, 0);
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, 0);
  if (count > 1) {
    printf("after exec %d\n", is_subreaper());
    takes_in();
    printf("off %d", prctl(PR_SET_CHILD_SUBREAPER, 0));
    printf(" %d\n", is_subreaper());
    return 0;
  }
  printf("at first %d\n", is_subreaper());
  printf("on %d", prctl(PR_SET_CHILD_SUBREAPER, 5));
  printf(" %d\n", is_subreaper());
  printf("bad %d", prctl(PR_GET_CHILD_SUBREAPER, 8));
  printf(" %s\n", strerrorname_np(errno));
  for (int round = 0; round < 3; round++) takes_in();
  nearest();
  zombies();
  unawaited();
  stopped();
  fflush(stdout);
  execl("/proc/self/exe", "reapers", "again", NULL);
}

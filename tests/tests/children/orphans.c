// The signal that a process wants when its parent ends (PR_SET_PDEATHSIG).
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int ready[2], told[2];

static void say(const char *what) { write(told[1], what, strlen(what)); }

static void is_ready(void) { write(ready[1], "r", 1); }

/* Waits for the signal; without one the alarm ends it, and nothing is said. */
static void expect(pid_t parent) {
  sigset_t set;
  siginfo_t info;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  alarm(20);
  is_ready();
  if (sigwaitinfo(&set, &info) != SIGUSR1) return;
  say(info.si_code == SI_USER && info.si_pid == parent && info.si_uid == getuid()
          ? "orphan: signal of its parent\n" : "orphan: strange signal\n");
  say(getppid() == parent ? "parent there\n" : "parent gone\n");
}

static void wants(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  expect(parent);
}

static void executes(pid_t parent) {
  char number[3][16];
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  sprintf(number[0], "%d", parent);
  sprintf(number[1], "%d", ready[1]);
  sprintf(number[2], "%d", told[1]);
  execl("/proc/self/exe", "orphans", number[0], number[1], number[2], NULL);
}

/* Nobody is told at its end: what it says first it says after its parent's end. */
static void changed_its_mind(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_PDEATHSIG, 0);
  is_ready();
  while (getppid() == parent) usleep(1000);
  say("orphan: lives on\n");
}

/* A child does not inherit the wish. */
static void has_a_child(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!fork()) {
    int now = -1;
    prctl(PR_GET_PDEATHSIG, &now);
    pid_t own = getppid();
    is_ready();
    while (getppid() == own) usleep(1000);
    say(now == 0 ? "grandchild: lives on\n" : "grandchild: inherited\n");
    _exit(0);
  }
  pause();
}

static void is_killed(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  alarm(20);
  is_ready();
  pause();
}

static void family(const char *name, void (*orphan)(pid_t), int sudden) {
  char text[256];
  int status;
  pipe(ready), pipe(told);
  printf("%s\n", name);
  fflush(stdout);
  pid_t parent = fork();
  if (!parent) {
    pid_t own = getpid();
    if (!fork()) {
      orphan(own);
      _exit(0);
    }
    read(ready[0], text, 1);
    if (sudden) kill(own, SIGKILL);
    _exit(3);
  }
  close(told[1]);
  close(ready[1]);
  waitpid(parent, &status, 0);
  printf("parent %x\n", status);
  for (long got; (got = read(told[0], text, sizeof text)) > 0;) printf("%.*s", (int)got, text);
  close(told[0]);
  close(ready[0]);
  fflush(stdout);
}

int main(int argc, char **argv) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, NULL);
  if (argc > 1) {
    ready[1] = atoi(argv[2]), told[1] = atoi(argv[3]);
    expect(atoi(argv[1]));
    return 0;
  }
  family("wants it", wants, 0);
  family("wants it, parent killed", wants, 1);
  family("after an exec", executes, 0);
  family("changed its mind", changed_its_mind, 0);
  family("has a child", has_a_child, 0);
  family("is killed by it", is_killed, 0);
  return 0;
}

// Children whose end is told by another signal than SIGCHLD, or by none, and who awaits them.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *outcome(long result) {
  return result < 0 ? strerrorname_np(errno) : result ? "child" : "none";
}

static pid_t child_with(uint64_t signal, int old) {
  struct clone_args wish = {.exit_signal = signal};
  fflush(stdout);
  return old ? syscall(SYS_clone, signal, 0, 0, 0, 0) : syscall(SYS_clone3, &wish, sizeof wish);
}

static void hear(const char *what) {
  siginfo_t info;
  sigset_t all;
  struct timespec now = {0, 0};
  sigfillset(&all);
  while (sigtimedwait(&all, &info, &now) > 0)
    printf("%s: signal %d, code %d, status %d\n", what, info.si_signo, info.si_code, info.si_status);
}

// Awaits the child in every manner in turn.
static void end_with(uint64_t signal, int old) {
  int status = 0;
  siginfo_t info;
  char what[32];
  snprintf(what, sizeof what, "%s %lu", old ? "clone" : "clone3", signal);
  pid_t child = child_with(signal, old);
  if (!child) _exit(3);
  if (child < 0) {
    printf("%s: %s\n", what, outcome(child));
    return;
  }
  waitid(P_ALL, 0, &info, WEXITED | WNOWAIT | __WALL);
  printf("%s: signo %d, code %d\n", what, info.si_signo, info.si_code);
  hear(what);
  printf("plain: %s\n", outcome(waitpid(-1, &status, WNOHANG)));
  if (signal == SIGCHLD) return;
  printf("one plain: %s\n", outcome(waitpid(child, &status, WNOHANG)));
  printf("clone: %s", outcome(waitpid(-1, &status, __WCLONE)));
  printf(" %x\n", status);
  printf("all: %s\n", outcome(waitpid(-1, &status, __WALL)));
}

// A program that is executed makes it an ordinary child.
static void executes(void) {
  int status;
  pid_t child = child_with(SIGUSR1, 0);
  if (!child) {
    execl("/bin/true", "true", NULL);
    _exit(1);
  }
  waitpid(child, &status, __WALL);
  printf("executed %x\n", status);
  hear("executed");
}

// Nobody who ignores SIGCHLD is rid of it.
static void ignored(uint64_t signal) {
  int status;
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_IGN}, 0);
  pid_t child = child_with(signal, 0);
  if (!child) _exit(6);
  long got = waitpid(child, &status, __WALL);
  printf("ignored %lu: %s %x\n", signal, outcome(got), got > 0 ? status : 0);
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, 0);
  hear("ignored");
}

// Whoever executes a program forgets what it wanted to be told by.
static void forgets(void) {
  char byte, number[16];
  int gate[2];
  pipe(gate);
  if (!child_with(SIGUSR2, 0)) {
    close(gate[1]);
    read(gate[0], &byte, 1);
    _exit(8);
  }
  snprintf(number, sizeof number, "%d", gate[1]);
  execl("/proc/self/exe", "farewells", number, NULL);
}

static void again(int gate) {
  int status;
  siginfo_t info;
  sigset_t all;
  close(gate);
  sigfillset(&all);
  printf("told by %d\n", sigwaitinfo(&all, &info));
  printf("plain: %s\n", outcome(waitpid(-1, &status, WNOHANG)));
  printf("clone: %s\n", outcome(waitpid(-1, &status, __WCLONE)));
}

int main(int count, char **arguments) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, 0);
  setvbuf(stdout, 0, _IOLBF, 0);
  if (count > 1) return again(atoi(arguments[1])), 0;
  uint64_t signals[] = {SIGUSR1, 0, SIGRTMIN + 2, SIGCHLD, SIGCONT, 65, 100, 256, -1ul};
  for (int at = 0; at < sizeof signals / sizeof *signals; at++) {
    end_with(signals[at], 0);
    if (signals[at] < 256) end_with(signals[at], 1);
  }
  for (unsigned bit = 0; bit < 32; bit++) {
    unsigned options = 1u << bit | WNOHANG;
    printf("options %u: %s", bit, outcome(waitpid(-1, 0, options)));
    printf(" %s\n", outcome(waitid(P_ALL, 0, 0, options | WEXITED)));
  }
  printf("least %s\n", outcome(waitpid(1 << 31, 0, WNOHANG)));
  printf("none %s\n", outcome(waitid(P_PID, 0, 0, WEXITED)));
  printf("below %s\n", outcome(waitid(P_PGID, -1, 0, WEXITED)));
  executes();
  ignored(SIGUSR1);
  ignored(0);
  ignored(SIGCHLD);
  forgets();
}

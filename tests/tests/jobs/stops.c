// Stops and continuations of children, as `wait4`, `waitid` and SIGCHLD tell of them.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t told;
static volatile sig_atomic_t code;

static void on_child(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  told++;
  code = info->si_code;
}

static void listen_for(int flags) {
  struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | flags};
  sigaction(SIGCHLD, &action, 0);
  told = 0;
}

static void await(pid_t child, int options, const char *what) {
  int status = 0;
  pid_t found;
  do found = waitpid(child, &status, options);
  while (found < 0 && errno == EINTR);
  printf("%s: %s status %#x\n", what, found == child ? "child" : "other", status);
}

static void by_info(pid_t child, int options, const char *what) {
  siginfo_t info = {0};
  int result;
  do result = waitid(P_PID, child, &info, options);
  while (result < 0 && errno == EINTR);
  printf("%s: %d %s code %d status %d\n", what, result, info.si_pid == child ? "child" : "other",
         info.si_code, info.si_status);
}

static volatile sig_atomic_t continued;
static void on_continue(int number) { (void)number, continued++; }

// Stops itself in several ways.
static void child(void) {
  // A group of its own, which its parent can continue.
  setpgid(0, 0);
  signal(SIGCONT, on_continue);
  raise(SIGSTOP);
  kill(getpid(), SIGTSTP);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTTIN);
  sigprocmask(SIG_BLOCK, &set, 0);
  raise(SIGTTIN);
  // Only now.
  sigprocmask(SIG_UNBLOCK, &set, 0);
  // Both pending: the later one takes the earlier one away.
  sigaddset(&set, SIGCONT);
  sigprocmask(SIG_BLOCK, &set, 0);
  raise(SIGTTIN);
  raise(SIGCONT);
  sigset_t pending;
  sigpending(&pending);
  int left = sigismember(&pending, SIGTTIN);
  sigprocmask(SIG_UNBLOCK, &set, 0);
  _exit(left ? 90 : continued);
}

// Computes without a system call.
static void busy(void) {
  for (volatile long i = 0;; i++) continue;
}

int main(void) {
  listen_for(0);
  pid_t self = fork();
  if (!self) child();
  await(self, WUNTRACED, "SIGSTOP");
  printf("nothing more: %d\n", waitpid(self, 0, WUNTRACED | WNOHANG));
  kill(self, SIGCONT);
  await(self, WUNTRACED, "SIGTSTP");
  by_info(self, WSTOPPED | WNOWAIT | WNOHANG, "told already");
  kill(self, SIGCONT);
  by_info(self, WSTOPPED | WNOWAIT, "kept");
  by_info(self, WSTOPPED, "taken");
  printf("SIGCHLD %d\n", told > 0 && (code == CLD_STOPPED || code == CLD_CONTINUED));
  kill(self, SIGCONT);
  await(self, 0, "end");

  listen_for(SA_NOCLDSTOP);
  pid_t loop = fork();
  if (!loop) busy();
  setpgid(loop, loop);
  kill(loop, SIGSTOP);
  await(loop, WUNTRACED, "busy, stopped");
  kill(loop, SIGCONT);
  await(loop, WCONTINUED, "busy, continued");
  kill(loop, SIGTSTP);
  by_info(loop, WSTOPPED, "busy, stopped");
  kill(loop, SIGCONT);
  by_info(loop, WCONTINUED, "busy, continued");
  kill(loop, SIGSTOP);
  await(loop, WUNTRACED, "busy, stopped");
  // Waits until it goes on, which it never does: SIGKILL does not wait.
  kill(loop, SIGTERM);
  printf("not yet: %d\n", waitpid(loop, 0, WNOHANG));
  printf("not a word: %d\n", told);
  kill(loop, SIGKILL);
  await(loop, 0, "killed");

  pid_t held = fork();
  if (!held) for (;;) pause();
  kill(held, SIGSTOP);
  await(held, WUNTRACED, "held");
  kill(held, SIGTERM);
  kill(held, SIGCONT);
  await(held, 0, "terminated then");
  return 0;
}

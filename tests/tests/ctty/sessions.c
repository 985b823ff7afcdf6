// Sessions on terminals that the program makes: how they get one, what it sends, how they lose it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int log_end, master, slave;
static char name[64];

static void say(const char *text) {
  char line[200];
  int bytes = snprintf(line, sizeof line, "%s\n", text);
  if (write(log_end, line, bytes) != bytes) _exit(99);
}
static void tell(const char *what, long result) {
  char line[150];
  snprintf(line, sizeof line, "%s: %s", what, result < 0 ? strerror(errno) : "done");
  say(line);
}
static void tell_number(const char *what, long number) {
  char line[150];
  snprintf(line, sizeof line, "%s: %ld", what, number);
  say(line);
}

static void take_signals(sigset_t *set) {
  sigemptyset(set);
  int all[] = {SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT, SIGTTIN};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) sigaddset(set, all[i]);
  sigprocmask(SIG_BLOCK, set, 0);
}
// Signals of the terminal, one after the other.
static void hear(const char *who, const sigset_t *set, int count) {
  while (count--) {
    siginfo_t info;
    int number = sigwaitinfo(set, &info);
    char line[100];
    snprintf(line, sizeof line, "%s: %d by the kernel %d", who, number, info.si_code == SI_KERNEL);
    say(line);
  }
}

static int open_own(void) { return open("/dev/tty", O_RDWR | O_CLOEXEC); }
static void close_fd(int fd) {
  if (fd >= 0) close(fd);
}

static pid_t begin(void (*work)(void)) {
  pid_t child = fork();
  if (!child) {
    work();
    _exit(0);
  }
  return child;
}
static void await_end(const char *who, pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child) status = -1;
  char line[100];
  snprintf(line, sizeof line, "%s ended: %#x", who, status);
  say(line);
}
static void in_child(const char *who, void (*work)(void)) { await_end(who, begin(work)); }

// From a process to the one that made it, and from one that is left behind to the first.
static int steps[2], last_steps[2];
static void step(const int *pipe) {
  if (write(pipe[1], "", 1) != 1) _exit(98);
}
static void await_step(const int *pipe) {
  char byte;
  if (read(pipe[0], &byte, 1) != 1) _exit(97);
}

static void other_session(void) {
  setsid();
  tell("another session takes it", ioctl(slave, TIOCSCTTY, 0));
  tell("another session asks whose it is", tcgetsid(slave));
}
static void member_leaves(void) {
  tell("a member opens it", open_own());
  tell("a member takes it", ioctl(slave, TIOCSCTTY, 0));
  tell("a member leaves it", ioctl(slave, TIOCNOTTY));
  tell("one without leaves it", ioctl(slave, TIOCNOTTY));
  tell("one without opens it", open_own());
  tell("one without asks for the foreground", tcgetpgrp(slave));
}
static void asks(void) {
  tell("no leader takes it", ioctl(slave, TIOCSCTTY, 0));
  setsid();
  tell("without a terminal", open_own());
  int pipes[2];
  if (pipe(pipes)) _exit(96);
  tell("a pipe", ioctl(pipes[0], TIOCSCTTY, 0));
  tell("a closed one", ioctl(99, TIOCSCTTY, 0));
  tell("takes it", ioctl(slave, TIOCSCTTY, 0));
  tell("takes it again", ioctl(slave, TIOCSCTTY, 0));
  int tty = open_own();
  tell_number("session", tcgetsid(tty) == getpid());
  tell_number("foreground", tcgetpgrp(tty) == getpgrp());
  tell_number("by the other end", tcgetpgrp(master) == getpgrp() && tcgetsid(master) == getsid(0));
  tell_number("a terminal", isatty(tty));
  int second_master, second;
  if (openpty(&second_master, &second, 0, 0, 0)) _exit(95);
  tell("takes a second one", ioctl(second, TIOCSCTTY, 0));
  tell("asks for that one's foreground", tcgetpgrp(second));
  tell("sets that one's foreground", tcsetpgrp(second, getpgrp()));
  in_child("a session", other_session);
  in_child("a member", member_leaves);
  tell("still there", open_own());
}

static void opens(void) {
  setsid();
  close_fd(open(name, O_RDWR | O_NOCTTY));
  tell("opened for others", open_own());
  close_fd(open(name, O_WRONLY));
  tell("opened for writing", open_own());
  int fd = open(name, O_RDWR);
  tell("opened", open_own());
  tell_number("session", tcgetsid(fd) == getpid());
}

static void listens(void) {
  sigset_t set;
  take_signals(&set);
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);
  tcsetpgrp(slave, getpgrp());
  step(steps);
  for (int i = 0; i < 4; i++) hear("foreground", &set, 1), step(steps);
  signal(SIGTTOU, SIG_IGN);
  tcsetpgrp(slave, getppid());
}
static void reads(void) {
  sigset_t set;
  setpgid(0, 0);
  char byte;
  signal(SIGTTIN, SIG_IGN);
  tell("reads in the background", read(slave, &byte, 1));
  signal(SIGTTIN, SIG_DFL);
  take_signals(&set);
  tell("reads in the background", read(slave, &byte, 1));
}
static void sends(void) {
  setsid();
  ioctl(slave, TIOCSCTTY, 0);
  sigset_t set;
  take_signals(&set);
  pid_t child = begin(listens);
  await_step(steps);
  const char *keys[] = {"\x03", "\x1c", "\x1a"};
  for (int i = 0; i < 3; i++) {
    if (write(master, keys[i], 1) != 1) _exit(94);
    await_step(steps);
  }
  struct winsize size = {.ws_row = 33, .ws_col = 77};
  ioctl(master, TIOCSWINSZ, &size);
  await_step(steps);
  await_end("foreground", child);
  sigset_t pending;
  sigpending(&pending);
  tell_number("nothing for the leader", !sigismember(&pending, SIGINT));
  in_child("background", reads);
}

static void in_front(void) {
  sigset_t set;
  take_signals(&set);
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);
  tcsetpgrp(slave, getpgrp());
  step(steps);
  hear("in front", &set, 2);
  tell("opens it", open_own());
}
static void gives_up(void) {
  setsid();
  ioctl(slave, TIOCSCTTY, 0);
  pid_t child = begin(in_front);
  await_step(steps);
  int left = ioctl(slave, TIOCNOTTY);
  await_end("in front", child);
  tell_number("left", left);
  tell("opens it", open_own());
  tell("takes it anew", ioctl(slave, TIOCSCTTY, 0));
}

static int signals;
static void left_behind(void) {
  sigset_t set;
  close(master);
  take_signals(&set);
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);
  tcsetpgrp(slave, getpgrp());
  step(steps);
  hear("left behind", &set, signals);
  step(last_steps);
}
static void ends(void) {
  setsid();
  ioctl(slave, TIOCSCTTY, 0);
  begin(left_behind);
  await_step(steps);
}
static void is_hung_up(void) {
  setsid();
  ioctl(slave, TIOCSCTTY, 0);
  sigset_t set;
  take_signals(&set);
  begin(left_behind);
  await_step(steps);
  close(master);
  step(last_steps);
  hear("leader", &set, 2);
  tell("opens it", open_own());
  char byte;
  tell_number("reads", read(slave, &byte, 1));
}

static void open_terminal(void) {
  if (openpty(&master, &slave, name, 0, 0)) _exit(93);
}
static void close_terminal(void) {
  close(master), close(slave);
}

int main(void) {
  int pipes[2];
  if (pipe(pipes) || pipe(steps) || pipe(last_steps)) return 1;
  if (!fork()) {
    close(pipes[0]);
    log_end = pipes[1];
    open_terminal();
    in_child("asking", asks);
    close_terminal(), open_terminal();
    in_child("opening", opens);
    close_terminal(), open_terminal();
    in_child("sending", sends);
    close_terminal(), open_terminal();
    in_child("giving up", gives_up);
    close_terminal(), open_terminal();
    signals = 1;
    pid_t child = begin(ends);
    await_step(last_steps);
    await_end("ending", child);
    close_terminal(), open_terminal();
    signals = 2;
    child = begin(is_hung_up);
    // The other end is open here, too, until the session is there.
    await_step(last_steps);
    close(master);
    await_step(last_steps);
    await_end("hung up", child);
    close(slave);
    // A terminal that a session has had is at its end for the other end once all have closed it.
    open_terminal();
    signals = 1;
    child = begin(ends);
    close(slave);
    await_step(last_steps);
    await_end("closing", child);
    char byte;
    tell("nothing more", read(master, &byte, 1));
    _exit(0);
  }
  // All who could write are gone when the pipe ends.
  close(pipes[1]);
  char text[4096];
  ssize_t got;
  while ((got = read(pipes[0], text, sizeof text)) > 0)
    if (write(1, text, got) != got) return 2;
  return 0;
}

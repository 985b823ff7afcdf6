// What a terminal's foreground group is to the programs of its session.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static const char *what(long result) { return result < 0 ? strerror(errno) : "done"; }

static int wait_for(pid_t child) {
  int status;
  waitpid(child, &status, WUNTRACED);
  return status;
}

// Runs `work` in a process group of its own, in the background, and tells what comes of it.
static void behind(const char *name, int (*work)(void), void (*before)(void)) {
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    setpgid(0, 0);
    if (before) before();
    errno = 0;
    _exit(work());
  }
  int status = wait_for(child);
  if (WIFSTOPPED(status)) {
    printf("%s: stopped by %d\n", name, WSTOPSIG(status));
    tcsetpgrp(0, child);
    kill(child, SIGCONT);
    status = wait_for(child);
    signal(SIGTTOU, SIG_IGN);
    tcsetpgrp(0, getpid());
    signal(SIGTTOU, SIG_DFL);
  }
  printf("%s: %#x\n", name, status);
}

static int reads(void) {
  char byte;
  return read(0, &byte, 1) == 1 ? byte : errno;
}
static int writes(void) { return write(1, "x\n", 2) == 2 ? 2 : errno; }
static int sets(void) {
  struct termios settings;
  tcgetattr(0, &settings);
  return tcsetattr(0, TCSADRAIN, &settings) ? errno : 3;
}
static int takes(void) { return tcsetpgrp(0, getpid()) ? errno : 4; }
static void ignore(void) { signal(SIGTTIN, SIG_IGN), signal(SIGTTOU, SIG_IGN); }
static volatile sig_atomic_t handled;
static void on(int number) { handled = number; }
static int reads_handled(void) {
  struct sigaction action = {.sa_handler = on};
  sigaction(SIGTTIN, &action, 0);
  char byte;
  long got = read(0, &byte, 1);
  return got < 0 && errno == EINTR && handled == SIGTTIN ? 5 : 6;
}

static int go[2];
static int by_orphan(void) {
  pid_t child = fork();
  if (!child) {
    // In a group of its own, whose parent is gone, so that nobody could continue it.
    setpgid(0, 0);
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    while (getppid() != 1) usleep(100);
    long got = read(0, &byte, 1);
    printf("an orphan reads: %s\n", what(got));
    fflush(stdout);
    _exit(0);
  }
  return 0;
}

int main(void) {
  // What is typed shall not be seen in between.
  struct termios settings;
  tcgetattr(0, &settings);
  settings.c_lflag &= ~ECHO;
  tcsetattr(0, TCSANOW, &settings);
  printf("own %d, session %d\n", tcgetpgrp(0) == getpgrp(), tcgetsid(0) == getsid(0));
  fflush(stdout);
  int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
  printf("by name %d\n", tcgetpgrp(tty) == getpgrp());
  printf("nobody's: %s\n", what(tcsetpgrp(0, 0x3ffff0)));
  printf("negative: %s\n", what(tcsetpgrp(0, -5)));
  int pipes[2];
  if (pipe(pipes) || pipe(go)) return 1;
  printf("a pipe's: %s\n", what(tcgetpgrp(pipes[0])));
  printf("a pipe's: %s\n", what(tcsetpgrp(pipes[0], getpgrp())));
  printf("a closed one's: %s\n", what(tcsetpgrp(99, getpgrp())));
  behind("reads", reads, 0);
  behind("reads, ignoring", reads, ignore);
  behind("reads, handling", reads_handled, 0);
  behind("writes", writes, 0);
  behind("sets", sets, 0);
  behind("sets, ignoring", sets, ignore);
  behind("takes", takes, 0);
  signal(SIGTTOU, SIG_IGN);
  behind("takes, ignoring", takes, ignore);
  printf("now another's: %d\n", tcgetpgrp(0) != getpgrp());
  tcsetpgrp(0, getpgrp());
  settings.c_lflag |= TOSTOP;
  tcsetattr(0, TCSANOW, &settings);
  signal(SIGTTOU, SIG_DFL);
  behind("writes", writes, 0);
  settings.c_lflag &= ~TOSTOP;
  tcsetattr(0, TCSANOW, &settings);
  behind("leaves", by_orphan, 0);
  fflush(stdout);
  if (write(go[1], "", 1) != 1) return 2;
  // All who could write are gone when the pipe ends.
  close(pipes[1]);
  char byte;
  while (read(pipes[0], &byte, 1) > 0) continue;
  printf("end\n");
  return 0;
}

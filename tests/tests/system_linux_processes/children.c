/* Makes children in several ways, and tells what they and their maker see of each other. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int word = 5;
static volatile sig_atomic_t told;

static void on_child(int signal) { told += signal == SIGCHLD; }

/* Waits for a child: how it ended. */
static int ending(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child) return -errno;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void memory_and_pipe(void) {
  int ends[2];
  char text[16] = "";
  if (pipe(ends)) return;
  pid_t child = fork();
  if (!child) {
    word = 9;
    close(ends[0]);
    if (write(ends[1], "hello", 5) != 5) _exit(1);
    _exit(word);
  }
  close(ends[1]);
  size_t count = 0;
  ssize_t got;
  while ((got = read(ends[0], text + count, sizeof text - 1 - count)) > 0) count += got;
  close(ends[0]);
  printf("pipe %s, child %d, here %d\n", text, ending(child), word);
}

static void family(void) {
  int ends[2];
  pid_t own = getpid(), seen[3] = {0};
  if (pipe(ends)) return;
  pid_t child = fork();
  if (!child) {
    pid_t here[3] = {getpid(), getppid(), getpgrp()};
    _exit(write(ends[1], here, sizeof here) != sizeof here);
  }
  if (read(ends[0], seen, sizeof seen) != sizeof seen) return;
  close(ends[0]), close(ends[1]);
  printf("numbers %d %d %d\n", seen[0] == child, seen[1] == own, seen[2] == getpgrp());
  int first = ending(child), then = ending(child);
  printf("ended %d, then %d\n", first, then);
}

static void signals(void) {
  signal(SIGCHLD, on_child);
  pid_t child = fork();
  if (!child) for (;;) pause();
  kill(child, SIGTERM);
  printf("killed %d\n", ending(child));
  printf("told %d, none %d\n", told > 0, kill(child, 0) && errno == ESRCH);
  signal(SIGCHLD, SIG_DFL);
}

static void many(void) {
  int wrong = 0;
  for (int i = 0; i < 60; i++) {
    pid_t child = fork();
    if (!child) _exit(i);
    wrong += ending(child) != i;
  }
  printf("sixty, %d wrong\n", wrong);
}

static void borrowed(void) {
  volatile int *place = &word;
  pid_t child = vfork();
  if (!child) {
    *place = 77;
    _exit(3);
  }
  printf("vfork %d, here %d\n", ending(child), word);
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  memory_and_pipe();
  family();
  signals();
  many();
  borrowed();
  return 0;
}

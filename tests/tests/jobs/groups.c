// Process groups that are stopped, and those that nobody can continue any more.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int pipes[2];
static void say(const char *text) {
  char line[100];
  int bytes = snprintf(line, sizeof line, "%s\n", text);
  if (write(pipes[1], line, bytes) != bytes) abort();
}

static void on_hangup(int number) { (void)number, say("hung up"); }
static void on_continue(int number) { (void)number, say("continued"); }

// A group of two, stopped and continued as one.
static void together(void) {
  pid_t members[2];
  for (int i = 0; i < 2; i++) {
    members[i] = fork();
    if (!members[i]) for (;;) pause();
    if (setpgid(members[i], members[0])) perror("setpgid");
  }
  kill(-members[0], SIGTSTP);
  for (int i = 0; i < 2; i++) {
    int status;
    waitpid(-members[0], &status, WUNTRACED);
    printf("stopped %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status));
  }
  kill(-members[0], SIGCONT);
  for (int i = 0; i < 2; i++) {
    int status;
    waitpid(-members[0], &status, WCONTINUED);
    printf("continued %d\n", WIFCONTINUED(status));
  }
  kill(-members[0], SIGTERM);
  for (int i = 0; i < 2; i++) {
    int status;
    waitpid(-members[0], &status, 0);
    printf("ended by %d\n", WTERMSIG(status));
  }
}

// The group of a grandchild becomes an orphan when its parent ends.
static void orphan(void) {
  pid_t middle = fork();
  if (!middle) {
    pid_t last = fork();
    if (!last) {
      setpgid(0, 0);
      signal(SIGHUP, on_hangup);
      signal(SIGCONT, on_continue);
      raise(SIGTSTP);
      // An orphan is stopped by nothing but SIGSTOP.
      raise(SIGTSTP);
      say("not stopped");
      _exit(0);
    }
    int status;
    waitpid(last, &status, WUNTRACED);
    _exit(WIFSTOPPED(status) ? 7 : 8);
  }
  int status;
  waitpid(middle, &status, 0);
  printf("middle %d\n", WEXITSTATUS(status));
  close(pipes[1]);
  char text[200];
  int sum = 0;
  for (int got; (got = read(pipes[0], text + sum, sizeof text - sum)) > 0;) sum += got;
  printf("%.*s", sum, text);
}

// Processes that share memory stop too, and only they.
static void sharing(void) {
  volatile int *shared =
      mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child = fork();
  if (!child) {
    setpgid(0, 0);
    *shared = 1;
    raise(SIGSTOP);
    *shared = 2;
    for (;;) {
      (*shared)++;
      usleep(100);
    }
  }
  int status;
  waitpid(child, &status, WUNTRACED);
  printf("shared %d, stopped by %d\n", *shared, WSTOPSIG(status));
  kill(child, SIGCONT);
  while (*shared < 5) usleep(100);
  kill(child, SIGTSTP);
  waitpid(child, &status, WUNTRACED);
  int before = *shared;
  for (int i = 0; i < 20; i++) usleep(100);
  printf("stopped by %d, stays %d\n", WSTOPSIG(status), before == *shared);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  printf("ended by %d\n", WTERMSIG(status));
}

// Children whose parent ends as soon as it has made them.
static void daemons(void) {
  int count = 0;
  for (int i = 0; i < 60; i++) {
    int line[2];
    if (pipe(line)) abort();
    pid_t middle = fork();
    if (!middle) {
      if (!fork() && write(line[1], "", 1) != 1) abort();
      _exit(0);
    }
    waitpid(middle, 0, 0);
    close(line[1]);
    char byte;
    count += read(line[0], &byte, 1) == 1;
    close(line[0]);
  }
  printf("daemons %d\n", count);
}

int main(void) {
  if (pipe(pipes)) return 1;
  setvbuf(stdout, 0, _IOLBF, 0);
  daemons();
  together();
  orphan();
  sharing();
  return 0;
}

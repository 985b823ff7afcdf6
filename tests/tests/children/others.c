// What a process finds out about other processes of the program.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// Prints a file of a process, zeros as spaces.
static void show(pid_t pid, const char *name) {
  char path[64], text[4096];
  sprintf(path, "/proc/%d/%s", pid, name);
  int fd = open(path, O_RDONLY);
  ssize_t length = read(fd, text, sizeof text);
  for (ssize_t i = 0; i < length; i++)
    if (!text[i]) text[i] = ' ';
  printf("%s: %.*s\n", name, (int)length, text);
  fflush(stdout);
  close(fd);
}

static void limit(const char *whose, pid_t pid) {
  struct rlimit seen = {0};
  int result = prlimit(pid, RLIMIT_NOFILE, 0, &seen);
  printf("%s %d %lu\n", whose, result, (unsigned long)seen.rlim_cur);
  fflush(stdout);
}

int main(int argc, char **argv) {
  (void)argc;
  if (!getenv("AGAIN")) {
    setenv("AGAIN", "yes", 1);
    execl(argv[0], argv[0], "an argument", "another", (char *)0);
  }
  struct rlimit mine = {77, 99};
  setrlimit(RLIMIT_NOFILE, &mine);
  int told[2], done[2];
  if (pipe(told) || pipe(done)) return 1;
  pid_t pid = fork();
  if (!pid) {
    struct rlimit less = {55, 66};
    setrlimit(RLIMIT_NOFILE, &less);
    limit("own", 0);
    limit("parent's", getppid());
    show(getppid(), "cmdline");
    show(getppid(), "comm");
    show(getppid(), "limits");
    char path[64], target[64] = "";
    sprintf(path, "/proc/%d/cwd", getppid());
    char *here = getcwd(0, 0);
    printf("cwd %d\n", readlink(path, target, 63) == (ssize_t)strlen(here) && !strcmp(target, here));
    fflush(stdout);
    close(told[1]);
    char byte;
    close(done[1]);
    _exit(read(done[0], &byte, 1) != 0);
  }
  char byte;
  close(told[1]);
  if (read(told[0], &byte, 1)) return 1;
  limit("child's", pid);
  show(pid, "cmdline");
  close(done[1]);
  int status;
  waitpid(pid, &status, 0);
  limit("nobody's", pid);
  printf("%d %d\n", errno == ESRCH, WEXITSTATUS(status));
  return 0;
}

// A file that a process executes is not written to, as long as it does.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *what, long result) {
  printf("%s: %s\n", what, result < 0 ? strerrorname_np(errno) : "done");
  if (result > 2) close(result);
}

static void copy(const char *to) {
  struct stat facts;
  int from = open("/proc/self/exe", O_RDONLY), file = open(to, O_CREAT | O_WRONLY, 0755);
  fstat(from, &facts);
  sendfile(file, from, 0, facts.st_size);
  close(from), close(file);
}

static void try_all(const char *path, const char *when) {
  struct open_how how = {.flags = O_RDWR};
  char link[] = "link";
  printf("%s, %s\n", path, when);
  tell("read", open(path, O_RDONLY));
  tell("write", open(path, O_WRONLY));
  tell("both", open(path, O_RDWR | O_APPEND));
  tell("create", open(path, O_RDWR | O_CREAT, 0600));
  tell("exclusive", open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
  tell("path", open(path, O_WRONLY | O_PATH));
  tell("folder", openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC));
  tell("described", syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
  symlink(path, link);
  tell("link", open(link, O_WRONLY));
  tell("link itself", open(link, O_WRONLY | O_NOFOLLOW));
  unlink(link);
  int folder = open(".", O_RDONLY);
  tell("at", openat(folder, path, O_WRONLY));
  tell("not there", openat(folder, "none", O_WRONLY));
  close(folder);
  tell("bad pointer", syscall(SYS_open, 8, O_WRONLY));
}

static void try_to_empty(const char *path) {
  struct stat facts;
  tell("truncate", truncate(path, 0));
  tell("open to empty", open(path, O_WRONLY | O_TRUNC));
  tell("read and empty", open(path, O_RDONLY | O_TRUNC));
  tell("creat", creat(path, 0700));
  stat(path, &facts);
  printf("%s\n", facts.st_size ? "whole" : "empty");
}

// Executes the copy, which waits until it may end.
static pid_t execute(const char *path, int gate[2]) {
  char byte;
  int ready[2];
  pipe(gate), pipe(ready);
  pid_t child = fork();
  if (!child) {
    dup2(gate[0], 0), dup2(ready[1], 1);
    for (int end = 0; end < 2; end++) close(gate[end]), close(ready[end]);
    execl(path, path, "wait", NULL);
    _exit(1);
  }
  close(gate[0]), close(ready[1]);
  read(ready[0], &byte, 1);
  close(ready[0]);
  return child;
}

int main(int count, char **arguments) {
  char byte;
  int gate[2];
  if (count > 1) {
    write(1, "r", 1);
    // Its own child executes the same file, though it has executed nothing itself.
    if (!fork()) {
      read(0, &byte, 1);
      _exit(0);
    }
    wait(0);
    return 0;
  }
  setvbuf(stdout, 0, _IOLBF, 0);
  chmod(".", 0755);
  copy("copy");
  chmod("copy", 0555);
  pid_t child = execute("./copy", gate);
  try_all("copy", "executed");
  try_to_empty("copy");
  tell("own", open("/proc/self/exe", O_RDWR));
  if (!fork()) {
    setresuid(1000, 1000, 1000);
    tell("forbidden", open("copy", O_WRONLY));
    tell("forbidden", truncate("copy", 0));
    _exit(0);
  }
  while (wait(0) != child) {
    if (gate[1] >= 0) close(gate[1]);
    gate[1] = -1;
  }
  chmod("copy", 0755);
  try_all("copy", "ended");
  tell("own again", open("written", O_WRONLY));
}

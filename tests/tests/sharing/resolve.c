// openat2: what must not be resolved is not, also where a path names the program's own process.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
  const char *name;
  unsigned long flag;
} ways[] = {
    {"freely", 0},
    {"no mounts", RESOLVE_NO_XDEV},
    {"no magic links", RESOLVE_NO_MAGICLINKS},
    {"no links", RESOLVE_NO_SYMLINKS},
    {"beneath", RESOLVE_BENEATH},
    {"in root", RESOLVE_IN_ROOT},
};

static void try(int dir, const char *path, const char *name, unsigned way) {
  for (; way < sizeof ways / sizeof *ways; way++) {
    struct open_how how = {.flags = O_RDONLY, .resolve = ways[way].flag};
    int fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    printf("%s, %s: %s\n", name, ways[way].name, fd < 0 ? strerrorname_np(errno) : "opened");
    if (fd >= 0) close(fd);
  }
}

int main(void) {
  char path[64];
  int here = open(".", O_PATH | O_DIRECTORY);
  const char *const files[] = {"exe", "root", "cwd", "stat", "status", "maps"};
  for (int i = 0; i < 6; i++) {
    snprintf(path, sizeof path, "/proc/self/%s", files[i]);
    try(here, path, path, 0);
    snprintf(path, sizeof path, "/proc/thread-self/%s", files[i]);
    try(here, path, path, 0);
    snprintf(path, sizeof path, "/proc/%d/%s", getpid(), files[i]);
    try(here, path, files[i], 0);
  }
  try(here, "/dev/tty", "terminal", 4);
  return 0;
}

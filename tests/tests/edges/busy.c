// A program that somebody has open for writing is not executed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *words[] = {"copy", "again", 0};

static void copy_to(int to, const char *name) {
  struct stat facts;
  int from = open(name, O_RDONLY);
  fstat(from, &facts);
  sendfile(to, from, 0, facts.st_size);
  close(from);
}

static void try(const char *path) {
  fflush(stdout);
  if (!fork()) {
    execv(path, words);
    printf("%s %s\n", path, strerrorname_np(errno));
    fflush(stdout);
    _exit(1);
  }
  wait(0);
}

int main(int count, char **arguments) {
  if (count > 1) return puts("executed") < 0;
  int copy = open("copy", O_CREAT | O_RDWR, 0755);
  copy_to(copy, "/proc/self/exe");
  try("./copy");
  close(copy);
  try("./copy");
  int script = open("script", O_CREAT | O_WRONLY, 0755);
  write(script, "#!./copy\n", 9);
  try("./script");
  close(script);
  try("./script");
  int memory = memfd_create("memory", MFD_CLOEXEC);
  copy_to(memory, "/proc/self/exe");
  fflush(stdout);
  fexecve(memory, words, environ);
  printf("memory %s\n", strerrorname_np(errno));
}

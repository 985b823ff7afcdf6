// Opens files that act on a process and are refused, and tells with what error.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **paths) {
  for (int i = 1; i < count; i++) {
    int fd = open(paths[i], O_WRONLY);
    printf("%s %d\n", paths[i], fd < 0 ? errno : 0);
    fd = open(paths[i], O_RDONLY);
    printf("read %d\n", fd >= 0);
    if (fd >= 0)
      close(fd);
  }
  // Of a parent: by its number, and by a descriptor that was opened before the fork.
  int inherited = open("/proc/self/oom_score_adj", O_RDWR);
  printf("own %d\n", inherited >= 0);
  fflush(stdout);
  if (fork() == 0) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", getppid());
    printf("mem of the parent %d\n", open(path, O_RDWR) < 0 ? errno : 0);
    printf("by descriptor %d\n", write(inherited, "300", 3) < 0 ? errno : 0);
    fflush(stdout);
    _exit(0);
  }
  wait(0);
  return 0;
}

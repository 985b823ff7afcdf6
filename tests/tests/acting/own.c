// Writes to each file of /proc that acts on the process itself, and tells what has come of it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int variable = 1;

static void text(const char *what, int fd) {
  char buffer[64] = { 0 };
  lseek(fd, 0, SEEK_SET);
  int got = read(fd, buffer, sizeof buffer - 1);
  printf("%s %d %s", what, got, buffer);
}

static int attribute(const char *path, const char *value) {
  int fd = open(path, O_RDWR);
  int got = write(fd, value, strlen(value));
  printf("%s %d %d ", path, got, got < 0 ? errno : 0);
  text("is", fd);
  close(fd);
  return got;
}

static void memory(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC), value = variable + 41, got = 0;
  printf("%s %zd", path, pwrite(fd, &value, 4, (off_t)&variable));
  printf(" is %d", variable);
  printf(" read %zd %d\n", pread(fd, &got, 4, (off_t)&variable), got);
  // At the position, in parts, onto memory that may only be read, beyond its end.
  char *page = mmap(0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page + 4096, 4096);
  struct iovec parts[] = { { "one ", 4 }, { "two ", 4 } };
  lseek(fd, (off_t)page, SEEK_SET);
  printf("%zd", writev(fd, parts, 2));
  printf(" %zd", write(fd, "three", 6));
  printf(" %s at %ld", page, (long)lseek(fd, 0, SEEK_CUR) - (long)page);
  printf(" end %zd", pwrite(fd, "abcdefgh", 8, (off_t)page + 4092));
  printf(" %.4s", page + 4092);
  printf(" hole %zd %d", pwrite(fd, "a", 1, (off_t)page + 4096), errno);
  printf(" from nowhere %zd %d\n", pwrite(fd, (char *)8, 4, (off_t)page), errno);
  munmap(page, 4096);
  // By another descriptor, which is opened by a link to the first.
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", dup(fd));
  int other = open(link, O_WRONLY);
  value = 7;
  printf("by a link %zd", pwrite(other, &value, 4, (off_t)&variable));
  printf(" is %d\n", variable);
  close(other);
  close(fd);
}

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  char path[64], name[17] = { 0 };
  memory("/proc/self/mem");
  memory("/proc/thread-self/mem");
  snprintf(path, sizeof path, "/proc/%d/mem", getpid());
  int own = open(path, O_RDWR), value = 5;
  printf("by number %zd", pwrite(own, &value, 4, (off_t)&variable));
  printf(" is %d\n", variable);
  int folder = open("/proc/self", O_PATH | O_DIRECTORY);
  int inside = openat(folder, "mem", O_WRONLY);
  value = 6;
  printf("by a folder %zd", pwrite(inside, &value, 4, (off_t)&variable));
  printf(" is %d\n", variable);
  attribute("/proc/self/comm", "abc");
  prctl(PR_GET_NAME, name);
  printf("name %s\n", name);
  attribute("/proc/thread-self/comm", "a name that is too long");
  prctl(PR_GET_NAME, name);
  printf("name %s\n", name);
  attribute("/proc/self/oom_score_adj", "500");
  attribute("/proc/self/oom_score_adj", "5000");
  attribute("/proc/self/oom_adj", "9");
  attribute("/proc/self/oom_score_adj", "600");
  attribute("/proc/self/coredump_filter", "0x11");
  attribute("/proc/self/timerslack_ns", "70000");
  printf("slack %d\n", prctl(PR_GET_TIMERSLACK));
  int marks = open("/proc/self/clear_refs", O_WRONLY);
  printf("clear_refs %zd %zd\n", write(marks, "1", 1), write(marks, "99", 2));
  int statistics = open("/proc/self/sched", O_RDWR);
  printf("sched %zd\n", write(statistics, "0", 1));
  if (fork() == 0) {
    attribute("/proc/self/oom_score_adj", "700");
    attribute("/proc/self/comm", "child");
    memory("/proc/self/mem");
    _exit(0);
  }
  wait(0);
  attribute("/proc/self/oom_score_adj", "800");
  printf("variable %d\n", variable);
  return 0;
}

// What the kernel refuses it refuses here, too, with its own errors: mappings that a descriptor does
// not allow, vectors with lengths that are none, processes and threads that no host has.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), exit(1)))
#define TELL(what) tell(#what, (long)(what))

static void tell(const char *what, long result) {
  printf("%s: %s\n", what, result == -1 ? strerrorname_np(errno) : "done");
}

static void mappings(int fd) {
  TELL(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
  TELL(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0));
  TELL(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  TELL(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
  TELL(mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
  TELL(mmap(NULL, 4096, PROT_READ, 0, fd, 0));
}

static void vectors(int fd) {
  char bytes[8] = "bytes";
  struct iovec odd[] = {{bytes, 5}, {bytes, -1}};
  TELL(writev(fd, odd, 2));
  TELL(writev(fd, odd, -1));
  TELL(writev(fd, odd, 1025));
  TELL(writev(fd, odd, 1));
  TELL(pwritev(fd, odd, 2, 0));
  TELL(readv(fd, odd, 2));
  TELL(readv(fd, odd, -1));
  TELL(preadv(fd, odd, 1025, 0));
}

static void *signals(void *nothing) {
  TELL(tgkill(-1, gettid(), SIGURG));
  TELL(tgkill(getpid(), 0, SIGURG));
  TELL(tgkill(gettid(), gettid(), SIGURG));
  TELL(tgkill(getpid(), gettid(), SIGURG));
  TELL(kill(gettid(), SIGURG));
  return nothing;
}

static void processes(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, -1};
  struct __user_cap_data_struct data[2];
  TELL(syscall(SYS_capget, &header, data));
  header.pid = 1 << 22;
  TELL(syscall(SYS_capget, &header, data));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, signals, NULL) == 0 && pthread_join(thread, NULL) == 0);
  TELL(getpgid(1 << 22));
  TELL(getsid(-1));
  TELL(setpgid(1 << 22, 0));
  TELL(setpgid(-1, 0));
  TELL(setpgid(0, 1 << 22));
}

int main(void) {
  int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  int file = memfd_create("file", 0);
  CHECK(ftruncate(file, 8192) == 0);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    *shared = 1;
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child && *shared == 1);
  const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR};
  for (int i = 0; i < 3; i++) {
    int fd = open(path, modes[i]);
    CHECK(fd >= 0);
    printf("opened by %d\n", modes[i]);
    mappings(fd);
    vectors(fd);
  }
  processes();
  return 0;
}

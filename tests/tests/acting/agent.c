// Hands the addresses of the agent to system calls, and tells what is not refused.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int wrong;

static void expect(const char *what, void *at, long result, int error) {
  int got = result < 0 ? errno : 0;
  if (got != error && ++wrong < 40)
    printf("%s at %p: %ld, error %d instead of %d\n", what, at, result, got, error);
}
#define FAULTS(call) expect(#call, at, (long)(call), EFAULT)
#define GIVES(error, call) expect(#call, at, (long)(call), error)

static void hand(char *at, int file, int zero, int mem, int *pair) {
  char buffer[16] = { 0 };
  struct iovec parts[2] = { { buffer, 8 }, { at, 8 } };
  struct msghdr to_part = { .msg_iov = parts, .msg_iovlen = 2 };
  struct msghdr to_name = { .msg_name = at, .msg_namelen = 16, .msg_iov = parts, .msg_iovlen = 1 };
  struct msghdr to_control = { .msg_iov = parts, .msg_iovlen = 1, .msg_control = at, .msg_controllen = 64 };
  struct msghdr to_list = { .msg_iov = (struct iovec *)at, .msg_iovlen = 1 };
  struct mmsghdr many = { .msg_hdr = to_part };
  char *argv[] = { "true", at, 0 };
  stack_t stack = { .ss_sp = at, .ss_size = 65536 };
  FAULTS(read(zero, at, 64));
  FAULTS(read(zero, at, 1 << 30));
  FAULTS(pread(zero, at, 64, 0));
  FAULTS(write(file, at, 64));
  FAULTS(pwrite(file, at, 64, 0));
  FAULTS(readv(zero, parts, 2));
  FAULTS(readv(zero, (struct iovec *)at, 1));
  FAULTS(writev(file, parts, 2));
  FAULTS(preadv(zero, parts, 2, 0));
  FAULTS(pwritev(file, parts, 2, 0));
  FAULTS(send(pair[0], at, 8, 0));
  FAULTS(recv(pair[0], at, 8, MSG_DONTWAIT));
  FAULTS(sendmsg(pair[0], &to_part, 0));
  FAULTS(sendmsg(pair[0], &to_control, 0));
  FAULTS(recvmsg(pair[0], &to_part, MSG_DONTWAIT));
  FAULTS(recvmsg(pair[0], &to_name, MSG_DONTWAIT));
  FAULTS(recvmsg(pair[0], &to_control, MSG_DONTWAIT));
  FAULTS(recvmsg(pair[0], &to_list, MSG_DONTWAIT));
  FAULTS(recvmsg(pair[0], (struct msghdr *)at, MSG_DONTWAIT));
  FAULTS(sendmmsg(pair[0], &many, 1, 0));
  FAULTS(recvmmsg(pair[0], &many, 1, MSG_DONTWAIT, 0));
  FAULTS(fstat(zero, (struct stat *)at));
  FAULTS(open(at, O_RDONLY));
  FAULTS(poll((struct pollfd *)at, 1, 0));
  FAULTS(pipe((int *)at));
  FAULTS(syscall(SYS_getrandom, at, 8, 0));
  FAULTS(syscall(SYS_clock_gettime, 1, at));
  FAULTS(syscall(SYS_getcpu, at, 0, 0));
  FAULTS(syscall(SYS_futex, at, 1, 1, 0, 0, 0));
  FAULTS(syscall(SYS_rt_sigprocmask, 0, 0, at, 8));
  FAULTS(syscall(SYS_rt_sigaction, SIGUSR1, 0, at, 8));
  FAULTS(syscall(SYS_arch_prctl, 0x1003, at));
  FAULTS(syscall(SYS_prctl, 16, at));
  FAULTS(syscall(SYS_getitimer, 0, at));
  FAULTS(syscall(SYS_execve, "/bin/true", argv, 0));
  FAULTS(syscall(SYS_execve, "/bin/true", at, 0));
  GIVES(ENOMEM, sigaltstack(&stack, 0));
  GIVES(ENOMEM, mprotect(at, 4096, PROT_NONE));
  // Unmapping a hole is no error.
  GIVES(at < (char *)0x6f0000000000 ? 0 : ENOMEM, munmap(at, 4096));
  GIVES(ENOMEM, madvise(at, 4096, MADV_DONTNEED));
  GIVES(ENOMEM, syscall(SYS_mremap, buffer - (long)buffer % 4096, 4096, 4096, 3, at));
  GIVES(ENOMEM, syscall(SYS_mremap, at, 4096, 8192, 1, 0));
  GIVES(ENOMEM, mmap(at, 4096, 3, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  GIVES(EIO, pread(mem, buffer, 8, (off_t)at));
  GIVES(EIO, pwrite(mem, buffer, 8, (off_t)at));
  GIVES(EINVAL, lseek(mem, (off_t)at, SEEK_SET));
}

int main(void) {
  char line[512];
  int places = 0, pair[2];
  int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), zero = open("/dev/zero", O_RDONLY);
  int mem = open("/proc/self/mem", O_RDWR);
  socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
  FILE *maps = fopen("/proc/self/maps", "r");
  static char *at[4096];
  while (fgets(line, sizeof line, maps)) {
    unsigned long start, end;
    if (sscanf(line, "%lx-%lx", &start, &end) != 2 || start >> 40 != 0x6f || start >= 0x6f4000000000)
      continue;
    if (places + 2 < 4096) {
      at[places++] = (char *)start;
      at[places++] = (char *)end - 4096;
    }
  }
  // Below the first mapping: what begins in the gap, and what the program would map there.
  at[places++] = (char *)0x6efffffff000;
  for (int i = 0; i < places; i++)
    hand(at[i], file, zero, mem, pair);
  struct stat about;
  fstat(file, &about);
  printf("size %ld\n", (long)about.st_size);
  // Memory next to the gap ends there, as at any hole.
  char *edge = mmap((void *)0x6eff00000000 - 8192, 8192, 3, MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  printf("edge %d read %zd\n", edge != MAP_FAILED, read(zero, edge + 4096, 1 << 20));
  printf("grows %d\n", mremap(edge, 8192, 16384, 0) == MAP_FAILED ? errno : 0);
  printf("places %d wrong %d\n", places > 6, wrong);
  return 0;
}

// What was mapped through a descriptor that cannot write, or of a file that is sealed against it,
// can never be made writable.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TELL(what) tell(#what, (long)(what))

static void tell(const char *what, long result) {
  printf("  %s: %s\n", what, result == -1 ? strerrorname_np(errno) : "done");
}

static void protect(const char *name, int fd) {
  char *two = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *memory = mmap(two + 4096, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  printf("%s: %s\n", name, memory == MAP_FAILED ? strerrorname_np(errno) : "mapped");
  if (memory == MAP_FAILED) return;
  TELL(mprotect(memory, 4096, PROT_READ | PROT_WRITE));
  TELL(mprotect(memory, 4096, PROT_WRITE));
  TELL(mprotect(memory, 4096, PROT_NONE));
  TELL(mprotect(memory, 4096, PROT_READ));
  TELL(mprotect(two, 4096, PROT_READ));
  TELL(mprotect(two, 3 * 4096, PROT_READ | PROT_WRITE));
  *two = 1;
  TELL(mprotect(memory + 1, 4096, PROT_READ | PROT_WRITE));
  memory = mremap(memory, 4096, 4096, MREMAP_MAYMOVE);
  TELL(mprotect(memory, 4096, PROT_READ | PROT_WRITE));
  munmap(two, 3 * 4096);
}

static int sealed(int seals) {
  int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
  TELL(ftruncate(fd, 4096));
  TELL(fcntl(fd, F_ADD_SEALS, seals));
  return fd;
}

static void all(void) {
  char path[64];
  int file = memfd_create("file", 0);
  TELL(ftruncate(file, 4096));
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  protect("for reading", open(path, O_RDONLY));
  protect("for both", file);
  protect("for reading, beside", open(path, O_RDONLY));
  protect("sealed", sealed(F_SEAL_WRITE));
  protect("sealed for the future", sealed(F_SEAL_FUTURE_WRITE));
  int disk = open("file", O_CREAT | O_RDWR, 0600);
  TELL(ftruncate(disk, 4096));
  protect("of the disk", open("file", O_RDONLY));
  protect("of the disk, both", disk);
  protect("of the disk, beside", open("file", O_RDONLY));
}

static long futex(void *at, int operation, void *other, unsigned value) {
  return syscall(SYS_futex, at, operation, 1, 1L, other, value);
}

static void nowhere(void) {
  unsigned here = 0;
  char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TELL(futex(none, FUTEX_WAKE, NULL, 0));
  TELL(futex(none, FUTEX_WAKE_PRIVATE, NULL, 0));
  TELL(futex((void *)-4096, FUTEX_WAKE_PRIVATE, NULL, 0));
  TELL(futex(&here, FUTEX_REQUEUE, none, 0));
  TELL(futex(&here, FUTEX_CMP_REQUEUE, none, 0));
  TELL(futex(none, FUTEX_CMP_REQUEUE, &here, 0));
  TELL(futex(&here, FUTEX_CMP_REQUEUE, none, 1));
  TELL(futex(&here, FUTEX_CMP_REQUEUE, (char *)&here + 1, 0));
  TELL(futex(&here, FUTEX_WAKE_OP, none, 0));
  TELL(futex(none, FUTEX_WAKE_OP, &here, 0));
  TELL(sethostname(none, -1));
  TELL(sethostname(none, 65));
  TELL(sethostname(none, 5));
  TELL(setdomainname(none, -1));
  TELL(semop(0, (void *)none, 1 << 20));
  TELL(semop(-1, (void *)none, 1));
  TELL(syscall(SYS_sched_setparam, -1, &here));
  TELL(syscall(SYS_sched_setscheduler, -1, 0, &here));
  TELL(syscall(SYS_unshare, -1));
  TELL(setresuid(1001, 1001, 1001));
  TELL(syscall(SYS_unshare, 0x00020000));
  TELL(syscall(SYS_clone, 0x20000000 | 17, 0, 0, 0, 0));
  TELL(sethostname(none, 65));
}

int main(void) {
  printf("alone\n");
  all();
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    printf("child\n");
    all();
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  printf("with a child\n");
  all();
  nowhere();
  return 0;
}

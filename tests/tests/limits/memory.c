// Limits on address space and data: what is counted, when, and what the calls say.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB (1UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static void tell(const char *what, int failed) {
  printf("%s: %s\n", what, failed ? strerrorname_np(errno) : "done");
  fflush(stdout);
}

static char *map(const char *what, size_t len, int prot, int flags) {
  char *at = mmap(0, len, prot, flags, -1, 0);
  tell(what, at == MAP_FAILED);
  return at;
}

static void limit(int resource, size_t bytes) {
  struct rlimit wish = { bytes, bytes };
  tell("limit", setrlimit(resource, &wish));
}

static void address_space(void) {
  limit(RLIMIT_AS, 256 * MB);
  char *at = map("200 MB", 200 * MB, RW, PRIVATE);
  map("100 MB more", 100 * MB, RW, PRIVATE);
  map("100 MB without access", 100 * MB, PROT_NONE, PRIVATE);
  map("100 MB to share", 100 * MB, RW, MAP_SHARED | MAP_ANONYMOUS);
  tell("in the same place", mmap(at, 150 * MB, RW, PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
  tell("grown", mremap(at, 200 * MB, 300 * MB, MREMAP_MAYMOVE) == MAP_FAILED);
  tell("heap", sbrk(100 * MB) == (void *)-1);
  int id = shmget(IPC_PRIVATE, 100 * MB, 0600 | IPC_CREAT);
  tell("segment", id < 0);
  tell("attached", shmat(id, 0, 0) == (void *)-1);
  tell("given back", munmap(at + 50 * MB, 150 * MB));
  tell("attached then", (at = shmat(id, 0, 0)) == (void *)-1);
  shmctl(id, IPC_RMID, 0);
  map("100 MB beside it", 100 * MB, RW, PRIVATE);
  tell("detached", shmdt(at));
  map("100 MB at last", 100 * MB, RW, PRIVATE);
}

static void data(void) {
  limit(RLIMIT_DATA, 32 * MB);
  map("64 MB of data", 64 * MB, RW, PRIVATE);
  char *at = map("64 MB that nobody writes", 64 * MB, PROT_READ, PRIVATE);
  tell("made writable", mprotect(at, 64 * MB, RW));
  tell("in part", mprotect(at + 8 * MB, 16 * MB, RW));
  tell("another part", mprotect(at + 32 * MB, 20 * MB, RW));
  map("64 MB to share", 64 * MB, RW, MAP_SHARED | MAP_ANONYMOUS);
  tell("heap", sbrk(24 * MB) == (void *)-1);
  tell("closed again", mprotect(at + 8 * MB, 16 * MB, PROT_READ));
  tell("heap then", sbrk(24 * MB) == (void *)-1);
  tell("heap given back", sbrk(-24 * (long)MB) == (void *)-1);
  tell("grown", mremap(at + 32 * MB, MB, 40 * MB, MREMAP_MAYMOVE) == MAP_FAILED);
  printf("malloc: %s\n", malloc(64 * MB) ? "done" : "none");
}

static void in_child(void (*body)(void)) {
  int status = 0;
  if (fork() == 0) {
    body();
    // The limits are a child's, too.
    if (fork() == 0) {
      map("256 MB in a child", 256 * MB, RW, PRIVATE);
      fflush(stdout);
      _exit(3);
    }
    wait(&status);
    printf("child %x\n", status);
    fflush(stdout);
    execlp("sh", "sh", "-c", "ulimit -v; ulimit -d; echo $(echo nested)", (char *)0);
    _exit(4);
  }
  wait(&status);
  printf("ended %x\n", status);
  fflush(stdout);
}

static void too_small_for_any(void) {
  limit(RLIMIT_AS, 64 * 1024);
}

int main(void) {
  in_child(address_space);
  in_child(data);
  int status = 0;
  if (fork() == 0) {
    too_small_for_any();
    execlp("true", "true", (char *)0);
    _exit(5);
  }
  wait(&status);
  printf("a program without room: %s\n", WIFSIGNALED(status) ? "killed" : "ended");
  return 0;
}

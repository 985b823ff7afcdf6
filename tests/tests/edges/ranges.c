// Calls on ranges of memory, with ranges and advice of all kinds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TELL(call) (errno = 0, tell(#call, (call)))
static void tell(const char *call, long result) {
  printf("%s: %ld %s\n", call, result, result < 0 ? strerrorname_np(errno) : "");
}

// Locks each range that the kernel lists, but for its own.
static void lock_all_listed(void) {
  char line[512], access[8];
  unsigned long start, end;
  int failed = 0;
  FILE *list = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, list)) {
    sscanf(line, "%lx-%lx %7s", &start, &end, access);
    int agents = start >> 40 == 0x6f;
    if (access[0] == 'r' && !strstr(line, "[v"))
      failed += mlock((void *)start, end - start) && !agents;
  }
  fclose(list);
  printf("not locked: %d\n", failed);
  munlockall();
}

// Every third page of many is touched, and so is resident.
static void tell_residence(void) {
  enum { PAGES = 1500 };
  static unsigned char told[PAGES];
  int wrong = 0;
  char *many = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(many, PAGES * 4096, MADV_NOHUGEPAGE);
  for (int page = 0; page < PAGES; page += 3) many[page * 4096] = 1;
  TELL(mincore(many, PAGES * 4096 - 1, told));
  for (int page = 0; page < PAGES; page++) wrong += told[page] != (page % 3 == 0);
  printf("wrong: %d\n", wrong);
  munmap(many, PAGES * 4096);
}

int main(int count, char **arguments) {
  unsigned char told[8] = {0};
  setvbuf(stdout, 0, _IOLBF, 0);
  char *at = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(at, 1, 8 * 4096);
  if (count > 1) {
    lock_all_listed();
    return 0;
  }
  munmap(at + 16 * 4096, 48 * 4096);
  TELL(mincore(at, 4 * 4096, told));
  printf("resident %d%d%d%d\n", told[0], told[1], told[2], told[3]);
  TELL(mincore(at + 6 * 4096, 4 * 4096, told));
  printf("resident %d%d%d%d\n", told[0], told[1], told[2], told[3]);
  tell_residence();
  TELL(mincore(at + 1, 4096, told));
  TELL(mincore(at, 4096, (void *)8));
  TELL(mincore(at, 1ul << 45, told));
  TELL(mincore(at + 20 * 4096, 4096, told));
  TELL(mincore(at, -4096, told));
  int file = open("synced", O_RDWR | O_CREAT | O_TRUNC, 0600);
  ftruncate(file, 8192);
  char *shown = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  TELL(msync(shown, 8192, MS_ASYNC | MS_SYNC));
  TELL(msync(shown, 8192, 99));
  TELL(msync(shown + 1, 4096, MS_SYNC));
  TELL(msync(shown, 8192, MS_SYNC));
  TELL(msync(at + 20 * 4096, 4096, MS_SYNC));
  TELL(msync(shown, -4096, MS_SYNC));
  mlock(shown + 4096, 4096);
  TELL(msync(shown, 4096, MS_SYNC | MS_INVALIDATE));
  TELL(msync(shown, 8192, MS_SYNC | MS_INVALIDATE));
  TELL(msync(shown, 8192, MS_INVALIDATE));
  TELL(msync(shown, 8192, MS_SYNC));
  munlock(shown + 4096, 4096);
  TELL(mlockall(0));
  TELL(mlockall(MCL_ONFAULT));
  TELL(mlockall(99));
  TELL(mlockall(MCL_CURRENT));
  TELL(mlockall(MCL_CURRENT | MCL_FUTURE));
  char *later = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  printf("mapped %d\n", later != MAP_FAILED);
  TELL(munlockall());
  TELL(mlock(at + 20 * 4096, 4096));
  TELL(mlock2(at, 4096, 99));
  // Its pages may be gone or not, but a child finds what its parent does.
  TELL(madvise(at, 4 * 4096, MADV_FREE));
  at[0] = 5;
  TELL(madvise(at, 4096, 12345));
  pid_t child = fork();
  if (!child) _exit(at[0]);
  int status;
  waitpid(child, &status, 0);
  printf("child %x\n", status);
}

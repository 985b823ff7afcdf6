/* Reads the time stamp counter by code that came into memory in different ways, and says what it
 * read: replicas that do not read the same differ. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { PAGE = 4096 };
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
typedef unsigned long long (*reader)(void);
/* rdtsc; shl $32,%rdx; or %rdx,%rax; ret */
static const unsigned char code[] = {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3};

/* What comes before it cannot be decoded, so nobody replaces it, and the counter traps from the
 * beginning: only in a program of its own. */
#ifdef ODD
__asm__(".text\n.balign 64\n.rept 30\n.byte 0x06,0xd6,0x60,0x0e,0x16,0x61,0x62\n.endr\n"
        ".globl odd\nodd: rdtsc\nshl $32,%rdx\nor %rdx,%rax\nret\n");
extern unsigned long long odd(void);
#endif
/* Pages of code of the program's own. */
__asm__(".text\n.balign 4096\n.globl own\nown: push %rbx\nmov %rsp,%rbx\nrdtsc\nshl $32,%rdx\n"
        "or %rdx,%rax\npop %rbx\nret\n.fill 64,1,0x90\n.globl blank\nblank: xor %eax,%eax\nret\n"
        ".balign 4096\n");
extern unsigned long long own(void), blank(void);

static int file_of(size_t len) {
  static unsigned char bytes[2 * PAGE];
  int file = open("code", O_RDWR | O_CREAT | O_TRUNC, 0700);
  memset(bytes, 0x90, sizeof bytes);
  memcpy(bytes + PAGE + 64, code, sizeof code);
  return write(file, bytes, len) == (ssize_t)len ? file : -1;
}

static reader made(const char *how) {
  const int rw = PROT_READ | PROT_WRITE, rx = PROT_READ | PROT_EXEC;
  const int alone = MAP_PRIVATE | MAP_ANONYMOUS;
  char *at;
  int file;
  if (!strcmp(how, "own")) return own;
#ifdef ODD
  if (!strcmp(how, "odd")) return odd;
#endif
  if (!strcmp(how, "stored")) {
    /* Only where code can be written. */
    memcpy((void *)blank, code, sizeof code);
    return blank;
  }
  if (!strcmp(how, "dropped")) {
    madvise((void *)own, PAGE, MADV_DONTNEED);
    return own;
  }
  if (!strcmp(how, "dropped-locked")) {
    madvise((void *)own, PAGE, MADV_DONTNEED_LOCKED);
    return own;
  }
  if (!strcmp(how, "moved")) {
    at = mmap(0, PAGE, PROT_NONE, alone, -1, 0);
    at = mremap((void *)own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    return (reader)at;
  }
  if (!strcmp(how, "generated")) {
    at = mmap(0, PAGE, rw | PROT_EXEC, alone, -1, 0);
    memcpy(at, code, sizeof code);
  } else if (!strcmp(how, "made-both")) {
    at = mmap(0, PAGE, rw, alone, -1, 0);
    mprotect(at, PAGE, rw | PROT_EXEC);
    memcpy(at, code, sizeof code);
  } else if (!strcmp(how, "execute-only")) {
    file = file_of(2 * PAGE);
    at = mmap(0, PAGE, PROT_EXEC, MAP_PRIVATE, file, PAGE);
  } else if (!strcmp(how, "made-executable")) {
    at = mmap(0, PAGE, rw, alone, -1, 0);
    memcpy(at, code, sizeof code);
    mprotect(at, PAGE, rx);
  } else if (!strcmp(how, "nameless")) {
    file = memfd_create("code", 0);
    ftruncate(file, PAGE);
    at = mmap(0, PAGE, rx, MAP_PRIVATE, file, 0);
    pwrite(file, code, sizeof code, 0);
  } else if (!strcmp(how, "shared")) {
    file = file_of(2 * PAGE);
    at = mmap(0, PAGE, rx, MAP_SHARED, file, PAGE);
  } else if (!strcmp(how, "shared-changed")) {
    file = file_of(2 * PAGE);
    at = mmap(0, PAGE, rx, MAP_SHARED, file, 0);
    pwrite(file, code, sizeof code, 0);
  } else if (!strcmp(how, "shared-later")) {
    file = file_of(2 * PAGE);
    at = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0);
    mprotect(at, PAGE, rx);
    pwrite(file, code, sizeof code, 0);
  } else if (!strcmp(how, "dropped-changed")) {
    /* One is replaced, so the page is a copy; the other comes when the page is read anew. */
    file = file_of(2 * PAGE);
    at = mmap(0, PAGE, rx, MAP_PRIVATE, file, PAGE);
    pwrite(file, code, sizeof code, PAGE + 512);
    madvise(at, PAGE, MADV_DONTNEED);
    at += 512;
  } else if (!strcmp(how, "nameless-later")) {
    file = memfd_create("code", 0);
    ftruncate(file, PAGE);
    at = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    mprotect(at, PAGE, rx);
    pwrite(file, code, sizeof code, 0);
  } else if (!strcmp(how, "segment")) {
    int id = shmget(IPC_PRIVATE, PAGE, 0700);
    at = shmat(id, 0, SHM_EXEC);
    shmctl(id, IPC_RMID, 0);
    memcpy(at, code, sizeof code);
  } else if (!strcmp(how, "grown")) {
    file = file_of(2 * PAGE);
    at = mmap(0, PAGE, rx, MAP_PRIVATE, file, 0);
    at = mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE) + PAGE;
  } else if (!strcmp(how, "many-mappings")) {
    /* More than are known, apart from each other; the last one grows. */
    file = file_of(2 * PAGE);
    char *all = mmap(0, 1000 * PAGE, PROT_NONE, alone, -1, 0);
    for (int i = 0; i < 200; i++) {
      at = all + i * 4 * PAGE;
      mmap(at, PAGE, rx, MAP_PRIVATE | MAP_FIXED, file, 0);
    }
    at = mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE) + PAGE;
  } else if (!strcmp(how, "short")) {
    /* At the end of the file, within a mapping that is longer. */
    file = file_of(PAGE);
    pwrite(file, code, sizeof code, PAGE - sizeof code);
    at = mmap(0, 2 * PAGE, rx, MAP_PRIVATE, file, 0);
    close(file);
    at += PAGE - sizeof code;
  } else if (!strcmp(how, "text")) {
    at = (char *)((unsigned long)blank & -PAGE);
    mprotect(at, PAGE, rw);
    memcpy((void *)blank, code, sizeof code);
    mprotect(at, PAGE, rx);
    at = (char *)blank;
  } else if (!strcmp(how, "memory")) {
    file = open("/proc/self/mem", O_RDWR);
    at = (char *)blank;
    if (pwrite(file, code, sizeof code, (off_t)at) != sizeof code) return 0;
  } else if (!strcmp(how, "personality")) {
    personality(READ_IMPLIES_EXEC);
    at = mmap(0, PAGE, rw, alone, -1, 0);
    memcpy(at, code, sizeof code);
  } else {
    return 0;
  }
  return (reader)at;
}

static int reads(reader read) {
  struct timespec now;
  unsigned long long last = 0;
  for (int i = 0; i < 50; i++) {
    unsigned long long value = read();
    if (value <= last || clock_gettime(CLOCK_MONOTONIC, &now)) return 1;
    last = value;
    if (i % 10 == 0) printf("%llu %ld.%09ld\n", value, now.tv_sec, now.tv_nsec);
  }
  fflush(stdout);
  return 0;
}

int main(int argc, char **argv) {
  struct timespec now;
  for (int i = 0; i < 20; i++) clock_gettime(CLOCK_REALTIME, &now);
  reader read = made(argv[1]);
  if (!read) return 2;
  if (reads(read)) return 3;
  int status;
  if (fork() == 0) _exit(reads(read));
  if (wait(&status) < 0 || status) return 4;
  // A new program begins anew, and has its own code only.
  if (argc == 3) return execl(argv[0], argv[0], "own", NULL);
  return 0;
}

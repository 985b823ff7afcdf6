// flip PID WHEN BYTES ADDRESS...: stops a replica where it makes a digest of a piece that it has read
// to BYTES or behind (the functions at ADDRESS do), and lets it go on once this is done there:
//
// before: a bit of the piece flips. twice: and again when it is read once more. after: a bit flips
// when the digest is made.
//
// change: of the first piece of a pass. Waits until the primary has read the whole file, changes each
// byte of the file `data`, and waits until a piece is read, read again, and taken from somewhere else.
//
// Says "done".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call) ({ long r_ = (call); if (r_ < 0) { perror(#call); exit(1); } r_; })

enum { SIZE = 1 << 18, PIECE = 1 << 14 };

static pid_t pid;
// The signal that the process is about to get.
static int sent;
static uint64_t places[2], bytes;
static struct user_regs_struct regs;

static void breakpoint(int number, uint64_t address) {
  MUST(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[number]), address));
}

static void enable(long which) {
  MUST(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[7]), which));
}

static void await_stop(void) {
  int status;
  MUST(waitpid(pid, &status, __WALL));
  if (!WIFSTOPPED(status)) exit(2);
  int signal = WSTOPSIG(status);
  sent = signal == SIGTRAP || status >> 16 ? 0 : signal;
  MUST(ptrace(PTRACE_GETREGS, pid, 0, &regs));
}

// Goes on to a stop at one of these places.
static void go_to(uint64_t one, uint64_t other) {
  do {
    MUST(ptrace(PTRACE_CONT, pid, 0, sent));
    await_stop();
  } while (sent || (regs.rip != one && regs.rip != other));
}

// Goes on to the next digest of a piece of the program's: its address.
static uint64_t digest(void) {
  breakpoint(0, places[0]);
  breakpoint(1, places[1]);
  enable(5);
  do go_to(places[0], places[1]);
  while (regs.rsi != PIECE || regs.rdi < bytes || regs.rdi >= bytes + SIZE);
  return regs.rdi;
}

static uint64_t word(uint64_t address) {
  errno = 0;
  uint64_t word = ptrace(PTRACE_PEEKDATA, pid, address, 0);
  if (errno) exit(1);
  return word;
}

static void flip(uint64_t piece) {
  uint64_t address = piece + PIECE / 2;
  MUST(ptrace(PTRACE_POKEDATA, pid, address, word(address) ^ 0x100));
}

// Replicas share the positions of files.
static void await_primary(void) {
  char path[64], text[256];
  long position = 0;
  snprintf(path, sizeof path, "/proc/%d/fdinfo/3", pid);
  while (position != SIZE) {
    int file = MUST(open(path, O_RDONLY));
    text[MUST(read(file, text, sizeof text - 1))] = 0;
    close(file);
    if (sscanf(text, "pos: %ld", &position) != 1) exit(1);
    sched_yield();
  }
}

static void change(void) {
  static unsigned char content[SIZE];
  int file = MUST(open("data", O_RDWR));
  if (pread(file, content, SIZE, 0) != SIZE) exit(1);
  for (int at = 0; at < SIZE; at++) content[at] ^= 1;
  if (pwrite(file, content, SIZE, 0) != SIZE) exit(1);
  close(file);
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  pid = atoi(argv[1]);
  const char *when = argv[2];
  bytes = strtoull(argv[3], 0, 0);
  places[0] = strtoull(argv[4], 0, 0);
  places[1] = strtoull(argv[5], 0, 0);
  MUST(ptrace(PTRACE_SEIZE, pid, 0, 0));
  MUST(ptrace(PTRACE_INTERRUPT, pid, 0, 0));
  await_stop();
  uint64_t piece = digest();
  if (!strcmp(when, "before")) {
    flip(piece);
  } else if (!strcmp(when, "twice")) {
    flip(piece);
    if (digest() != piece) return 3;
    flip(piece);
  } else if (!strcmp(when, "after")) {
    uint64_t back = word(regs.rsp);
    breakpoint(0, back);
    enable(1);
    go_to(back, back);
    flip(piece);
  } else {
    while (piece != bytes) piece = digest();
    await_primary();
    change();
    for (int times = 0; times < 3;) {
      uint64_t next = digest();
      times = next == piece ? times + 1 : 1;
      piece = next;
    }
  }
  enable(0);
  MUST(ptrace(PTRACE_DETACH, pid, 0, 0));
  puts("done");
  return 0;
}

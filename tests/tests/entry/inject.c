// inject PID ADDRESS BYTE: stops a process where it is about to make a `write` by the agent (at
// ADDRESS, or, if that is 0, at the agent's `syscall` itself), and flips a bit: of the byte at BYTE, or,
// if that is 0, of the length. Then lets it go on, and says "flipped".
//
// inject PID: prints where the process has told the kernel of a structure for restartable sequences.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call) ({ long r_ = (call); if (r_ < 0) { perror(#call); exit(1); } r_; })

enum { GET_RSEQ_CONFIGURATION = 0x420f };
// The agent's window begins here.
#define AGENT 0x6f0000000000ull
#define BREAKPOINT offsetof(struct user, u_debugreg[0])
#define CONTROL offsetof(struct user, u_debugreg[7])

static pid_t pid;
static int sent;

// Waits for the next stop; returns the signal of it, with 0x80 for that of a system call. One that the
// process is about to get is passed on, first of all SIGSYS: without it a system call is left out.
static int stop(void) {
  int status;
  MUST(waitpid(pid, &status, __WALL));
  if (!WIFSTOPPED(status)) exit(2);
  int signal = WSTOPSIG(status);
  sent = signal == SIGTRAP || signal & 0x80 || status >> 16 ? 0 : signal;
  return signal;
}

static int step(int request) {
  MUST(ptrace(request, pid, 0, sent));
  return stop();
}

// What goes to a pipe goes through a ring where the primary may be lost.
static int is_write(uint64_t call) { return call == SYS_write || call == SYS_io_uring_enter; }

static uint64_t site(void) {
  struct user_regs_struct regs;
  for (;;) {
    if (step(PTRACE_SYSCALL) != (SIGTRAP | 0x80)) continue;
    MUST(ptrace(PTRACE_GETREGS, pid, 0, &regs));
    int enters = regs.rax == (uint64_t)-ENOSYS;
    if (enters && is_write(regs.orig_rax) && regs.rip >= AGENT) return regs.rip - 2;
  }
}

int main(int argc, char **argv) {
  struct user_regs_struct regs;
  pid = atoi(argv[1]);
  MUST(ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD));
  MUST(ptrace(PTRACE_INTERRUPT, pid, 0, 0));
  stop();
  if (argc == 2) {
    uint64_t told[3] = {0};
    MUST(ptrace(GET_RSEQ_CONFIGURATION, pid, sizeof told, told));
    MUST(ptrace(PTRACE_DETACH, pid, 0, sent));
    printf("%llx\n", (unsigned long long)told[0]);
    return 0;
  }
  uint64_t address = strtoull(argv[2], 0, 0), byte = strtoull(argv[3], 0, 0);
  if (!address) address = site();
  MUST(ptrace(PTRACE_POKEUSER, pid, BREAKPOINT, address));
  MUST(ptrace(PTRACE_POKEUSER, pid, CONTROL, 1));
  do {
    while (step(PTRACE_CONT) != SIGTRAP) {}
    MUST(ptrace(PTRACE_GETREGS, pid, 0, &regs));
  } while (regs.rip != address);
  MUST(ptrace(PTRACE_POKEUSER, pid, CONTROL, 0));
  if (byte) {
    errno = 0;
    long word = ptrace(PTRACE_PEEKDATA, pid, byte, 0);
    if (errno) return 1;
    MUST(ptrace(PTRACE_POKEDATA, pid, byte, word ^ 1));
  } else {
    regs.rdx ^= 1;
    MUST(ptrace(PTRACE_SETREGS, pid, 0, &regs));
  }
  MUST(ptrace(PTRACE_DETACH, pid, 0, 0));
  puts("flipped");
  return 0;
}

// Until there is a file `stop`: changes all vector registers, makes calls that go straight and now
// and then a fault that a handler mends, and looks whether the registers are as they were.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

volatile long data = 7;
static char before[256], after[256], byte[64];
static long faults;
#define EACH(d)                                                                            \
  d(0) d(1) d(2) d(3) d(4) d(5) d(6) d(7) d(8) d(9) d(10) d(11) d(12) d(13) d(14) d(15)
#define LOAD(n) "movups 16*" #n "(%[before]), %%xmm" #n "\n"
#define STORE(n) "movups %%xmm" #n ", 16*" #n "(%[after])\n"
#define KEEPING(what, number, a, b, c)                                                       \
  __asm__ volatile(EACH(LOAD) what EACH(STORE) : "+a"(number)                                \
                   : "D"(a), "S"(b), "d"(c), [before] "r"(before), [after] "r"(after)        \
                   : "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", \
                     "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",     \
                     "xmm14", "xmm15")

static void mend(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info;
  ucontext_t *at = context;
  at->uc_mcontext.gregs[REG_RIP] += 3;
  at->uc_mcontext.gregs[REG_RAX] = 5;
  faults++;
  long number = SYS_write;
  KEEPING("syscall\n", number, 1, "fault\n", 6);
}

int main(void) {
  struct sigaction action = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, 0);
  long null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDONLY);
  for (long i = 1; i % 4096 != 0 || access("stop", F_OK) != 0; i++) {
    memset(before, i * 7 % 251, sizeof before);
    memcpy(before + i % 249, &i, 7);
    long number = i % 3 == 0 ? SYS_write : i % 3 == 1 ? SYS_read : SYS_getppid;
    KEEPING("syscall\n", number, i % 3 == 0 ? null : zero, byte, sizeof byte);
    if (memcmp(before, after, sizeof after) != 0) return 4;
    if (i % 1024 != 0) continue;
    number = 0;
    KEEPING("mov (%%rax), %%rax\n", number, 0, 0, 0);
    if (number != 5 || memcmp(before, after, sizeof after) != 0) return 5;
  }
  return faults ? 3 : 6;
}

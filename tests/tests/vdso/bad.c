// A bad pointer is a SIGSEGV in the vDSO, and the program goes on after it; where the kernel
// answers it is EFAULT.
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static unsigned long base, address;
static int inside;

static void on_fault(int signal, siginfo_t *info, void *context) {
  unsigned long rip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  inside = rip >= base && rip < base + 8192;
  address = (unsigned long)info->si_addr;
  siglongjmp(back, 1);
}

int main(void) {
  base = getauxval(AT_SYSINFO_EHDR);
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, 0);
  unsigned long bad[] = {8, 0x10000, (unsigned long)main & ~4095ul};
  for (int i = 0; i < 3; i++) {
    if (!sigsetjmp(back, 1)) {
      clock_gettime(CLOCK_MONOTONIC, (void *)bad[i]);
      puts("no fault");
    } else {
      printf("fault in the vDSO %d, at the pointer %d\n", inside, address == bad[i]);
    }
    int result = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, bad[i]);
    printf("%d %d\n", result, errno);
  }
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  clock_gettime(CLOCK_MONOTONIC, &b);
  printf("%d\n", b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec));
  return 0;
}

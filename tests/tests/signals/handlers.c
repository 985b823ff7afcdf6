/* Handlers: nested, left by a jump, on a stack of their own, with what the kernel tells. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static char *page;
static volatile sig_atomic_t depth, deepest;

static void act(int number, void (*with)(int, siginfo_t *, void *), int flags, int also_blocked) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = with;
  action.sa_flags = SA_SIGINFO | flags;
  if (also_blocked) sigaddset(&action.sa_mask, also_blocked);
  sigaction(number, &action, NULL);
}

static int blocked(int number) {
  sigset_t set;
  sigprocmask(SIG_BLOCK, NULL, &set);
  return sigismember(&set, number);
}

static void nests(int number, siginfo_t *info, void *context) {
  (void)context;
  if (++depth > deepest) deepest = depth;
  printf("in %d depth %d code %d own %d other %d\n", number, (int)depth, info->si_code,
         blocked(number), blocked(SIGUSR1 + SIGUSR2 - number));
  if (number == SIGUSR1) raise(SIGUSR2);
  depth--;
}

static void jumps(int number, siginfo_t *info, void *context) {
  (void)context;
  siglongjmp(back, number + (info->si_addr == page ? 1000 : 0));
}

static void repairs(int number, siginfo_t *info, void *context) {
  (void)context;
  printf("fault %d code %d at the page %d\n", number, info->si_code, info->si_addr == page);
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void skips(int number, siginfo_t *info, void *context) {
  ucontext_t *state = context;
  printf("trap %d code %d\n", number, info->si_code);
  state->uc_mcontext.gregs[REG_RIP] += 2;
  state->uc_mcontext.gregs[REG_RAX] = 42;
}

static void tells(int number, siginfo_t *info, void *context) {
  stack_t stack;
  (void)info;
  (void)context;
  sigaltstack(NULL, &stack);
  printf("%d on another stack %d\n", number, stack.ss_flags == SS_ONSTACK);
}

static void overflows(int number, siginfo_t *info, void *context) {
  (void)info;
  (void)context;
  siglongjmp(back, number);
}

static int deeper(int n) {
  volatile char room[65536];
  room[0] = (char)n;
  return n < 0 ? 0 : deeper(n + 1) + room[0];
}

static void nesting(void) {
  act(SIGUSR1, nests, 0, 0);
  act(SIGUSR2, nests, 0, 0);
  raise(SIGUSR1);
  act(SIGUSR1, nests, 0, SIGUSR2);
  raise(SIGUSR1);
  act(SIGUSR2, nests, SA_RESETHAND | SA_NODEFER, 0);
  raise(SIGUSR2);
  struct sigaction now;
  sigaction(SIGUSR2, NULL, &now);
  printf("reset %d deepest %d\n", now.sa_handler == SIG_DFL, (int)deepest);
}

static void faults(void) {
  page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  act(SIGSEGV, jumps, 0, 0);
  for (int i = 0; i < 3; i++) {
    int number = sigsetjmp(back, 1);
    if (number == 0) *(volatile char *)page = 1;
    printf("back with %d blocked %d\n", number, blocked(SIGSEGV));
  }
  act(SIGSEGV, repairs, 0, 0);
  *(volatile char *)page = 7;
  printf("written %d\n", *page);
  act(SIGILL, skips, 0, 0);
  long value = 1;
  __asm__ volatile("ud2" : "+a"(value));
  printf("after the trap %ld\n", value);
  act(SIGFPE, jumps, 0, 0);
  volatile int zero = 0;
  int number = sigsetjmp(back, 1);
  if (number == 0) zero = 100 / zero;
  printf("division %d\n", number);
}

static void stacks(void) {
  static char room[65536];
  stack_t own = {.ss_sp = room, .ss_size = sizeof room};
  sigaltstack(&own, NULL);
  act(SIGUSR1, tells, SA_ONSTACK, 0);
  raise(SIGUSR1);
  act(SIGUSR1, tells, 0, 0);
  raise(SIGUSR1);
  struct rlimit limit = {1 << 20, 1 << 20};
  setrlimit(RLIMIT_STACK, &limit);
  act(SIGSEGV, overflows, SA_ONSTACK, 0);
  int number = sigsetjmp(back, 1);
  if (number == 0) number = deeper(0);
  printf("overflow %d\n", number);
}

static void pipes(void) {
  int ends[2];
  pipe(ends);
  close(ends[0]);
  act(SIGPIPE, nests, 0, 0);
  long sent = write(ends[1], "x", 1);
  printf("handled: %ld %s\n", sent, strerrorname_np(errno));
  signal(SIGPIPE, SIG_IGN);
  sent = write(ends[1], "x", 1);
  printf("ignored: %ld %s\n", sent, strerrorname_np(errno));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    write(ends[1], "x", 1);
    _exit(9);
  }
  int status;
  waitpid(child, &status, 0);
  printf("deadly: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

static void waiting(void) {
  sigset_t none, usr1;
  sigemptyset(&none);
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  act(SIGUSR1, nests, 0, 0);
  act(SIGUSR2, nests, 0, 0);
  sigprocmask(SIG_BLOCK, &usr1, NULL);
  raise(SIGUSR1);
  printf("still blocked\n");
  int result = sigsuspend(&none);
  printf("suspended %d %s, blocked again %d\n", result, strerrorname_np(errno), blocked(SIGUSR1));
  union sigval value = {.sival_int = 77};
  sigqueue(getpid(), SIGUSR1, value);
  siginfo_t info;
  printf("waited for %d", sigwaitinfo(&usr1, &info));
  printf(" value %d own %d\n", info.si_value.sival_int, info.si_pid == getpid());
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  nesting();
  faults();
  stacks();
  pipes();
  waiting();
  return 0;
}

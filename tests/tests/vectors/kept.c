// Makes calls of all kinds with a value in each register that the kernel leaves alone, and looks
// whether they are there afterwards: general ones, flags, x87, SSE, AVX and AVX-512. The same of
// loops that signals interrupt, of faults, of children and of two threads.
#define _GNU_SOURCE
#include <cpuid.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define EXTENDED 4096
#define BIG (1 << 20)
#define ADD_TRACE 0x72636f65

struct state {
  char before[EXTENDED], after[EXTENDED];
  // rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12, r13, r14, flags.
  long in[13], out[13];
} __attribute__((aligned(64)));

// Each loads all registers, does what its name says, and stores them.
void keep_call(struct state *), keep_spin(struct state *), keep_fault(struct state *);
unsigned features;

#define IN "8192"
#define OUT "8296"
__asm__(
    ".macro each what, at\n"
    "\\what rdi, \\at + 8\n \\what rsi, \\at + 16\n \\what rdx, \\at + 24\n"
    "\\what r10, \\at + 32\n \\what r8, \\at + 40\n \\what r9, \\at + 48\n"
    "\\what rbx, \\at + 56\n \\what rbp, \\at + 64\n \\what r12, \\at + 72\n"
    "\\what r13, \\at + 80\n \\what r14, \\at + 88\n"
    ".endm\n"
    ".macro get register, at\n mov \\at(%r15), %\\register\n .endm\n"
    ".macro put register, at\n mov %\\register, \\at(%r15)\n .endm\n"
    ".macro keeping name, what:vararg\n"
    ".globl \\name\n"
    "\\name:\n"
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rdi, %r15\n"
    "mov features(%rip), %eax\n xor %edx, %edx\n xrstor64 (%r15)\n"
    "each get, " IN "\n"
    "mov " IN "(%r15), %rax\n"
    "pushq " IN "+96(%r15)\n popfq\n"
    "\\what\n"
    "pushfq\n popq " OUT "+96(%r15)\n"
    "pushq $0x202\n popfq\n"
    "mov %rax, " OUT "(%r15)\n"
    "each put, " OUT "\n"
    "mov features(%rip), %eax\n xor %edx, %edx\n xsave64 4096(%r15)\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
    "ret\n"
    ".endm\n"
    "keeping keep_call, syscall\n"
    "keeping keep_spin, 2: lea -1(%rax), %rax; xchg %rax, %rcx; jrcxz 3f; "
    "xchg %rax, %rcx; jmp 2b; 3:\n"
    "keeping keep_fault, mov (%rax), %rax\n");
_Static_assert(__builtin_offsetof(struct state, in) == 8192, "");
_Static_assert(__builtin_offsetof(struct state, out) == 8296, "");

static struct state first, second, others;

// Where components of the extended state lie.
static struct {
  unsigned at, bytes;
} parts[32] = {{0, 2}, {4, 1}, {24, 4}, {160, 256}};
static int count = 4;

static void measure(void) {
  unsigned a, b, c, d, high;
  __asm__ volatile("xgetbv" : "=a"(features), "=d"(high) : "c"(0));
  // x87, SSE, AVX and AVX-512.
  features &= 0xe7;
  for (int i = 0; i < 8; i++) parts[count].at = 32 + 16 * i, parts[count++].bytes = 10;
  for (int i = 2; i < 8; i++) {
    if (!(features >> i & 1)) continue;
    __cpuid_count(0xd, i, a, b, c, d);
    parts[count].at = b, parts[count++].bytes = a;
  }
}

static void fill(struct state *s) {
  static _Thread_local unsigned long seed = 7;
  for (int i = 0; i < count; i++)
    for (unsigned at = 0; at < parts[i].bytes; at++) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      s->before[parts[i].at + at] = seed >> 56;
    }
  unsigned short control = 0x37f | (seed >> 40 & 3) << 10;
  unsigned mxcsr = 0x1f80 | (seed >> 43 & 3) << 13 | (seed >> 46 & 0x3f);
  memcpy(s->before, &control, 2);
  s->before[4] = -1;
  memcpy(s->before + 24, &mxcsr, 4);
  *(unsigned long *)(s->before + 512) = features;
  for (int i = 7; i < 12; i++) s->in[i] = seed * (i + 2);
}

#define CARRY 1
#define SOME (1 | 4 | 16 | 64 | 128 | 2048)
#define BACKWARDS 1024
#define ALIGNED (1 << 18)
#define COMPARED (SOME | BACKWARDS | ALIGNED)

static void fail(const char *what, long number, const char *register_, int at) {
  char line[200];
  int len = snprintf(line, sizeof line, "%s %ld: %s %d\n", what, number, register_, at);
  syscall(SYS_write, 2, line, len);
  _exit(1);
}

static void compare(struct state *s, const char *what, long number, long flags) {
  for (int i = 1; i < 12; i++)
    if (s->in[i] != s->out[i]) fail(what, number, "general", i);
  if ((s->in[12] ^ s->out[12]) & flags) fail(what, number, "flags", s->out[12]);
  for (int i = 0; i < count; i++)
    for (unsigned at = parts[i].at; at < parts[i].at + parts[i].bytes; at++)
      if (s->before[at] != s->after[at]) fail(what, number, "extended, byte", at);
}

#define call(s, ...) call_with(s, 0x202 | CARRY, (long[7]){__VA_ARGS__})
static long call_with(struct state *s, long flags, const long *words) {
  fill(s);
  memcpy(s->in, words, 7 * sizeof(long));
  s->in[12] = flags;
  keep_call(s);
  compare(s, "call", words[0], COMPARED);
  return s->out[0];
}

// The same with flags that other calls are seldom made with.
#define calls(...) all_flags((long[7]){__VA_ARGS__})
static void all_flags(const long *words) {
  static const long flags[] = {0, CARRY, SOME, BACKWARDS, ALIGNED, COMPARED};
  for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++)
    call_with(&first, 0x202 | flags[i], words);
}

static void expect(int holds, const char *what) {
  if (!holds) fail(what, 0, "unexpected", 0);
}

static char bytes[BIG], more[BIG];
static long null, zero, file, ends[2], sockets[2], poller;
static const long sizes[] = {1, 8, 33, 64, 200, 256, 300, 513, 4096, 70001, BIG};

static void effects_and_input(long size) {
  struct iovec parts[2] = {{bytes, size / 2}, {more, size - size / 2}};
  calls(SYS_write, null, (long)bytes, size);
  calls(SYS_writev, null, (long)parts, 2);
  calls(SYS_pwrite64, file, (long)bytes, size, 0);
  calls(SYS_read, zero, (long)more, size);
  calls(SYS_readv, zero, (long)parts, 2);
  calls(SYS_pread64, file, (long)more, size, 0);
  calls(SYS_preadv, file, (long)parts, 2, 0);
  calls(SYS_getrandom, (long)bytes, size, 0);
  calls(ADD_TRACE, (long)bytes, size);
  if (size > 4096) return;
  for (int i = 0; i < 3; i++) {
    expect(call(&first, SYS_write, ends[1], (long)bytes, size) == size, "written");
    expect(call(&first, SYS_read, ends[0], (long)more, size) == size, "read");
    expect(call(&first, SYS_sendto, sockets[0], (long)bytes, size) == size, "sent");
    expect(call(&first, SYS_recvfrom, sockets[1], (long)more, size) == size, "received");
  }
}

static void small_calls(void) {
  struct timespec time, short_time = {0, 1000};
  struct epoll_event event;
  long words[4];
  calls(SYS_getppid);
  calls(SYS_clock_gettime, 1, (long)&time);
  calls(SYS_nanosleep, (long)&short_time, 0);
  calls(SYS_poll, 0, 0, 1);
  calls(SYS_epoll_wait, poller, (long)&event, 1, 0);
  calls(SYS_epoll_wait, poller, (long)&event, 1, 1);
  calls(SYS_futex, (long)words, 1, 1);
  calls(SYS_sched_yield);
  calls(SYS_brk, 0);
  calls(SYS_rt_sigprocmask, 0, 0, (long)words, 8);
  calls(1000);
  calls(4000000);
  // What cannot be read, begun and not.
  char *hole = mmap(0, 2 * 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(hole + 65536, 65536);
  calls(SYS_write, ends[1], 8, 4096);
  calls(SYS_read, zero, 8, 4096);
  calls(SYS_pwrite64, file, (long)hole + 65536 - 5000, 10000, 0);
  calls(SYS_pread64, file, (long)hole + 65536 - 5000, 10000, 0);
  munmap(hole, 65536);
}

static void mappings(void) {
  long own = open("/proc/self/exe", O_RDONLY);
  long flags = MAP_PRIVATE | MAP_ANONYMOUS;
  for (int i = 0; i < 4; i++) {
    long at = call(&first, SYS_mmap, 0, 200000, PROT_READ | PROT_EXEC, MAP_PRIVATE, own, 0);
    expect(at > 0, "mapped");
    call(&first, SYS_mprotect, at, 200000, PROT_READ);
    call(&first, SYS_mprotect, at, 200000, PROT_READ | PROT_EXEC);
    call(&first, SYS_munmap, at, 200000);
    at = call(&first, SYS_mmap, 0, BIG, PROT_READ | PROT_WRITE, flags, -1, 0);
    memset((void *)at, 7, BIG);
    at = call(&first, SYS_mremap, at, BIG, 2 * BIG, MREMAP_MAYMOVE);
    call(&first, SYS_madvise, at, BIG, MADV_DONTNEED);
    call(&first, SYS_munmap, at, 2 * BIG);
  }
  close(own);
}

static volatile long caught;

// Leaves none of the registers as it was.
static void scramble(int signal, siginfo_t *info, void *context) {
  (void)info;
  ucontext_t *at = context;
  __asm__ volatile("xrstor64 (%0)" ::"r"(others.before), "a"(features), "d"(0) : "memory");
  if (signal == SIGSEGV) at->uc_mcontext.gregs[REG_RIP] += 3;
  caught++;
}

static void signals(void) {
  struct sigaction action = {.sa_sigaction = scramble, .sa_flags = SA_SIGINFO | SA_RESTART};
  for (int i = 0; i < 3; i++) sigaction((int[]){SIGUSR1, SIGALRM, SIGSEGV}[i], &action, 0);
  for (int i = 0; i < 10; i++) {
    call(&first, SYS_kill, getpid(), SIGUSR1);
    fill(&first);
    first.in[0] = 0;
    first.in[12] = 0x202 | SOME;
    keep_fault(&first);
    compare(&first, "fault", 0, SOME);
  }
  expect(caught == 20, "handlers");
  // Each comes once, so that whoever is slow has no more of them: in a loop, or at a call after it.
  struct itimerval soon = {{0, 0}, {0, 1000}};
  for (int i = 0; i < 10; i++) {
    setitimer(ITIMER_REAL, &soon, 0);
    if (i % 3 == 0) {
      fill(&first);
      first.in[0] = 300000;
      first.in[12] = 0x202 | SOME;
      keep_spin(&first);
      compare(&first, "loop", 0, SOME);
    }
    while (caught == 20 + i) {
      call(&first, SYS_write, null, (long)bytes, i % 2 ? 64 : 5000);
      call(&first, SYS_read, zero, (long)more, 64);
      call(&first, SYS_getppid);
    }
  }
}

static void children(void) {
  for (int i = 0; i < 3; i++) {
    int status;
    // It comes back from there, too.
    long child = call(&first, SYS_fork);
    if (child == 0) {
      effects_and_input(300), effects_and_input(70001);
      _exit(3);
    }
    expect(call(&first, SYS_wait4, child, (long)&status, 0, 0) == child, "child");
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 3, "status");
  }
}

static void *echo(void *none) {
  for (int i = 0; i < 100; i++) {
    char byte[300];
    long len = i % 3 ? 1 : sizeof byte;
    expect(call(&second, SYS_read, sockets[1], (long)byte, len) == len, "asked");
    expect(call(&second, SYS_write, sockets[1], (long)byte, len) == len, "answered");
  }
  return none;
}

static void threads(void) {
  pthread_t thread;
  pthread_create(&thread, 0, echo, 0);
  for (int i = 0; i < 100; i++) {
    long len = i % 3 ? 1 : 300;
    expect(call(&first, SYS_write, sockets[0], (long)bytes, len) == len, "asks");
    expect(call(&first, SYS_read, sockets[0], (long)more, len) == len, "hears");
  }
  pthread_join(thread, 0);
}

int main(void) {
  int pair[2];
  measure();
  fill(&others);
  null = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY);
  file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), poller = epoll_create1(0);
  expect(pipe(pair) == 0, "pipe"), ends[0] = pair[0], ends[1] = pair[1];
  expect(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "sockets");
  sockets[0] = pair[0], sockets[1] = pair[1];
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) effects_and_input(sizes[i]);
  small_calls(), mappings(), children(), threads(), signals(), small_calls();
  effects_and_input(300), effects_and_input(70001);
  puts("kept");
}

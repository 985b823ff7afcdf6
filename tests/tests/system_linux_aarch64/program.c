/* What is of the processor in a program: what it is told at its start, layouts, registers in
   handlers, exceptions, its counter, threads and processes. Tells each check that fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static int failed;

static void check(int good, const char *what) {
  if (!good) failed = 1, printf("failed: %s (%d)\n", what, errno);
}

static volatile int got;
static volatile double kept;
static sigjmp_buf jump;
static void *volatile where;

static void on_signal(int signal, siginfo_t *info, void *context) {
  ucontext_t *it = context;
  got = signal;
  kept = kept * 2.5 + 1;
  check(info->si_signo == signal && it->uc_mcontext.pc != 0, "what a handler is told");
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  (void)context;
  where = info->si_addr;
  siglongjmp(jump, signal);
}

/* Changes a register, a vector, and where the program goes on. */
static void step_over(int signal, siginfo_t *info, void *context) {
  ucontext_t *it = context;
  struct fpsimd_context *floats = (void *)it->uc_mcontext.__reserved;
  (void)info;
  got = signal;
  it->uc_mcontext.regs[19] = 4711;
  it->uc_mcontext.pc += 4;
  check(floats->head.magic == FPSIMD_MAGIC, "the record of vectors");
  floats->vregs[9] = 815;
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  sigaction(signal, &action, NULL);
}

static void start(void) {
  struct utsname names;
  uname(&names);
  printf("%s, %s, %d\n", names.machine, (char *)getauxval(AT_PLATFORM),
         (getauxval(AT_HWCAP) & (HWCAP_FP | HWCAP_ASIMD | HWCAP_CPUID)) == 3);
}

static void files(void) {
  struct stat told;
  char back[8] = {0};
  int file = open("a", O_RDWR | O_CREAT | O_EXCL, 0600);
  check(write(file, "abcdef", 6) == 6 && !fstat(file, &told), "a file");
  check(told.st_size == 6 && told.st_nlink == 1 && told.st_mode == (S_IFREG | 0600), "its size");
  check(told.st_blksize == 4096 && told.st_mtime > 1600000000, "its block and time");
  check(lseek(file, 2, SEEK_SET) == 2 && read(file, back, 8) == 4, "its end");
  check(open("a", O_RDONLY | O_DIRECTORY) < 0 && errno == ENOTDIR, "no folder");
  check(open(".", O_RDONLY | O_DIRECTORY) >= 0, "a folder");
  check(!symlink("a", "l") && !lstat("l", &told), "a link");
  check(S_ISLNK(told.st_mode), "that it is one");
  check(open("l", O_RDONLY | O_NOFOLLOW) < 0 && errno == ELOOP, "a link itself");
  check(!rename("a", "b") && !unlink("b") && !mkdir("d", 0755), "names");
  char *block = malloc(10 << 20);
  memset(block, 7, 10 << 20);
  check(block[(10 << 20) - 1] == 7, "the heap");
  free(block);
}

static void handlers(void) {
  long changed;
  double vector, own = 1.25;
  kept = own;
  handle(SIGUSR1, on_signal, 0);
  kill(getpid(), SIGUSR1);
  check(got == SIGUSR1 && kept == 1.25 * 2.5 + 1 && own == 1.25, "a handler");
  handle(SIGSEGV, on_fault, 0);
  handle(SIGTRAP, on_fault, 0);
  handle(SIGBUS, on_fault, 0);
  int signal = sigsetjmp(jump, 1);
  if (!signal) *(volatile int *)0x1234 = 1;
  check(signal == SIGSEGV && where == (void *)0x1234, "a page fault");
  signal = sigsetjmp(jump, 1);
  if (!signal) __asm__ volatile("brk #1");
  check(signal == SIGTRAP, "a breakpoint");
  signal = sigsetjmp(jump, 1);
  if (!signal) __asm__ volatile("ldxr x9, [%0]" : : "r"((char *)jump + 1) : "x9", "memory");
  check(signal == SIGBUS && where == (char *)jump + 1, "an address that is not aligned");
  handle(SIGILL, step_over, 0);
  __asm__ volatile("mov x19, #1\n\tfmov d9, #1.0\n\tudf #0\n\tmov %0, x19\n\tfmov %d1, d9"
                   : "=r"(changed), "=w"(vector)
                   :
                   : "x19", "v9");
  long bits;
  memcpy(&bits, &vector, sizeof bits);
  check(got == SIGILL && changed == 4711 && bits == 815, "what a handler changes");
}

static void counter(void) {
  unsigned long first, frequency, second;
  struct timespec rest = {0, 20000000}, before, after;
  __asm__ volatile("mrs %0, cntvct_el0\n\tmrs %1, cntfrq_el0\n\twfe\n\tmrs %2, cntvct_el0"
                   : "=&r"(first), "=&r"(frequency), "=&r"(second));
  check(second > first && frequency == 1000000000, "the counter");
  clock_gettime(CLOCK_MONOTONIC, &before);
  check(!nanosleep(&rest, NULL), "a rest");
  clock_gettime(CLOCK_MONOTONIC, &after);
  long past = (after.tv_sec - before.tv_sec) * 1000000000l + after.tv_nsec - before.tv_nsec;
  check(past >= rest.tv_nsec && time(NULL) > 1600000000, "the time");
}

static _Thread_local long own = 5;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sum;

static void *thread(void *given) {
  for (int at = 0; at < 500; at++) {
    pthread_mutex_lock(&lock);
    sum++;
    pthread_mutex_unlock(&lock);
  }
  own = (long)given;
  sched_yield();
  return (void *)(own * 2);
}

static void threads(void) {
  pthread_t all[4];
  void *came;
  for (long at = 0; at < 4; at++) pthread_create(&all[at], NULL, thread, (void *)(at + 1));
  for (long at = 0; at < 4; at++) {
    pthread_join(all[at], &came);
    check(came == (void *)((at + 1) * 2), "what a thread has of its own");
  }
  check(sum == 2000 && own == 5, "threads");
}

static int ending(pid_t child) {
  int status = -1;
  check(waitpid(child, &status, 0) == child && WIFEXITED(status), "the end of a child");
  return WEXITSTATUS(status);
}

static void processes(char *program) {
  int ends[2];
  char back[8] = {0};
  check(!pipe(ends), "a pipe");
  pid_t child = fork();
  if (!child) _exit(write(ends[1], "piped", 5) == 5 ? 9 : 1);
  check(read(ends[0], back, 5) == 5 && !strcmp(back, "piped"), "what a child wrote");
  check(ending(child) == 9, "a child");
  child = vfork();
  if (!child) execl(program, "again", "anew", (char *)NULL), _exit(1);
  check(ending(child) == 3, "a program");
  /* A read that a signal breaks off is made again, with all of its words. */
  handle(SIGUSR1, on_signal, SA_RESTART);
  got = 0;
  child = fork();
  if (!child) {
    struct timespec rest = {0, 30000000};
    nanosleep(&rest, NULL);
    kill(getppid(), SIGUSR1);
    nanosleep(&rest, NULL);
    _exit(write(ends[1], "!", 1) != 1);
  }
  check(read(ends[0], back, 1) == 1 && *back == '!' && got == SIGUSR1, "a call made again");
  check(!ending(child), "who sent the signal");
}

static void events(void) {
  int poller = epoll_create1(0), count = eventfd(1, 0), pair[2];
  char back;
  struct epoll_event wanted = {EPOLLIN, {.u64 = 0x1122334455667788}}, told[2];
  check(!epoll_ctl(poller, EPOLL_CTL_ADD, count, &wanted), "watching");
  check(epoll_wait(poller, told, 2, -1) == 1, "an event");
  check(told[0].data.u64 == wanted.data.u64 && told[0].events == EPOLLIN, "what it tells");
  check(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "a pair");
  check(write(pair[0], "x", 1) == 1 && read(pair[1], &back, 1) == 1 && back == 'x', "its bytes");
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1) {
    printf("%s %s\n", argv[0], argv[1]);
    return 3;
  }
  start(), files(), handlers(), counter(), threads(), processes(argv[0]), events();
  printf(failed ? "not all well\n" : "all well\n");
  return failed ? 1 : 21;
}

/* Random system calls with random arguments: `fuzz SEED CALLS [EPISODE [FLAGS]]`; `t` in the flags tells
   each call before it is made, `c` has all buffers compared after it.

   A child makes the calls of an episode and ends, however it likes; the next child begins afresh. What
   an episode does follows from seed and number alone, so that one can be made again by itself. Nothing
   is said of results: whoever runs this looks at whether it comes to its end. Of four episodes one is of
   a process with a second thread, and one has its buffers in shared memory. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { NONE, FD, PID, INT, MODE, LONG, SIZE, ADDR, PATH, STRVEC, BYTES, IOV, NAME, LENGTH, MESSAGE };
struct call {
  const char *name;
  int number;
  int seldom;
  unsigned char kinds[6];
};
#include "calls.h"

/* The least status of a child that could not begin. Others are how a child likes to end: 127 is the
   loader's, which finds a function when it is first called, in tables that a call may have hit. */
enum { NOT_READY = 240 };
enum { EPISODE = 2000, FOLDERS = 16, BUFFERS = 16, ROOM = 1 << 14, PLAY = 64 };
/* Buffers are compared once in so many calls. Milliseconds that a call may take which may wait, any
   call, and an episode. */
enum { OFTEN = 16, WAIT = 2, CALL = 300, PATIENCE = 2000 };

static uint64_t state;
static char *buffers, *play, *closed;
static int traced, compared;

static uint64_t next(void) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

static uint64_t below(uint64_t limit) { return next() % limit; }

static const char *const paths[] = {
    "a", "b", "c", "d", "d/e", "d/f", "link", "fifo", "socket", ".", "..", "", "none/x", "a/b",
    "/", "/dev/null", "/dev/zero", "/proc/self/status", "/proc/self/maps", "/proc/self/fd/3",
    "/proc/self/comm", "/proc/uptime", "/etc/passwd", "/sys/kernel/mm/transparent_hugepage/enabled"};

/* Memory that nobody may touch, of all kinds. */
static uint64_t bad(void) {
  static const uint64_t wrong[] = {1,          4095,       0xfffffffffffff000, UINT64_MAX,
                                   1UL << 47,  1UL << 63,  0xffffffff81000000, 0x00007ffffffff000};
  return below(4) ? wrong[below(8)] : (uint64_t)closed + below(4096);
}

static char *room(void) {
  char *at = buffers + below(BUFFERS) * ROOM;
  /* Sometimes the end of it is the end of what may be touched. */
  return below(8) ? at + below(64) * 8 : closed - below(64);
}

static void fill(char *at) {
  uint64_t words[16];
  for (int i = 0; i < 16; i++) {
    uint64_t word = next();
    words[i] = word % 4 == 0 ? word >> (word >> 8 & 63) : word % 4 == 1 ? word >> 60 : 0;
    if (word % 16 == 2) words[i] = (uint64_t)room();
  }
  if (at + sizeof words <= closed) memcpy(at, words, sizeof words);
}

static void fill_vector(struct iovec *all) {
  for (int i = 0; i < 8; i++) {
    all[i].iov_base = below(16) ? room() : (void *)bad();
    all[i].iov_len = below(16) ? below(600) : next() >> below(64);
  }
}

static uint64_t pointer(enum kind kind) {
  if (!below(12)) return below(2) ? bad() : 0;
  char *at = room();
  fill(at);
  if (at + 4096 > closed) return (uint64_t)at;
  switch (kind) {
  case IOV: fill_vector((struct iovec *)at); break;
  case NAME:
    if (below(2)) {
      struct sockaddr_in name = {AF_INET, htons((uint16_t)(1024 + below(8))), {htonl(INADDR_LOOPBACK)}, {0}};
      memcpy(at, &name, sizeof name);
    } else {
      struct sockaddr_un name = {AF_UNIX, "socket"};
      memcpy(at, &name, sizeof name);
    }
    break;
  case LENGTH: *(uint32_t *)at = (uint32_t)(below(4) ? below(128) : next()); break;
  case MESSAGE:
    for (int i = 0; i < 8; i++) {
      struct msghdr message = {0};
      message.msg_iov = (struct iovec *)(at + 1024);
      message.msg_iovlen = below(8);
      if (!below(4)) message.msg_control = room(), message.msg_controllen = below(64);
      if (!below(4)) message.msg_name = room(), message.msg_namelen = (unsigned)below(64);
      memcpy(at + i * 64, &message, sizeof message);
    }
    fill_vector((struct iovec *)(at + 1024));
    break;
  case STRVEC:
    ((const char **)at)[0] = "a";
    ((const char **)at)[1] = NULL;
    break;
  default: break;
  }
  return (uint64_t)at;
}

static uint64_t number(void) {
  switch (below(6)) {
  case 0: return 1UL << below(32);
  case 1: return next() & 0xffffffff;
  case 2: return UINT64_MAX - below(3);
  case 3: return 1UL << below(16) | 1UL << below(16);
  default: return below(18);
  }
}

static uint64_t argument(enum kind kind) {
  switch (kind) {
  case NONE: return 0;
  case FD: return below(16) ? below(24) : (uint64_t)(below(2) ? AT_FDCWD : (int)next());
  /* Others than oneself are nobody's to act on. */
  case PID: return below(2) ? 0 : below(8) ? (uint64_t)getpid() : 0x7ffffffe;
  case INT: return number();
  case MODE: return next() & 0777;
  case LONG: return below(2) ? number() : below(64) * 4096;
  case SIZE:
    if (!below(24)) return next() | 1UL << 62;
    return below(2) ? below(64) : below(2) ? below(16) * 4096 : below(1 << 16);
  case ADDR: return below(12) ? (uint64_t)play + below(PLAY) * 4096 : below(2) ? bad() : 0;
  case PATH:
    if (!below(24)) return bad();
    return (uint64_t)paths[below(sizeof paths / sizeof *paths)];
  default: return pointer(kind);
  }
}

static void limit(int milliseconds) {
  struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
  /* Again, in case that the first one comes before the call that is to end by it. */
  struct itimerval end = {time, time};
  setitimer(ITIMER_REAL, &end, NULL);
}

/* It fails, and what it would write is voted before. */
static void compare(void) { pwrite(-1, buffers, BUFFERS * ROOM, 0); }

static void call_all(void) {
  for (int i = 0; i < EPISODE; i++) {
    const struct call *call = &calls[below(sizeof calls / sizeof *calls)];
    /* One that may wait often does so until the alarm; others make all that follows slow. */
    while (call->seldom && below(32)) call = &calls[below(sizeof calls / sizeof *calls)];
    uint64_t a[6];
    for (int k = 0; k < 6; k++) a[k] = argument(call->kinds[k]);
    if (traced)
      dprintf(100, "%s(%#lx, %#lx, %#lx, %#lx, %#lx, %#lx)\n", call->name, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (call->seldom) limit(WAIT);
    syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (call->seldom) limit(CALL);
    if (compared || i % OFTEN == OFTEN - 1) compare();
  }
}

static void *idle(void *none) {
  for (;;) pause();
  return none;
}

/* The alarm is for the thread that makes the calls. */
static void start_thread(void) {
  sigset_t all, before;
  pthread_t thread;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, NULL, idle, NULL)) _exit(NOT_READY + 4);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Descriptors of all kinds, and memory to play with. */
static void prepare(uint64_t episode) {
  char folder[16];
  int pair[2];
  snprintf(folder, sizeof folder, "w%lu", episode % FOLDERS);
  if (chdir(folder)) _exit(NOT_READY + 0);
  if (traced) dup2(2, 100);
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(null, fd);
  open("a", O_RDWR | O_CREAT, 0600);
  open(".", O_RDONLY | O_DIRECTORY);
  if (!pipe(pair) && write(pair[1], "pipe", 4) != 4) _exit(NOT_READY + 1);
  if (!socketpair(AF_UNIX, SOCK_STREAM, 0, pair) && write(pair[1], "pair", 4) != 4) _exit(NOT_READY + 2);
  socket(AF_INET, SOCK_STREAM, 0);
  socket(AF_INET, SOCK_DGRAM, 0);
  size_t size = BUFFERS * ROOM;
  int flags = MAP_ANONYMOUS | (episode % 4 == 3 ? MAP_SHARED : MAP_PRIVATE);
  buffers = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
  play = mmap(NULL, PLAY * 4096, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
  closed = buffers + size;
  if (buffers == MAP_FAILED || play == MAP_FAILED || mprotect(closed, 4096, PROT_NONE)) _exit(NOT_READY + 3);
  if (episode % 4 == 1) start_thread();
}

static volatile sig_atomic_t late;
static void on_alarm(int signal) { (void)signal; late = 1; }

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  uint64_t episodes = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1000) / EPISODE + 1;
  uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
  traced = argc > 4 && strchr(argv[4], 't');
  compared = argc > 4 && strchr(argv[4], 'c');
  struct sigaction action = {0};
  int ends[3] = {0};
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, NULL);
  for (int i = 0; i < FOLDERS; i++) {
    char folder[16];
    snprintf(folder, sizeof folder, "w%d", i);
    mkdir(folder, 0700);
  }
  for (uint64_t i = first; i < first + episodes; i++) {
    char folder[16];
    snprintf(folder, sizeof folder, "w%lu", i % FOLDERS);
    chmod(folder, 0700);
    printf("%lu\n", i);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      signal(SIGPIPE, SIG_IGN);
      signal(SIGXFSZ, SIG_IGN);
      limit(CALL);
      state = seed * 0x2545f4914f6cdd1d + i;
      prepare(i);
      call_all();
      _exit(0);
    }
    if (child < 0) { perror("fork"); return 2; }
    int status;
    late = 0;
    limit(PATIENCE);
    while (waitpid(child, &status, __WALL) != child) {
      if (errno != EINTR) { perror("waitpid"); return 3; }
      if (late) kill(child, SIGKILL);
    }
    limit(0);
    if (WIFEXITED(status) && WEXITSTATUS(status) >= NOT_READY) {
      fprintf(stderr, "a child could not begin: step %d\n", WEXITSTATUS(status) - NOT_READY);
      return 4;
    }
    ends[WIFEXITED(status) ? 0 : WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGKILL ? 1 : 2]++;
  }
  printf("done: %d calls; %d ended, %d were too slow, %d crashed\n", ends[0] * EPISODE, ends[0], ends[1], ends[2]);
  return 0;
}

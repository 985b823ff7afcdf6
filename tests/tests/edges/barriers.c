// membarrier: which barriers there are, who may ask for them, and that they order.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUERY = 0, GLOBAL = 1, GLOBAL_FAST = 2, ENTER_GLOBAL = 4, OWN = 8, ENTER_OWN = 16 };
enum { CORE = 32, ENTER_CORE = 64, SEQUENCES = 128, ENTER_SEQUENCES = 256, ENTERED = 512 };

static void ask(int command, unsigned flags, int cpu) {
  long result = syscall(SYS_membarrier, command, flags, cpu);
  // Those for restartable sequences are unknown where these are.
  if (command == QUERY && result > 0) result &= ~(SEQUENCES | ENTER_SEQUENCES);
  printf(" %d,%u: %ld", command, flags, result);
  if (result < 0) printf(" (%d)", errno);
}

static void *all(void *who) {
  printf("%s:", (char *)who);
  for (int command = 0; command <= 1024; command = command ? 2 * command : 1)
    if ((command & (ENTER_GLOBAL | ENTER_OWN | ENTER_CORE | SEQUENCES | ENTER_SEQUENCES)) == 0)
      ask(command, 0, -1);
  puts("");
  fflush(stdout);
  return 0;
}

static void in_child(char *who) {
  fflush(stdout);
  if (fork() == 0) {
    all(who);
    exit(0);
  }
  wait(0);
}

static void elsewhere(char *who) {
  pthread_t thread;
  pthread_create(&thread, 0, all, who);
  pthread_join(thread, 0);
}

// Each writes its own word and reads the other's: one of them at least sees what was written.
static volatile int *words;
static int barrier;
static void cross(int own, int *seen, int rounds) {
  for (int round = 1; round <= rounds; round++) {
    words[own] = round;
    if (syscall(SYS_membarrier, barrier, 0, 0)) exit(3);
    seen[round] = words[1 - own] >= round;
  }
}

static int first[201], second[201];
static void *other(void *unused) {
  cross(1, second, 200);
  return unused;
}
static void crossing_threads(void) {
  pthread_t thread;
  int missed = 0;
  barrier = OWN;
  pthread_create(&thread, 0, other, 0);
  cross(0, first, 200);
  pthread_join(thread, 0);
  for (int round = 1; round <= 200; round++) missed += !first[round] && !second[round];
  printf("threads missed %d\n", missed);
}

static void crossing_processes(void) {
  int missed = 0, *shared = (int *)words + 16;
  barrier = GLOBAL_FAST;
  words[0] = words[1] = 0;
  fflush(stdout);
  if (fork() == 0) {
    cross(1, shared, 200);
    exit(0);
  }
  cross(0, first, 200);
  wait(0);
  for (int round = 1; round <= 200; round++) missed += !first[round] && !shared[round];
  printf("processes missed %d\n", missed);
}

int main(int argc, char **argv) {
  if (argc > 1) return all("another program"), 0;
  all("at first");
  for (int command = 0; command <= 64; command = command ? 2 * command : 1) {
    ask(command, 1, 0);
    ask(command, 2, 0);
  }
  ask(-1, 0, 0);
  ask(3, 0, 0);
  ask(SEQUENCES, 2, 0);
  ask(ENTER_SEQUENCES, 1, 0);
  puts("");
  ask(ENTER_CORE, 0, 7);
  all("core");
  ask(ENTER_OWN, 0, 0);
  all("own");
  ask(ENTER_GLOBAL, 0, 0);
  ask(ENTER_GLOBAL, 0, 0);
  elsewhere("thread");
  in_child("child");
  words = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  crossing_threads();
  crossing_processes();
  fflush(stdout);
  execl(argv[0], argv[0], "again", (char *)0);
}

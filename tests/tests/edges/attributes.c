// sched_setattr and sched_getattr: of the program itself, its threads and children.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct attributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
  uint32_t least, most;
  uint64_t beyond[3];
};

enum { RESET = 1, KEEP_POLICY = 8, KEEP_PARAMS = 16, CLAMP = 32 };

static const char *said(long result) {
  return result == -1 ? strerrorname_np(errno) : "done";
}

static void set(const char *what, long pid, void *all, unsigned flags) {
  printf("%s: %s\n", what, said(syscall(SYS_sched_setattr, pid, all, flags)));
}

static void show(long pid, unsigned size) {
  struct attributes all;
  memset(&all, 0xaa, sizeof all);
  long result = syscall(SYS_sched_getattr, pid, &all, size, 0);
  printf("  %s %u, %u %lx %d %u, %lu %lx %lx, %x %x %lx\n", said(result), all.size, all.policy,
         all.flags, all.nice, all.priority, all.runtime, all.deadline, all.period, all.least,
         all.most, all.beyond[0]);
}

static void in_child(void) {
  fflush(stdout);
  if (fork() == 0) {
    show(0, 56);
    show(getppid(), 56);
    struct sched_param param;
    printf("  parent %d", getpriority(PRIO_PROCESS, getppid()));
    printf(" %d %d\n", sched_getscheduler(getppid()), sched_getparam(getppid(), &param));
    fflush(stdout);
    exit(0);
  }
  wait(0);
}

static void *elsewhere(void *unused) {
  show(0, 56);
  show(syscall(SYS_gettid), 56);
  return unused;
}

static void wrong(void) {
  char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page + 4096, 4096);
  struct attributes all = { 56 };
  set("nothing", 0, 0, 0);
  set("flags", 0, &all, 1);
  set("below", -1, &all, 0);
  set("nobody", 4194304, &all, 0);
  set("nowhere", 0, (void *)8, 0);
  set("nobody nowhere", 4194304, (void *)8, 0);
  uint32_t sizes[] = { 1, 47, 48, 49, 55, 56, 64, 80, 4097, -1 };
  for (int i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    all.size = sizes[i];
    printf("size %u: %s", sizes[i], said(syscall(SYS_sched_setattr, 0, &all, 0)));
    printf(", %u\n", all.size);
    memcpy(page + 4096 - 48, &all, 48);
    printf("  at the end: %s\n", said(syscall(SYS_sched_setattr, 0, page + 4096 - 48, 0)));
  }
  static union {
    struct attributes all;
    char bytes[4096];
  } largest = { { 4096 } };
  set("largest", 0, &largest, 0);
  largest.bytes[4095] = 1;
  set("largest, unknown", 0, &largest, 0);
  all.size = 64;
  all.beyond[0] = 1;
  set("unknown", 0, &all, 0);
  printf("told %u\n", all.size);
  all = (struct attributes){ 48, .flags = CLAMP };
  set("no room for a bound", 0, &all, 0);
  all = (struct attributes){ 56, .policy = 17 };
  set("no policy", 0, &all, 0);
  all.policy = -1;
  set("policy below", 0, &all, 0);
  all = (struct attributes){ 56, .policy = 0, .priority = 3 };
  set("priority", 0, &all, 0);
  all = (struct attributes){ 56, .flags = 1 << 20 };
  set("unknown flag", 0, &all, 0);
  all = (struct attributes){ 56, .policy = SCHED_FIFO };
  set("no priority", 0, &all, 0);
  long get[][3] = { { 0, 47 }, { 0, 4097 }, { -1, 56 }, { 4194304, 56 } };
  for (int i = 0; i < 4; i++)
    puts(said(syscall(SYS_sched_getattr, get[i][0], &all, get[i][1], 0)));
  puts(said(syscall(SYS_sched_getattr, 0, &all, 56, 1)));
  puts(said(syscall(SYS_sched_getattr, 0, 0, 56, 0)));
  puts(said(syscall(SYS_sched_getattr, 0, (void *)8, 56, 0)));
}

static void unprivileged(void) {
  struct attributes all = { 56, .policy = 6, .runtime = 10000000, .deadline = 30000000 };
  if (getuid() == 0 && setresuid(61234, 61234, 61234)) exit(2);
  setrlimit(RLIMIT_NICE, &(struct rlimit){ 0, 0 });
  setrlimit(RLIMIT_RTPRIO, &(struct rlimit){ 0, 0 });
  set("deadline", 0, &all, 0);
  all.deadline = 1;
  set("wrong deadline", 0, &all, 0);
  all = (struct attributes){ 56, .policy = SCHED_FIFO, .priority = 1 };
  set("real time", 0, &all, 0);
  all = (struct attributes){ 56, .nice = 12 };
  set("nicer", 0, &all, 0);
  all.nice = 11;
  set("less nice", 0, &all, 0);
  show(0, 56);
}

int main(void) {
  show(0, 48);
  show(0, 56);
  show(getpid(), 80);
  struct attributes all = { 0, .policy = SCHED_BATCH, .nice = 3 };
  set("batch", 0, &all, 0);
  show(0, 56);
  all = (struct attributes){ 56, .policy = SCHED_OTHER, .nice = 30, .runtime = 3000000 };
  set("turns", getpid(), &all, 0);
  show(0, 56);
  in_child();
  all = (struct attributes){ 56, .policy = SCHED_BATCH, .flags = KEEP_PARAMS, .nice = 1 };
  set("kept parameters", 0, &all, 0);
  show(0, 56);
  all = (struct attributes){ 56, .policy = 17, .flags = KEEP_POLICY, .nice = 19, .runtime = 1 };
  set("kept policy", 0, &all, 0);
  show(0, 56);
  pthread_t thread;
  pthread_create(&thread, 0, elsewhere, 0);
  pthread_join(thread, 0);
  all = (struct attributes){ 56, .nice = 19, .flags = RESET, .runtime = -1 };
  set("not for children", 0, &all, 0);
  show(0, 56);
  in_child();
  all = (struct attributes){ 56, .policy = SCHED_IDLE, .nice = 19 };
  set("idle", 0, &all, 0);
  show(0, 56);
  wrong();
  show(0, 56);
  unprivileged();
  return 0;
}

// Who asks for another process to be scheduled otherwise, or for its robust list, is told what is
// wrong with that. Nothing here is allowed.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *what, long result) {
  printf("  %s: %s\n", what, result < 0 ? strerrorname_np(errno) : "done");
  fflush(stdout);
}

static void ask(const char *whom, pid_t pid) {
  struct sched_param zero = {0}, one = {1};
  struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority, more[6]; }
      all = {48}, wrong = {47};
  cpu_set_t set;
  void *nowhere = (void *)8, *head;
  size_t len;
  sched_getaffinity(0, sizeof set, &set);
  puts(whom);
  tell("parameters", sched_setparam(pid, &zero));
  tell("not of its policy", sched_setparam(pid, &one));
  tell("no parameters", syscall(SYS_sched_setparam, pid, 0));
  tell("nowhere", sched_setparam(pid, nowhere));
  tell("policy", sched_setscheduler(pid, SCHED_OTHER, &zero));
  tell("not for children", sched_setscheduler(pid, SCHED_BATCH | SCHED_RESET_ON_FORK, &zero));
  tell("no policy", sched_setscheduler(pid, 99, &zero));
  tell("policy below", sched_setscheduler(pid, -1, &zero));
  tell("not its priority", sched_setscheduler(pid, SCHED_OTHER, &one));
  tell("real time", sched_setscheduler(pid, SCHED_FIFO, &one));
  tell("no priority", sched_setscheduler(pid, SCHED_FIFO, &zero));
  tell("deadline", sched_setscheduler(pid, 6, &zero));
  tell("nowhere", sched_setscheduler(pid, SCHED_OTHER, nowhere));
  tell("attributes", syscall(SYS_sched_setattr, pid, &all, 0));
  tell("of that size", syscall(SYS_sched_setattr, pid, &wrong, 0));
  tell("flags", syscall(SYS_sched_setattr, pid, &all, 1));
  tell("CPUs", sched_setaffinity(pid, sizeof set, &set));
  tell("nowhere", sched_setaffinity(pid, 64, nowhere));
  tell("nice", setpriority(PRIO_PROCESS, pid, 5));
  tell("less nice", setpriority(PRIO_PROCESS, pid, -5));
  tell("robust list", syscall(SYS_get_robust_list, pid, &head, &len));
  tell("robust list nowhere", syscall(SYS_get_robust_list, pid, nowhere, &len));
}

int main(void) {
  // As another user, so that a parent and the first process of all are others.
  pid_t parent = getpid();
  int own = getuid() != 0;
  if (fork() == 0) {
    if (own || setresuid(61234, 61234, 61234)) {
      puts("not root");
      return 0;
    }
    ask("parent", parent);
    ask("first of all", 1);
    ask("nobody", 4194304);
    ask("below", -1);
    return 0;
  }
  wait(0);
  return 0;
}

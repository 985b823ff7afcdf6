// Children that nobody awaits, and what children have used.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t told;
static void on(int number) { (void)number; told++; }

static void dispose(void (*handler)(int), int flags) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  sigaction(SIGCHLD, &action, 0);
}

// Waits until all children are gone, none of which is to be found.
static void none_left(const char *what) {
  int status;
  pid_t pid = waitpid(-1, &status, 0);
  while (pid == -1 && errno == EINTR) pid = waitpid(-1, &status, 0);
  printf("%s %d %d\n", what, pid, errno == ECHILD);
}

static pid_t child(int status) {
  pid_t pid = fork();
  if (!pid) _exit(status);
  return pid;
}

static void ignored(void) {
  dispose(SIG_IGN, 0);
  for (int i = 0; i < 20; i++) child(i);
  none_left("ignored");
  pid_t pid = child(1);
  while (!kill(pid, 0)) usleep(1000);
  printf("gone %d\n", errno == ESRCH);
  dispose(on, SA_NOCLDWAIT);
  child(2);
  none_left("not awaited");
  printf("told %d\n", told > 0);
  dispose(SIG_IGN, 0);
  pid_t spawned;
  char *name[] = {"true", 0};
  printf("spawn %d\n", posix_spawnp(&spawned, "true", 0, 0, name, 0));
  none_left("spawned");
  printf("system %d\n", system("exit 3"));
  // Inherited by a program, and then by its children.
  dispose(SIG_IGN, 0);
  fflush(stdout);
  if (!fork()) execlp("bash", "bash", "-c", "trap | grep -c CHLD; sleep 0.01 & wait; echo $?", NULL);
  none_left("bash");
  dispose(SIG_DFL, 0);
  pid = child(5);
  int status;
  printf("awaited %d", waitpid(pid, &status, 0) == pid);
  printf(" %d\n", WEXITSTATUS(status));
}

static double seconds(struct rusage *usage) {
  return usage->ru_utime.tv_sec + usage->ru_utime.tv_usec / 1e6 + usage->ru_stime.tv_sec +
         usage->ru_stime.tv_usec / 1e6;
}

// Computes for so many seconds of CPU time.
static void compute(double time) {
  struct timespec now;
  do {
    for (volatile int i = 0; i < 100000; i++);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while (now.tv_sec + now.tv_nsec / 1e9 < time);
}

static void used(void) {
  struct rusage before, one, after;
  struct tms ticks, later;
  getrusage(RUSAGE_CHILDREN, &before);
  times(&ticks);
  pid_t pid = fork();
  if (!pid) {
    // A grandchild counts once it has been awaited.
    if (!fork()) {
      compute(0.2);
      _exit(0);
    }
    wait(0);
    compute(0.2);
    char *room = malloc(32 << 20);
    for (int i = 0; i < 32 << 20; i += 4096) room[i] = 1;
    _exit(0);
  }
  siginfo_t info;
  waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
  getrusage(RUSAGE_CHILDREN, &after);
  printf("not yet %d\n", seconds(&after) == seconds(&before));
  printf("one %d", wait4(pid, 0, 0, &one) == pid);
  getrusage(RUSAGE_CHILDREN, &after);
  times(&later);
  printf(" %d %d %d", seconds(&one) >= 0.39, one.ru_maxrss >= 32 << 10, one.ru_minflt > 4096);
  double more = seconds(&after) - seconds(&before);
  printf(" %d", more > seconds(&one) - 0.001 && more < seconds(&one) + 0.001);
  clock_t all = later.tms_cutime + later.tms_cstime - ticks.tms_cutime - ticks.tms_cstime;
  printf(" %d\n", all >= 37);
  pid = fork();
  if (!pid) {
    getrusage(RUSAGE_CHILDREN, &after);
    printf("child %d\n", seconds(&after) == 0);
    fflush(stdout);
    _exit(0);
  }
  waitpid(pid, 0, 0);
  getrusage(RUSAGE_CHILDREN, &before);
  dispose(SIG_IGN, 0);
  if (!fork()) {
    compute(0.1);
    _exit(0);
  }
  none_left("unawaited");
  getrusage(RUSAGE_CHILDREN, &after);
  printf("not counted %d\n", seconds(&after) == seconds(&before));
}

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  ignored();
  used();
  return 0;
}

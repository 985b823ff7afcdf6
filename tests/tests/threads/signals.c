// Who gets a signal, and what it does to a thread that waits. Threads are signalled again and again
// until they answer, so nothing depends on when they begin to wait.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_t leader;
static atomic_int count, by_leader, done;
static void on(int number) {
  (void)number;
  count++;
  by_leader += pthread_equal(pthread_self(), leader) != 0;
}

static void act(int flags) {
  struct sigaction action = {.sa_handler = on, .sa_flags = flags};
  sigaction(SIGUSR1, &action, 0);
}

static void *kills_all(void *unused) {
  (void)unused;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, 0);
  kill(getpid(), SIGUSR1);
  return 0;
}

static void *sleeps(void *unused) {
  (void)unused;
  struct timespec wish = {1000, 0}, rest = {0, 0};
  long result = nanosleep(&wish, &rest);
  result = result == -1 && errno == EINTR && rest.tv_sec > 0;
  done = 1;
  return (void *)result;
}

static void *reads(void *argument) {
  char c;
  long result = read((int)(long)argument, &c, 1);
  result = result < 0 ? -errno : c;
  done = 1;
  return (void *)result;
}

static void *waits(void *argument) {
  long result = sem_wait(argument);
  done = 1;
  return (void *)result;
}

/// Signals a thread until it says that it is done.
static long pester(void *(*f)(void *), void *argument) {
  pthread_t thread;
  void *result;
  done = 0;
  pthread_create(&thread, 0, f, argument);
  while (!done) {
    pthread_kill(thread, SIGUSR1);
    sched_yield();
  }
  pthread_join(thread, &result);
  return (long)result;
}

static void *others(void *argument) {
  pthread_t *thread = argument;
  for (int i = 0; i < 50; i++) {
    pthread_kill(*thread, SIGUSR1);
    sched_yield();
  }
  return 0;
}

/// As before, but the waiting is restarted, and then ended.
static void restarted(void) {
  int ends[2];
  pthread_t thread, killer;
  void *result;
  pipe(ends);
  act(SA_RESTART);
  pthread_create(&thread, 0, reads, (void *)(long)ends[0]);
  pthread_create(&killer, 0, others, &thread);
  pthread_join(killer, 0);
  write(ends[1], "z", 1);
  pthread_join(thread, &result);
  sem_t sem;
  sem_init(&sem, 0, 0);
  printf("%ld ", (long)result);
  pthread_create(&thread, 0, waits, &sem);
  pthread_create(&killer, 0, others, &thread);
  pthread_join(killer, 0);
  sem_post(&sem);
  pthread_join(thread, &result);
  printf("%ld\n", (long)result);
}

static void *masks(void *unused) {
  (void)unused;
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, &old);
  raise(SIGUSR2);
  sigpending(&set);
  return (void *)(long)(sigismember(&set, SIGUSR2) + 2 * sigismember(&old, SIGUSR2));
}

static sem_t taken;
static void *collects(void *argument) {
  int number;
  for (int i = 0; i < 3; i++) {
    sigwait(argument, &number);
    printf("%d ", number);
    sem_post(&taken);
  }
  return 0;
}

/// A thread that waits for signals which all block.
static void awaited(void) {
  int numbers[] = {SIGUSR2, SIGCHLD, SIGUSR2};
  struct timespec soon = {0, 10000000}, now = {0, 0};
  pthread_t thread;
  siginfo_t info;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  sigaddset(&set, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &set, 0);
  printf("%d", sigtimedwait(&set, 0, &soon));
  printf(" %d", errno == EAGAIN);
  printf(" %d\n", sigtimedwait(&set, 0, &now));
  sem_init(&taken, 0, 0);
  pthread_create(&thread, 0, collects, &set);
  for (int i = 0; i < 3; i++) {
    kill(getpid(), numbers[i]);
    sem_wait(&taken);
  }
  pthread_join(thread, 0);
  raise(SIGUSR2);
  printf("%d", sigwaitinfo(&set, &info));
  printf(" %d %d\n", info.si_signo, info.si_pid == getpid());
}

int main(void) {
  pthread_t thread;
  void *result;
  int ends[2];
  leader = pthread_self();
  act(0);
  pthread_create(&thread, 0, kills_all, 0);
  pthread_join(thread, 0);
  while (!count) sched_yield();
  printf("%d %d\n", count, by_leader);
  printf("%ld\n", pester(sleeps, 0));
  pipe(ends);
  printf("%ld\n", pester(reads, (void *)(long)ends[0]));
  printf("%d\n", count > by_leader);
  restarted();
  pthread_create(&thread, 0, masks, 0);
  pthread_join(thread, &result);
  sigset_t set;
  pthread_sigmask(SIG_BLOCK, 0, &set);
  printf("%ld %d\n", (long)result, sigismember(&set, SIGUSR2));
  awaited();
  printf("%d", pthread_kill(pthread_self(), 0));
  printf(" %ld", syscall(SYS_tgkill, getpid(), 1, 0));
  printf(" %d\n", errno == ESRCH);
  return 0;
}

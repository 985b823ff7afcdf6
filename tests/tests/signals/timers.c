// Timers of all kinds: that they signal, how often, with what, and what they say is left.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile sig_atomic_t count, code, value;
static void on(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  count++;
  code = info->si_code;
  value = info->si_value.sival_int;
}

static void handle(int number, int flags) {
  struct sigaction action = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | flags};
  sigaction(number, &action, 0);
}

static long long elapsed(struct timespec since) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - since.tv_sec) * 1000000000LL + now.tv_nsec - since.tv_nsec;
}

static struct timespec start(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now;
}

static void old_ones(void) {
  struct itimerval set = {{0, 2000}, {0, 5000}}, got;
  handle(SIGALRM, 0);
  printf("%u", alarm(100));
  printf(" %u", alarm(50));
  printf(" %u\n", alarm(0));
  struct timespec since = start();
  setitimer(ITIMER_REAL, &set, 0);
  for (int i = 0; i < 5; i++) pause();
  printf("%d %d %d\n", count >= 5, code == SI_KERNEL, elapsed(since) >= 13000000);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {1000, 0}}, &got);
  printf("%ld %d\n", got.it_interval.tv_usec, got.it_value.tv_usec <= 2000);
  getitimer(ITIMER_REAL, &got);
  printf("%d %ld\n", got.it_value.tv_sec >= 900, got.it_interval.tv_sec);
  printf("%d", setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 1000000}}, 0));
  printf(" %d", errno == EINVAL);
  printf(" %d\n", setitimer(9, &set, 0));
  // A time-out that a signal cuts short, and one that an ignored signal does not.
  count = 0;
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 10000}}, 0);
  struct timespec rest = {0, 0}, wish = {1000, 0};
  int result = nanosleep(&wish, &rest);
  printf("%d %d %d\n", result, errno == EINTR, rest.tv_sec >= 900);
  signal(SIGALRM, SIG_IGN);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 3000}, {0, 3000}}, 0);
  since = start();
  struct timeval tv = {0, 30000};
  printf("%d", select(0, 0, 0, 0, &tv));
  printf(" %d", elapsed(since) >= 30000000);
  printf(" %ld %ld\n", (long)tv.tv_sec, (long)tv.tv_usec);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
}

static void cpu_ones(void) {
  int numbers[] = {SIGVTALRM, SIGPROF}, kinds[] = {ITIMER_VIRTUAL, ITIMER_PROF};
  for (int i = 0; i < 2; i++) {
    count = 0;
    handle(numbers[i], 0);
    setitimer(kinds[i], &(struct itimerval){{0, 0}, {0, 20000}}, 0);
    while (!count) clock();
    printf("%d", count);
  }
  printf("\n");
}

static timer_t make(int clock, int notify, int number, int value) {
  struct sigevent event = {.sigev_notify = notify, .sigev_signo = number};
  event.sigev_value.sival_int = value;
  timer_t timer;
  if (timer_create(clock, &event, &timer)) perror("timer_create");
  return timer;
}

static void new_ones(void) {
  int clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_PROCESS_CPUTIME_ID};
  handle(SIGRTMIN, 0);
  for (int i = 0; i < 4; i++) {
    timer_t timer = make(clocks[i], SIGEV_SIGNAL, SIGRTMIN, 40 + i);
    struct itimerspec set = {{0, 0}, {0, 5000000}}, got;
    count = 0;
    timer_settime(timer, 0, &set, 0);
    while (!count) clock();
    timer_gettime(timer, &got);
    printf("%d %d %d %ld %d\n", count, code == SI_TIMER, value, got.it_value.tv_nsec,
           timer_getoverrun(timer));
    timer_delete(timer);
  }
  // An absolute time, and one that is past.
  timer_t timer = make(CLOCK_REALTIME, SIGEV_SIGNAL, SIGRTMIN, 1);
  struct itimerspec set = {{0, 0}, {0, 0}};
  for (int ahead = -1; ahead <= 1; ahead++) {
    clock_gettime(CLOCK_REALTIME, &set.it_value);
    set.it_value.tv_sec += ahead < 0 ? -5 : 0;
    set.it_value.tv_nsec += ahead * 1000000L;
    if (set.it_value.tv_nsec < 0) set.it_value.tv_nsec = 0;
    if (set.it_value.tv_nsec > 999999999) set.it_value.tv_nsec = 999999999;
    count = 0;
    timer_settime(timer, TIMER_ABSTIME, &set, 0);
    while (!count) clock();
    printf("%d ", count);
  }
  timer_delete(timer);
  // Nobody is told.
  timer = make(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0);
  set = (struct itimerspec){{0, 0}, {0, 1000000}};
  timer_settime(timer, 0, &set, 0);
  struct itimerspec got;
  do timer_gettime(timer, &got);
  while (got.it_value.tv_nsec);
  set.it_value.tv_sec = 100;
  timer_settime(timer, 0, &set, &got);
  timer_settime(timer, 0, &set, &got);
  printf("%ld %d\n", got.it_interval.tv_sec, got.it_value.tv_sec >= 90);
  timer_delete(timer);
  // Expirations while the signal is blocked are counted.
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, 0);
  timer = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 1, 7);
  set = (struct itimerspec){{0, 1000000}, {0, 1000000}};
  timer_settime(timer, 0, &set, 0);
  usleep(30000);
  siginfo_t info;
  int number = sigwaitinfo(&all, &info);
  printf("%d %d %d %d %d\n", number - SIGRTMIN, info.si_code == SI_TIMER, info.si_value.sival_int,
         info.si_overrun >= 20, timer_getoverrun(timer) >= 20);
  timer_delete(timer);
  struct timespec now = {0, 0};
  while (sigtimedwait(&all, 0, &now) > 0);
  sigprocmask(SIG_UNBLOCK, &all, 0);
  printf("%ld", syscall(SYS_timer_delete, 99));
  printf(" %d", errno == EINVAL);
  printf(" %ld\n", syscall(SYS_timer_create, 77, 0, &number));
}

static pthread_t who;
static void tell(int number) {
  (void)number;
  who = pthread_self();
}

static void *waits(void *unused) {
  (void)unused;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
  event.sigev_notify_thread_id = gettid();
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  timer_settime(timer, 0, &(struct itimerspec){{0, 0}, {0, 3000000}}, 0);
  pause();
  printf("%d\n", pthread_equal(who, pthread_self()) != 0);
  timer_delete(timer);
  return 0;
}

static void called(union sigval value) { __atomic_store_n((int *)value.sival_ptr, 5, 5); }

static void threads(void) {
  pthread_t thread;
  signal(SIGUSR1, tell);
  pthread_create(&thread, 0, waits, 0);
  pthread_join(thread, 0);
  int word = 0;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = called};
  event.sigev_value.sival_ptr = &word;
  timer_t timer;
  printf("%d", timer_create(CLOCK_MONOTONIC, &event, &timer));
  timer_settime(timer, 0, &(struct itimerspec){{0, 0}, {0, 3000000}}, 0);
  while (!__atomic_load_n(&word, 5)) usleep(1000);
  printf(" %d\n", word);
  timer_delete(timer);
}

static int ends(void (*what)(void)) {
  int status;
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    signal(SIGALRM, SIG_DFL);
    what();
    _exit(0);
  }
  waitpid(pid, &status, 0);
  return status;
}

static void computes(void) {
  alarm(1);
  for (volatile int i = 0;; i++);
}

static void inherits(void) { _exit(alarm(0) != 0); }

static void replaced(void) {
  alarm(1);
  execlp("sleep", "sleep", "100", (char *)0);
}

int main(void) {
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  old_ones();
  cpu_ones();
  new_ones();
  threads();
  printf("%d ", WTERMSIG(ends(computes)) == SIGALRM);
  alarm(1000);
  printf("%d ", ends(inherits));
  printf("%d\n", WTERMSIG(ends(replaced)) == SIGALRM);
  return 0;
}

/* Timers that end in a signal. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static atomic_int rang;
static volatile int by_system;

static void ring(int signal, siginfo_t *info, void *context)
{
    (void)context;
    atomic_fetch_add(&rang, signal == SIGALRM);
    by_system = info->si_code == SI_KERNEL;
}

static void handle(int flags)
{
    struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO | flags};
    sigaction(SIGALRM, &action, 0);
}

static void *joined(void *nothing)
{
    while (atomic_load(&rang) < 3)
        syscall(SYS_gettid);
    return nothing;
}

static void by_thread(union sigval value)
{
    atomic_fetch_add((atomic_int *)value.sival_ptr, 1);
}

/* Timers that are made: by a signal that is waited for, and by a thread of the library's. */
static void made(void)
{
    static atomic_int ran;
    timer_t timer, other;
    sigset_t set;
    siginfo_t info;
    struct itimerspec often = {{0, 10000000}, {0, 10000000}}, left;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    event.sigev_value.sival_int = 4711;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    int made = timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &often, 0);
    for (int round = 0; round < 3; round++)
        made += sigwaitinfo(&set, &info) == SIGUSR1;
    timer_gettime(timer, &left);
    printf("made %d, code %d, value %d, interval %d\n", made, info.si_code,
           info.si_value.sival_int, (int)left.it_interval.tv_nsec);
    int deleted = timer_delete(timer), again = timer_delete(timer);
    printf("deleted %d %d\n", deleted, again);
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD;
    event.sigev_notify_function = by_thread;
    event.sigev_value.sival_ptr = &ran;
    made = timer_create(CLOCK_REALTIME, &event, &other);
    timer_settime(other, 0, &often, 0);
    while (atomic_load(&ran) < 2)
        sched_yield();
    printf("by a thread %d %d\n", made, timer_delete(other));
}

int main(int argc, char **argv)
{
    (void)argv;
    pthread_t other;
    int pipes[2];
    char byte;
    struct itimerval soon = {{0, 0}, {0, 20000}}, again = {{0, 20000}, {0, 20000}};
    struct itimerval often = {{0, 10000}, {0, 10000}}, left, none;
    memset(&none, 0, sizeof none);
    handle(0);
    if (pipe(pipes))
        return 1;
    unsigned before = alarm(1000);
    unsigned then = alarm(0);
    printf("alarm %u, %d\n", before, then > 900 && then <= 1000);
    /* What waits for a ring that may come before it waits gets another one. */
    setitimer(ITIMER_REAL, &again, &left);
    int paused = pause(), why = errno;
    setitimer(ITIMER_REAL, &none, 0);
    printf("pause %d %d, rang %d, by the system %d\n", paused, why == EINTR, rang > 0, by_system);
    int had = rang;
    setitimer(ITIMER_REAL, &soon, 0);
    while (rang == had)
        sched_yield();
    getitimer(ITIMER_REAL, &left);
    printf("over %d\n", left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
    setitimer(ITIMER_REAL, &again, 0);
    int got = (int)read(pipes[0], &byte, 1);
    printf("read %d %d\n", got, errno == EINTR);
    /* A library's function, which sees that its time is not over. */
    printf("slept %d\n", sleep(1000) > 900);
    setitimer(ITIMER_REAL, &none, 0);
    had = rang;
    alarm(1);
    while (rang == had)
        sched_yield();
    /* Another thread goes on until it has rung often enough. */
    atomic_store(&rang, 0);
    handle(SA_RESTART);
    setitimer(ITIMER_REAL, &often, 0);
    pthread_create(&other, 0, joined, 0);
    pthread_join(other, 0);
    setitimer(ITIMER_REAL, &none, &left);
    printf("often %d, interval %d\n", rang >= 3, (int)left.it_interval.tv_usec);
    /* While it is blocked it comes once. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, 0);
    atomic_store(&rang, 0);
    setitimer(ITIMER_REAL, &soon, 0);
    int taken = sigwaitinfo(&set, 0);
    printf("taken %d, rang %d\n", taken == SIGALRM, rang);
    made();
    soon.it_value.tv_usec = 1000000;
    int wrong = setitimer(ITIMER_REAL, &soon, 0);
    printf("wrong %d %d\n", wrong, errno == EINVAL);
    fflush(stdout);
    if (argc < 2)
        return 0;
    signal(SIGALRM, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &set, 0);
    alarm(1);
    for (;;)
        pause();
}

/* Works, and has signals come meanwhile: from itself, from a timer, from faults, from a thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

/* An instruction that is none, its length, and where a handler finds the next one. */
#ifdef __aarch64__
#define UNDEFINED "udf #0"
#define LENGTH 4
#define NEXT(context) (context)->uc_mcontext.pc
#else
#define UNDEFINED "ud2"
#define LENGTH 2
#define NEXT(context) (context)->uc_mcontext.gregs[REG_RIP]
#endif

static volatile double sum = 1;
static volatile int rang, faults, sent;
static atomic_int asked, end;
static pthread_t main_thread;

static void count(int signal, siginfo_t *info, void *context)
{
    ucontext_t *it = context;
    sum = sum * 0.75 + info->si_signo;
    if (signal == SIGALRM)
        rang++;
    else if (signal == SIGILL)
        faults++, NEXT(it) += LENGTH;
    else
        sent++;
}

static uint64_t hash(uint64_t rounds)
{
    uint64_t digest = 1;
    for (uint64_t i = 0; i < rounds; i++) {
        digest = (digest ^ i) * 0x9e3779b97f4a7c15ull;
        digest ^= digest >> 29;
    }
    return digest;
}

static void *other(void *nothing)
{
    while (!atomic_load(&end))
        if (atomic_exchange(&asked, 0))
            pthread_kill(main_thread, SIGUSR2);
        else
            sched_yield();
    return nothing;
}

int main(int argc, char **argv)
{
    const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGILL};
    struct itimerval once = {{0, 0}, {0, 10000}};
    sigset_t alarms, old;
    pthread_t thread;
    uint64_t rounds = argc > 1 ? strtoull(argv[1], 0, 10) : 1000;
    main_thread = pthread_self();
    for (int at = 0; at < 4; at++) {
        struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO};
        sigaction(signals[at], &action, 0);
    }
    pthread_create(&thread, 0, other, 0);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigaddset(&alarms, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &alarms, &old);
    for (int phase = 1; phase <= 10; phase++) {
        double before = phase / 3.0;
        for (int round = 0; round < 20; round++)
            raise(SIGUSR1);
        __asm__ volatile(UNDEFINED);
        atomic_store(&asked, 1);
        while (sent < 21 * phase)
            sigsuspend(&old);
        setitimer(ITIMER_REAL, &once, 0);
        while (rang < phase)
            sigsuspend(&old);
        uint64_t digest = hash(rounds);
        printf("%d: sent %d, rang %d, faults %d, %.9f %.3f %016llx\n", phase, sent, rang, faults,
               sum, before, (unsigned long long)digest);
        fflush(stdout);
    }
    atomic_store(&end, 1);
    pthread_join(thread, 0);
    return 21;
}

/* Which thread of several takes a signal. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_t main_thread, takers[3];
static atomic_int took[3], by_main, by_other, ready, end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int pipes[2];

static void handle(int signal)
{
    (void)signal;
    atomic_fetch_add(pthread_equal(pthread_self(), main_thread) ? &by_main : &by_other, 1);
}

/* Takes signals of one kind for the whole process. */
static void *server(void *what)
{
    long index = (long)what;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + index);
    int signal = 0;
    for (int round = 0; round < 5; round++)
        if (sigwait(&set, &signal) == 0 && signal == SIGRTMIN + index)
            atomic_fetch_add(&took[index], 1);
    return 0;
}

static void *open_to_it(void *nothing)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    atomic_store(&ready, 1);
    while (!atomic_load(&end))
        sched_yield();
    return nothing;
}

static void unlock(void *which)
{
    pthread_mutex_unlock(which);
}

static void undo(void *flag)
{
    atomic_store((atomic_int *)flag, 1);
}

/* Waits without an end, until it is cancelled. */
static void *waits(void *how)
{
    static atomic_int undone;
    char byte;
    pthread_cleanup_push(undo, &undone);
    if (how) {
        pthread_mutex_lock(&lock);
        pthread_cleanup_push(unlock, &lock);
        atomic_store(&ready, 1);
        for (;;)
            pthread_cond_wait(&never, &lock);
        pthread_cleanup_pop(1);
    }
    atomic_store(&ready, 1);
    while (read(pipes[0], &byte, 1) < 1)
        ;
    pthread_cleanup_pop(0);
    return &undone;
}

static void cancel(void *how)
{
    pthread_t thread;
    void *result = 0;
    atomic_store(&ready, 0);
    pthread_create(&thread, 0, waits, how);
    while (!atomic_load(&ready))
        sched_yield();
    pthread_cancel(thread);
    pthread_join(thread, &result);
    int free = pthread_mutex_trylock(&lock) == 0;
    if (free)
        pthread_mutex_unlock(&lock);
    printf("cancelled %d, free %d\n", result == PTHREAD_CANCELED, free);
}

static void serve(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    for (long index = 0; index < 3; index++)
        pthread_create(&takers[index], 0, server, (void *)index);
    for (int round = 0; round < 5; round++)
        for (int index = 2; index >= 0; index--)
            kill(getpid(), SIGRTMIN + index);
    for (int index = 0; index < 3; index++)
        pthread_join(takers[index], 0);
    printf("took %d %d %d\n", took[0], took[1], took[2]);
}

static void choose(void)
{
    pthread_t other;
    signal(SIGUSR1, handle);
    pthread_create(&other, 0, open_to_it, 0);
    while (!atomic_load(&ready))
        sched_yield();
    /* The first thread blocks it: so it is the other one's. */
    kill(getpid(), SIGUSR1);
    while (atomic_load(&by_other) < 1)
        sched_yield();
    pthread_kill(main_thread, SIGUSR1);
    printf("main %d, other %d\n", by_main, by_other);
    sigset_t set;
    sigemptyset(&set);
    pthread_sigmask(SIG_SETMASK, &set, 0);
    printf("main %d, other %d\n", by_main, by_other);
    atomic_store(&end, 1);
    pthread_join(other, 0);
    printf("gone %d\n", pthread_kill(main_thread, 0));
}

int main(void)
{
    main_thread = pthread_self();
    if (pipe(pipes))
        return 1;
    serve();
    choose();
    cancel(0);
    cancel(&lock);
    fflush(stdout);
    signal(SIGTERM, SIG_DFL);
    pthread_create(&takers[0], 0, waits, 0);
    atomic_store(&ready, 0);
    kill(getpid(), SIGTERM);
    for (;;)
        sched_yield();
}

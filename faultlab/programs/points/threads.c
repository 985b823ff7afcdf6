// Threads that wait for each other, or race, without a call, in the way that the first argument
// names. The second one is their number, the third how many rounds each makes: 0 for no end. What
// a lock protects must be whole at the end, and what comes of it is printed.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int threads;
static long rounds;

// Without a lock what is counted gets lost; with one it does not.
static volatile long counter;
static volatile long shadow;

static void work(void) {
    long now = counter;
    for (volatile int i = 0; i < 200; i++)
        ;
    counter = now + 1;
    shadow = shadow + 1;
}

static void race(long number) {
    (void)number;
    for (int i = 0; i < 1000; i++)
        counter++;
}

static atomic_flag flag = ATOMIC_FLAG_INIT;

static void spinlock(long number) {
    (void)number;
    while (atomic_flag_test_and_set(&flag))
        ;
    work();
    atomic_flag_clear(&flag);
}

static atomic_uint drawn, served;

static void ticket(long number) {
    (void)number;
    unsigned own = atomic_fetch_add(&drawn, 1);
    while (atomic_load(&served) != own)
        ;
    work();
    atomic_store(&served, own + 1);
}

static pthread_spinlock_t spin;

static void pspin(long number) {
    (void)number;
    pthread_spin_lock(&spin);
    work();
    pthread_spin_unlock(&spin);
}

static atomic_int arrived, phase;

static void barrier(long number) {
    int now = atomic_load(&phase);
    if (number == now % threads)
        work();
    if (atomic_fetch_add(&arrived, 1) == threads - 1) {
        atomic_store(&arrived, 0);
        atomic_store(&phase, now + 1);
    }
    while (atomic_load(&phase) == now)
        ;
}

static volatile int turn;

static void taking_turns(long number) {
    while (turn != number)
        ;
    work();
    turn = (int)((number + 1) % threads);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void locking(long number) {
    (void)number;
    pthread_mutex_lock(&mutex);
    work();
    pthread_mutex_unlock(&mutex);
}

static const struct {
    const char *name;
    void (*round)(long);
} kinds[] = {
    {"race", race},       {"spinlock", spinlock}, {"ticket", ticket}, {"pspin", pspin},
    {"barrier", barrier}, {"flag", taking_turns}, {"mutex", locking},
};

static void (*kind)(long);

static void *run(void *number) {
    for (long i = 0; rounds == 0 || i < rounds; i++)
        kind((long)number);
    return 0;
}

int main(int argc, char **argv) {
    pthread_t list[256];
    if (argc != 4)
        return 2;
    threads = atoi(argv[2]);
    rounds = atol(argv[3]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            kind = kinds[i].round;
    if (kind == 0 || threads < 1 || threads > 256)
        return 2;
    pthread_spin_init(&spin, 0);
    for (long i = 0; i < threads; i++)
        pthread_create(&list[i], 0, run, (void *)i);
    for (int i = 0; i < threads; i++)
        pthread_join(list[i], 0);
    printf("%ld\n", counter);
    return kind != race && counter != shadow;
}

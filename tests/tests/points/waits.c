// Waits in loops without a call: for a flag, for a lock, and for a handler.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 20000 };

static volatile int flag, rung;
static pthread_spinlock_t lock;
static volatile long count;

static void *raise_flag(void *unused) {
    flag = 1;
    return unused;
}

static void *add(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_spin_lock(&lock);
        count++;
        pthread_spin_unlock(&lock);
    }
    return unused;
}

static void ring(int signal) {
    (void)signal;
    rung = 1;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_create(threads, 0, raise_flag, 0);
    while (!flag)
        ;
    pthread_join(threads[0], 0);
    pthread_spin_init(&lock, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_create(threads + i, 0, add, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    signal(SIGALRM, ring);
    alarm(1);
    while (!rung)
        ;
    printf("flag, %ld, rung\n", count);
    return 0;
}

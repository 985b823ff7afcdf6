// Threads that count without a lock, and without a call: what comes of it varies from run to run,
// and has to be the same in all replicas, which print it.
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 8, ROUNDS = 4000000 };

static volatile long counter;

static void *count(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++)
        counter++;
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, count, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    printf("%ld\n", counter);
    return 0;
}

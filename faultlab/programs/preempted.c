// The papers' data race with preemption: 32 threads and a counter without a lock, and no call in the
// loop. A thread gives way wherever its slice ends, now and then between reading and writing.
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 32, ROUNDS = 3000000 };

static volatile long counter;

static void *run(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        long seen = counter;
        counter = seen + 1;
    }
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, run, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    printf("%ld\n", counter);
    return 0;
}

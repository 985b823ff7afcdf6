// Two threads that wait for each other in loops without a call.
#include <pthread.h>
#include <stdio.h>

enum { ROUNDS = 10 };

static volatile int turn;

static void *second(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        while (turn != 1)
            ;
        turn = 0;
    }
    return 0;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, second, 0);
    for (int i = 0; i < ROUNDS; i++) {
        while (turn != 0)
            ;
        turn = 1;
    }
    pthread_join(thread, 0);
    puts("all turns taken");
    return 0;
}

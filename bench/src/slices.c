// Two threads: `work BYTES ROUNDS` writes that much anew in each round, `turns COUNT` has them wait
// for each other in loops without a call.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes;
static long rounds;
static volatile long turn;

static void *work(void *id) {
    unsigned char *place = malloc(bytes);
    unsigned long sum = (unsigned long)id;
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < bytes; i++)
            place[i] = (unsigned char)(sum += i * 7 + round);
        // What is written is read, as far as the compiler can tell.
        __asm__ volatile("" : : "r"(place) : "memory");
    }
    free(place);
    return (void *)sum;
}

static void *wait_in_turn(void *id) {
    for (long own = (long)id; own < rounds; own += 2) {
        while (turn != own)
            ;
        turn = own + 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    int works = argc == 4 && !strcmp(argv[1], "work");
    if (!works && argc != 3)
        return 2;
    bytes = works ? strtoul(argv[2], 0, 10) : 0;
    rounds = strtol(argv[argc - 1], 0, 10);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(threads + i, 0, works ? work : wait_in_turn, (void *)i);
    unsigned long all = 0;
    for (int i = 0; i < 2; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        all ^= (unsigned long)sum;
    }
    printf("%lx\n", all);
    return 0;
}

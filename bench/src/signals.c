// Computes for SECONDS, without a call, while a timer signals every MS milliseconds. Prints how
// long after the one before each signal was heard, in microseconds.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

enum { ROOM = 1 << 16, PLACES = 1 << 16 };

static volatile unsigned heard;
static struct timespec times[ROOM];
static unsigned char place[PLACES];

static void hear(int signal) {
    (void)signal;
    if (heard < ROOM)
        clock_gettime(CLOCK_MONOTONIC, &times[heard++]);
}

static long between(struct timespec from, struct timespec to) {
    return (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    long seconds = atol(argv[1]), ms = atol(argv[2]);
    struct sigaction action = {.sa_handler = hear};
    struct itimerval every = {{0, ms * 1000}, {0, ms * 1000}}, none = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &every, 0);
    unsigned long sum = 1;
    while (heard < 2 || (heard < ROOM && times[heard - 1].tv_sec - times[0].tv_sec < seconds)) {
        for (int i = 0; i < PLACES; i++) {
            sum = sum * 6364136223846793005ul + 1;
            place[i] ^= sum >> 33;
        }
        // The handler may have written.
        __asm__ volatile("" ::: "memory");
    }
    setitimer(ITIMER_REAL, &none, 0);
    for (unsigned i = 1; i < heard; i++)
        printf("%ld\n", between(times[i - 1], times[i]));
    return 0;
}

// Computes without a call until so many signals have come; how many turns that took varies.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile int hits;

static void count(int signal) {
    (void)signal;
    hits++;
}

int main(int argc, char **argv) {
    struct itimerval every = {{0, 10000}, {0, 10000}};
    unsigned long state = 88172645463325252ul, turns = 0;
    int wanted = argc > 1 ? atoi(argv[1]) : 10;
    puts("ready");
    fflush(stdout);
    signal(SIGALRM, count);
    setitimer(ITIMER_REAL, &every, 0);
    while (hits < wanted) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        turns++;
    }
    printf("%d signals, %s\n", hits, turns > 0 && state != 0 ? "and it computed" : "and nothing");
    return 0;
}

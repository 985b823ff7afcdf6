// Computes without a call until so many signals have come, and SIGUSR1 if that is asked for; how
// many turns that took varies.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile int hits, waits;

static void count(int signal) {
    (void)signal;
    hits++;
}

static void end(int signal) {
    (void)signal;
    waits = 0;
}

int main(int argc, char **argv) {
    struct itimerval every = {{0, 10000}, {0, 10000}};
    unsigned long state = 88172645463325252ul, turns = 0;
    int wanted = argc > 1 ? atoi(argv[1]) : 10;
    waits = argc > 2;
    signal(SIGUSR1, end);
    puts("ready");
    fflush(stdout);
    signal(SIGALRM, count);
    setitimer(ITIMER_REAL, &every, 0);
    while (hits < wanted || waits) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        turns++;
    }
    printf("%d signals, %s\n", argc > 2 ? wanted : hits, turns > 0 && state != 0 ? "and it computed" : "and nothing");
    return 0;
}

// Reads a clock, without a system call, and computes until the next signal, again and again. Who
// reads it first waits for the others, and all must come to one point all the same.
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t hits;

static void hit(int number) {
    (void)number;
    hits++;
}

int main(void) {
    struct itimerval every = {{0, 5000}, {0, 5000}};
    struct timespec now;
    unsigned long state = 88172645463325252ul;
    signal(SIGALRM, hit);
    setitimer(ITIMER_REAL, &every, 0);
    for (int round = 0; round < 20; round++) {
        int seen = hits;
        clock_gettime(CLOCK_MONOTONIC, &now);
        while (hits == seen) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
    }
    puts(state != 0 ? "20 rounds" : "no state is left");
    return 0;
}

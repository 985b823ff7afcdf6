// Computes with its own code as data, and is interrupted all the while: each round has the result
// of the first one, which was taken before. Prints how many rounds were wrong.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

enum { SIGNALS = 8 };

extern const unsigned char __executable_start, etext;
static volatile sig_atomic_t signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static uint64_t itself(void) {
    uint64_t sum = 14695981039346656037u, word;
    for (const unsigned char *at = &__executable_start; at + 8 <= &etext; at += 8) {
        memcpy(&word, at, 8);
        sum = (sum ^ word) * 1099511628211u;
    }
    return sum;
}

int main(void) {
    struct itimerval every = {{0, 20000}, {0, 20000}};
    uint64_t first = itself(), wrong = 0;
    signal(SIGALRM, count);
    setitimer(ITIMER_REAL, &every, 0);
    while (signals < SIGNALS)
        wrong += itself() != first;
    printf("%d signals, %lu wrong\n", SIGNALS, (unsigned long)wrong);
    return 0;
}

// Computes for so many seconds while SIGALRM comes every 10 ms, and tells how many came, and how
// much later than due: median, 99 %, most, and how many by more than two slices of 10 ms. What was
// due and came with a later one is missed.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

enum { EVERY = 10000000, MOST = 100000 };

static volatile int hits;
static long began, late[MOST];

static long now(void) {
    struct timespec it;
    clock_gettime(CLOCK_MONOTONIC, &it);
    return it.tv_sec * 1000000000l + it.tv_nsec;
}

// The n-th is due n intervals behind the start, and those that were missed in between are over.
static volatile long last;

static void note(int signal) {
    (void)signal;
    long behind = now() - began, due = last + 1;
    if (hits < MOST)
        late[hits] = behind - due * EVERY;
    last = behind / EVERY;
    if (last < due)
        last = due;
    hits++;
}

static int by_value(const void *one, const void *other) {
    long a = *(const long *)one, b = *(const long *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    long seconds = argc > 1 ? atol(argv[1]) : 60;
    struct itimerval every = {{0, EVERY / 1000}, {0, EVERY / 1000}}, none = {{0, 0}, {0, 0}};
    unsigned long state = 88172645463325252ul;
    int beyond = 0;
    signal(SIGALRM, note);
    began = now();
    setitimer(ITIMER_REAL, &every, 0);
    while (last < seconds * 100) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    setitimer(ITIMER_REAL, &none, 0);
    int count = hits < MOST ? hits : MOST;
    for (int i = 0; i < count; i++)
        beyond += late[i] > 2 * EVERY;
    qsort(late, count, sizeof *late, by_value);
    printf("%d %ld %ld %ld %ld %d\n", hits, last - hits, late[count / 2] / 1000,
           late[count * 99 / 100] / 1000, late[count - 1] / 1000, beyond);
    return state == 0;
}

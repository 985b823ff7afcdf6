// Recursion: at one place registers are often alike and the stack is not. Vectors count beside it.
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile int hits;
static double sum;

static void count(int signal) {
    (void)signal;
    hits++;
}

static int fibonacci(int n) {
    sum += n * 0.5;
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

int main(void) {
    struct itimerval every = {{0, 10000}, {0, 10000}};
    int wrong = 0;
    signal(SIGALRM, count);
    setitimer(ITIMER_REAL, &every, 0);
    while (hits < 10)
        wrong += fibonacci(18) != 2584;
    printf("%d signals, %d wrong\n", hits, wrong);
    return sum == 0;
}

/* Calls that a signal comes in the way of, in a program with several threads: with SA_RESTART no
 * call ever fails, whichever thread takes the signal. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 4, ENOUGH = 300 };

static atomic_int caught;
static atomic_int failed;

static void on_alarm(int signal) {
    (void)signal;
    caught++;
}

static void *echo(void *unused) {
    int ends[2];
    char byte = 'x';
    (void)unused;
    if (pipe(ends) != 0) return NULL;
    while (caught < ENOUGH && failed == 0)
        if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) failed = errno;
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, echo, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("failed: %d\n", failed);
    return 0;
}

// Queues real-time signals to a process, with values that may look like something.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    static const long kinds[] = {1, 2, 4, 7, 8, 11};
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++)
        for (int at = 0; at < 6; at++) {
            union sigval value = {.sival_ptr = (void *)(kinds[at] << 56 | 1l << 48 | 15)};
            if (sigqueue(atoi(argv[1]), signal, value)) return 1;
        }
    return 0;
}

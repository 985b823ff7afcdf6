// Becomes an ordinary user if it may; then processes and threads of it wait, or compute, for ever.
#define _GNU_SOURCE
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *compute(void *count) {
    for (;;) ++*(volatile unsigned long *)count;
    return NULL;
}

int main(void) {
    unsigned long count = 0;
    pthread_t thread;
    int ends[2];
    char byte;
    if (getuid() == 0 && (setgroups(0, NULL) || setgid(1000) || setuid(1000))) return 1;
    if (pipe(ends)) return 1;
    // Waits in the host, with a thread and without.
    if (!fork()) return read(ends[0], &byte, 1) != 1;
    if (!fork()) {
        pthread_create(&thread, NULL, (void *(*)(void *))pause, NULL);
        return read(ends[0], &byte, 1) != 1;
    }
    // Computes; its parent waits for it, which has a thread that waits.
    pid_t pid = fork();
    if (!pid) {
        puts("running");
        fflush(stdout);
        compute(&count);
    }
    pthread_create(&thread, NULL, (void *(*)(void *))pause, NULL);
    pause();
    return 0;
}

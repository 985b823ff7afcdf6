// A process that computes is stopped, continued, signalled and killed by one that shares memory
// with it, and which has not been let run by a call.
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long *shared;

static void handler(int signal) {
    (void)signal;
    shared[2]++;
}

static void compute(void) {
    signal(SIGUSR1, handler);
    shared[0] = 1;
    for (;;)
        shared[1] = shared[1] * 6364136223846793005UL + 1;
}

int main(void) {
    shared = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0)
        compute();
    while (!shared[0])
        ;
    for (unsigned long i = 1; i <= 3; i++) {
        int status;
        kill(child, SIGUSR1);
        while (shared[2] < i)
            ;
        kill(child, SIGSTOP);
        waitpid(child, &status, WUNTRACED);
        unsigned long seen = shared[1];
        printf("stopped %d", WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
        for (volatile int i = 0; i < 20000000; i++)
            ;
        printf(", stands still %d\n", seen == shared[1]);
        kill(child, SIGCONT);
        waitpid(child, &status, WCONTINUED);
        while (seen == shared[1])
            ;
    }
    int status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("ended by %d\n", WTERMSIG(status));
    return 0;
}

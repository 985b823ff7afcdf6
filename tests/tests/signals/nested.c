/* The flag NT (nested task) is set during system calls, also where one is interrupted by a signal:
   it means nothing to any of them. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/wait.h>

enum { NT = 1 << 14 };

static volatile int handled;

static void set_nested(void) {
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(NT) : "memory", "cc");
}

static void clear_nested(void) {
    __asm__ volatile("pushfq; andq %0, (%%rsp); popfq" : : "i"(~(long)NT) : "memory", "cc");
}

static void handler(int sig) {
    clear_nested();
    handled += sig == SIGUSR1;
}

int main(void) {
    signal(SIGUSR1, handler);
    for (int i = 0; i < 100; i++) {
        set_nested();
        raise(SIGUSR1);
        set_nested();
        getppid();
        clear_nested();
    }
    set_nested();
    pid_t pid = fork();
    if (pid == 0) {
        _exit(7);
    }
    clear_nested();
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%d handled, child %d\n", handled, WEXITSTATUS(status));
    return 0;
}

/* A handler at an address that no program can have: going there is a fault, as at any other. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

static sigjmp_buf back;
static volatile int code, from_nowhere;

static void fault(int sig, siginfo_t *info, void *context) {
    (void)sig;
    ucontext_t *at = context;
    code = info->si_code;
    from_nowhere = (uint64_t)at->uc_mcontext.gregs[REG_RIP] == 0x123456789abcdef0;
    siglongjmp(back, 1);
}

static void nowhere(int sig) {
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_handler = (void (*)(int))0x123456789abcdef0;
    sigaction(sig, &act, NULL);
}

int main(void) {
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = fault;
    act.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &act, NULL);
    nowhere(SIGUSR1);
    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) {
            kill(getpid(), SIGUSR1);
            puts("not gone");
        } else {
            printf("fault %d: code %d, where it should be: %d\n", i, code, from_nowhere);
        }
    }
    fflush(stdout);
    if (fork() == 0) {
        signal(SIGSEGV, SIG_DFL);
        kill(getpid(), SIGUSR1);
        _exit(0);
    }
    int status;
    wait(&status);
    printf("child ended by signal %d\n", WTERMSIG(status));
    return 0;
}

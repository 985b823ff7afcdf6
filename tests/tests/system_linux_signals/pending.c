/* Signals that are blocked wait, are told and are taken; none is handled. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void waiting(const char *when)
{
    sigset_t set;
    sigpending(&set);
    printf("%s:", when);
    for (int signal = 1; signal < 65; signal++)
        if (sigismember(&set, signal) == 1)
            printf(" %d", signal);
    printf("\n");
}

static void take(const sigset_t *set)
{
    struct timespec none = {0, 0};
    siginfo_t info;
    memset(&info, 0, sizeof info);
    int taken = sigtimedwait(set, &info, &none);
    if (taken < 0)
        printf("none: %d\n", errno == EAGAIN);
    else
        printf("%d: code %d, own %d, value %d\n", taken, info.si_code,
               info.si_pid == getpid() && info.si_uid == getuid(), info.si_value.sival_int);
}

int main(void)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGKILL);
    sigaddset(&set, SIGRTMIN + 3);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, 0);
    sigprocmask(SIG_BLOCK, 0, &old);
    printf("blocked %d, kill %d\n", sigismember(&old, SIGUSR1), sigismember(&old, SIGKILL));
    kill(getpid(), SIGUSR1);
    raise(SIGUSR1);
    kill(getpid(), SIGCHLD);
    kill(getpid(), SIGWINCH);
    for (int value = 5; value < 8; value++)
        sigqueue(getpid(), SIGRTMIN + 3, (union sigval){value});
    sigqueue(getpid(), SIGRTMIN + 1, (union sigval){4});
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGRTMIN + 1);
    waiting("pending");
    for (int round = 0; round < 8; round++)
        take(&set);
    waiting("left");
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    waiting("ignored");
    raise(SIGUSR1);
    waiting("blocked");
    sigprocmask(SIG_UNBLOCK, &set, 0);
    waiting("unblocked");
    int none = kill(getpid(), 0), wrong = kill(getpid(), 99), why = errno;
    printf("%d %d %d\n", none, wrong, why == EINVAL);
    return 0;
}

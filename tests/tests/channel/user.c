// Becomes an ordinary user if it may, and then does with processes what programs do.
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int await(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid ? status : -errno;
}

static void *thread(void *text) {
    return text;
}

static void children(void) {
    pid_t pid = fork();
    if (!pid) _exit(3);
    printf("child %x\n", await(pid));
    pid = fork();
    if (!pid)
        for (;;) pause();
    printf("kill %d\n", kill(pid, SIGTERM));
    printf("killed %x\n", await(pid));
    pid = fork();
    if (!pid) {
        execl("/bin/sh", "sh", "-c", "exit 5", NULL);
        _exit(127);
    }
    printf("other program %x\n", await(pid));
    printf("shell %x\n", system("true | (exit 4)"));
}

static void signals(void) {
    sigset_t set;
    int number = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGALRM);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t pid = fork();
    if (!pid) _exit(kill(getppid(), SIGUSR1));
    sigwait(&set, &number);
    printf("signal %d, sender %x\n", number, await(pid));
    struct itimerval soon = {.it_value = {0, 1000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    sigwait(&set, &number);
    printf("signal %d of a timer\n", number);
}

static void jobs(void) {
    int status;
    pid_t pid = fork();
    if (!pid) {
        setpgid(0, 0);
        raise(SIGSTOP);
        _exit(getpgrp() == getpid());
    }
    waitpid(pid, &status, WUNTRACED);
    printf("stopped %x, group %d\n", status, getpgid(pid) == pid);
    kill(-pid, SIGCONT);
    printf("went on %x\n", await(pid));
    pid = fork();
    if (!pid) _exit(setsid() == getpid() && getsid(0) == getpid());
    printf("session %x\n", await(pid));
}

int main(void) {
    pthread_t other;
    void *text = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getuid() == 0 && (setgroups(0, NULL) || setresgid(1000, 1000, 1000) ||
                          setresuid(1000, 1000, 1000)))
        return 1;
    printf("user %d, root %d\n", getuid(), setuid(0));
    children();
    signals();
    jobs();
    pthread_create(&other, NULL, thread, "thread");
    pthread_join(other, &text);
    printf("%s\n", (char *)text);
    children();
    return 7;
}

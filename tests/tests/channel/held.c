/* Sends its child SIGUSR1 as soon as it is let go; the child tells what came. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

volatile unsigned long go;

int main(void) {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    sigprocmask(SIG_BLOCK, &both, 0);
    pid_t child = fork();
    if (child == 0) {
        int signal = 0;
        sigwait(&both, &signal);
        const char *name = signal == SIGUSR1 ? "SIGUSR1\n" : "SIGUSR2\n";
        write(1, name, 8);
        _exit(0);
    }
    char line[32];
    write(1, line, snprintf(line, sizeof line, "%d\n", child));
    while (!go) {
    }
    kill(child, SIGUSR1);
    waitpid(child, 0, 0);
    return 0;
}

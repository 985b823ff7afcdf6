// Processes of different users, if it may make such, and whom of the others each may signal.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int may(pid_t pid, int signal) {
    return kill(pid, signal) ? errno : 0;
}

static pid_t become(int user, pid_t other) {
    int status = 0;
    pid_t pid = fork();
    if (pid) {
        if (other) waitpid(pid, &status, 0);
        return pid;
    }
    if (getuid() == 0 && setresuid(user, user, user)) _exit(1);
    if (!other)
        for (;;) pause();
    printf("%d: parent %d, other %d, to go on %d\n", user, may(getppid(), 0),
           may(other, 0), may(other, SIGCONT));
    fflush(stdout);
    // In a process of its own, born of one that changed its user.
    if (!fork()) _exit(may(other, 0));
    wait(&status);
    printf("its child %d\n", WEXITSTATUS(status));
    fflush(stdout);
    _exit(0);
}

int main(void) {
    int status;
    pid_t other = become(1001, 0);
    // Until it has become who it is.
    char path[64], line[256];
    sprintf(path, "/proc/%d/status", other);
    while (getuid() == 0) {
        int real = 0;
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file)) sscanf(line, "Uid: %d", &real);
        if (file) fclose(file);
        if (real == 1001) break;
        usleep(1000);
    }
    become(1000, other);
    become(1001, other);
    printf("parent: %d\n", may(other, SIGTERM));
    waitpid(other, &status, 0);
    printf("ended %x\n", status);
    return 0;
}

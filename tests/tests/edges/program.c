// `execveat` of what it must not execute, of what it may, and of wrong flags.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// In a child: the error, or the status of what it became.
static void attempt(const char *what, int dir, const char *path, long flags) {
    char *words[] = {"program", "became", NULL}, *none[] = {NULL};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_execveat, dir, path, words, none, flags);
        _exit(errno);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%s: %s\n", what, WEXITSTATUS(status) == 99 ? "another program" : strerror(WEXITSTATUS(status)));
}

int main(int argc, char **argv) {
    if (argc > 1)
        return 99;
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length] = 0;
    unlink("link");
    symlink(self, "link");
    int file = open(self, O_RDONLY | O_CLOEXEC), folder = open(".", O_RDONLY | O_DIRECTORY);
    attempt("a file", AT_FDCWD, self, 0);
    attempt("no link, of a file", AT_FDCWD, self, AT_SYMLINK_NOFOLLOW);
    attempt("a link", folder, "link", 0);
    attempt("no link, of a link", folder, "link", AT_SYMLINK_NOFOLLOW);
    attempt("no link, of /proc/self/exe", AT_FDCWD, "/proc/self/exe", AT_SYMLINK_NOFOLLOW);
    attempt("a descriptor", file, "", AT_EMPTY_PATH);
    attempt("a descriptor, and no link", file, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    attempt("flags of a long", file, "", AT_EMPTY_PATH | 1l << 40);
    attempt("no descriptor", 199, "", AT_EMPTY_PATH);
    attempt("a negative one", -7, "", AT_EMPTY_PATH);
    attempt("the working directory", AT_FDCWD, "", AT_EMPTY_PATH);
    attempt("a folder", folder, "", AT_EMPTY_PATH);
    attempt("nothing", file, "", 0);
    attempt("nothing, and wrong flags", file, "", 1);
    attempt("wrong flags", AT_FDCWD, self, 1);
    attempt("wrong flags of a descriptor", file, "", AT_EMPTY_PATH | 1);
    unlink("link");
    return 0;
}

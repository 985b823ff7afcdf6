/* What is code and what is not: a program that maps its own file, and others. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void try(const char *what, int protection, int flags, int file, long offset) {
    char *got = mmap(0, 4096, protection, flags, file, offset);
    int error = errno;
    printf("%s: %s\n", what, got == MAP_FAILED ? strerror(error) : "mapped");
}

int main(void) {
    int own = open("/proc/self/exe", O_RDONLY);
    int text = open("text", O_RDONLY);
    char page[4096];
    int copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0700);
    for (int len; (len = read(own, page, sizeof page)) > 0;)
        if (write(copy, page, len) != len)
            return 1;
    int code = PROT_READ | PROT_EXEC;
    try("headers", code, MAP_PRIVATE, own, 0);
    try("code", code, MAP_PRIVATE, own, 4096);
    try("aside", code, MAP_PRIVATE, own, 5);
    try("beyond", code, MAP_PRIVATE, own, 1 << 20);
    try("writable", code | PROT_WRITE, MAP_PRIVATE, own, 4096);
    try("shared", code, MAP_SHARED, own, 4096);
    try("copy", code, MAP_PRIVATE, copy, 4096);
    try("text", code, MAP_PRIVATE, text, 0);
    try("none", code, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    try("data", PROT_READ, MAP_PRIVATE, copy, 4096);
    return 0;
}

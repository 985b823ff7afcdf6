/* The program whose iterations are counted: one kind of call in a loop that visits mark() each time.
 *
 *   loop KIND    warms up, says where mark() is, waits for a byte of input, and loops
 *
 * The wait is a place at which all replicas stand still, for the ruler to seize them. Without the
 * byte, or after many iterations, the program ends: nothing is left over when the ruler is gone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 1000, MOST = 1000000 };

static int null_fd, zero_fd, file_fd, epoll_fd, pair[2];
static const char *file;
static char buffer[64];
static char page[4096];
static uint32_t word;

static void check(long result, long expected) { if (result != expected) exit(2); }

static void write_null(void) { check(write(null_fd, buffer, 64), 64); }
static void read_zero(void) { check(read(zero_fd, buffer, 64), 64); }
static void read_page(void) {
    if (read(file_fd, page, sizeof page) != sizeof page) check(lseek(file_fd, 0, SEEK_SET), 0);
}
static void parent(void) { getppid(); }
static void clock_libc(void) {
    struct timespec t;
    check(clock_gettime(CLOCK_MONOTONIC, &t), 0);
}
static void poll_nothing(void) {
    struct epoll_event event;
    check(epoll_wait(epoll_fd, &event, 1, 0), 0);
}
static void write_read(void) {
    check(write(pair[0], buffer, 64), 64);
    check(read(pair[1], buffer, 64), 64);
}
static void send_receive(void) {
    check(sendto(pair[0], buffer, 64, 0, NULL, 0), 64);
    check(recvfrom(pair[1], buffer, 64, 0, NULL, NULL), 64);
}
static void open_close(void) {
    struct stat status;
    int fd = open(file, O_RDONLY | O_NONBLOCK);
    check(fstat(fd, &status), 0);
    check(close(fd), 0);
}
static void stat_path(void) {
    struct stat status;
    check(stat(file, &status), 0);
}
static void wake_nobody(void) { check(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1), 0); }

static void *idle(void *never) {
    sem_wait(never);
    return NULL;
}

static void four_threads(void) {
    static sem_t never;
    pthread_t thread;
    sem_init(&never, 0, 0);
    for (int i = 0; i < 4; i++) check(pthread_create(&thread, NULL, idle, &never), 0);
}

/* Shares memory with a child that waits until this process ends. */
static void relative(void) {
    int ends[2];
    char never;
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(ends)) exit(2);
    pid_t child = fork();
    if (child < 0) exit(2);
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &never, 1) != 0);
    }
}

static const struct { const char *name; void (*call)(void); void (*prepare)(void); } kinds[] = {
    {"write", write_null, NULL},         {"write-threads", write_null, four_threads},
    {"write-shared", write_null, relative}, {"read", read_zero, NULL},
    {"clock", clock_libc, NULL},         {"getppid", parent, NULL},
    {"epoll", poll_nothing, NULL},       {"pair", write_read, NULL},
    {"sendto", send_receive, NULL},      {"futex-wake", wake_nobody, NULL},
    {"read-file", read_page, NULL},
    {"stat", stat_path, NULL},           {"open-close", open_close, NULL},
};

__attribute__((noinline)) static void mark(void) { __asm__ volatile("" ::: "memory"); }

int main(int argc, char **argv) {
    size_t kind = 0, count = sizeof kinds / sizeof *kinds;
    char go;
    while (argc == 2 && kind < count && strcmp(kinds[kind].name, argv[1]) != 0) kind++;
    if (argc != 2 || kind == count) return 2;
    file = argv[0];
    null_fd = open("/dev/null", O_WRONLY);
    zero_fd = open("/dev/zero", O_RDONLY);
    file_fd = open(file, O_RDONLY);
    epoll_fd = epoll_create1(0);
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct epoll_event event = {.events = EPOLLIN};
    check(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pair[1], &event), 0);
    if (null_fd < 0 || zero_fd < 0 || file_fd < 0) return 2;
    if (kinds[kind].prepare) kinds[kind].prepare();
    for (int i = 0; i < WARM_UP; i++) {
        mark();
        kinds[kind].call();
    }
    printf("%p\n", (void *)mark);
    fflush(stdout);
    if (read(0, &go, 1) != 1) return 0;
    for (int i = 0; i < MOST; i++) {
        mark();
        kinds[kind].call();
    }
    return 0;
}

/* The program that is measured: loops of one system call or of arithmetic, timed from inside.
 *
 *   probe calls K FILE   one line "name nanoseconds-per-call" for each kind of call
 *   probe line N         nanoseconds for a cache line to go to another CPU and back
 *   probe integer N      a loop over integers and a small table
 *   probe float N        a loop over doubles
 *   probe serve MIB      holds so much memory, tells where a word lies that is added to each answer,
 *                        and answers eight bytes with eight bytes until its input ends
 *
 * Before each reading of the clock one byte is written to /dev/null: a voted call, at which
 * replicas that run ahead wait for the others, so that the time of all of them is counted. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int null_fd, zero_fd, file_fd;
static char buffer[64];

static double now(void) {
    struct timespec t;
    if (write(null_fd, buffer, 1) != 1) exit(2);
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void write_1(void) { if (write(null_fd, buffer, 1) != 1) exit(2); }
static void write_64(void) { if (write(null_fd, buffer, 64) != 64) exit(2); }
static void write_file(void) { if (write(file_fd, buffer, 64) != 64) exit(2); }
static void read_64(void) { if (read(zero_fd, buffer, 64) != 64) exit(2); }
static void parent(void) { getppid(); }
static void clock_libc(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); }
static void clock_call(void) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
}

static const struct { const char *name; void (*call)(void); } kinds[] = {
    {"write-1-null", write_1},   {"write-64-null", write_64}, {"write-64-file", write_file},
    {"read-64-zero", read_64},   {"getppid", parent},         {"clock-libc", clock_libc},
    {"clock-syscall", clock_call},
};

static int calls(long count, const char *path) {
    null_fd = open("/dev/null", O_WRONLY);
    zero_fd = open("/dev/zero", O_RDONLY);
    file_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (null_fd < 0 || zero_fd < 0 || file_fd < 0) return 2;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (long i = 0; i < count / 20; i++) kinds[k].call();
        double start = now();
        for (long i = 0; i < count; i++) kinds[k].call();
        printf("%s %.2f\n", kinds[k].name, (now() - start) / count);
    }
    return 0;
}

static int integers(long count) {
    uint32_t table[256], x = 1;
    for (int i = 0; i < 256; i++) table[i] = i * 2654435761u;
    for (long i = 0; i < count; i++) {
        x = (x >> 8) ^ table[(x ^ i) & 255];
        if (x & 1) table[x & 255] += x;
    }
    printf("%u\n", x);
    return 0;
}

static int floats(long count) {
    double x = 0.5, sum = 0;
    for (long i = 0; i < count; i++) {
        x = 3.7 * x * (1 - x);
        sum += x / (1 + sum * 1e-9);
    }
    printf("%.17g\n", sum);
    return 0;
}

static volatile uint64_t salt;

static int serve(long mib) {
    uint64_t pages = (uint64_t)mib << 8, *memory = malloc(pages << 12), number;
    if (!memory) return 2;
    for (uint64_t page = 0; page < pages; page++) memory[page << 9] = ~page;
    printf("%p\n", (void *)&salt);
    fflush(stdout);
    while (read(0, &number, 8) == 8) {
        for (uint64_t k = 1; k < 3; k++) memory[(number * 40503 * k % pages) << 9] += number;
        number += salt;
        if (write(1, &number, 8) != 8) return 2;
    }
    return 0;
}

static _Alignas(128) atomic_long ball;

/* Binds this thread to the INDEX-th CPU that the process may use. */
static void bind_to(int index) {
    cpu_set_t may, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof may, &may) != 0) exit(2);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && index-- == 0) CPU_SET(cpu, &one);
    /* With one CPU there is none to go to: the empty set is refused. */
    if (pthread_setaffinity_np(pthread_self(), sizeof one, &one) != 0) exit(2);
}

/* Answers each odd number with the next even one. */
static void *answer(void *count) {
    bind_to(1);
    for (long i = 1; i < 2 * (long)count; i += 2) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != i) {}
        atomic_store_explicit(&ball, i + 1, memory_order_release);
    }
    return 0;
}

static int line(long count) {
    pthread_t other;
    null_fd = open("/dev/null", O_WRONLY);
    if (null_fd < 0 || pthread_create(&other, 0, answer, (void *)count) != 0) return 2;
    bind_to(0);
    double start = 0;
    for (long i = 0; i < 2 * count; i += 2) {
        if (i == count / 10 * 2) start = now();
        atomic_store_explicit(&ball, i + 1, memory_order_release);
        while (atomic_load_explicit(&ball, memory_order_acquire) != i + 2) {}
    }
    printf("%.2f\n", (now() - start) / (count - count / 10));
    return pthread_join(other, 0) != 0;
}

int main(int argc, char **argv) {
    long count = argc > 2 ? atol(argv[2]) : 0;
    if (argc == 4 && strcmp(argv[1], "calls") == 0) return calls(count, argv[3]);
    if (argc == 3 && strcmp(argv[1], "line") == 0) return line(count);
    if (argc == 3 && strcmp(argv[1], "integer") == 0) return integers(count);
    if (argc == 3 && strcmp(argv[1], "float") == 0) return floats(count);
    if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(count);
    return 2;
}

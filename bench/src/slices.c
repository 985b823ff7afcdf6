// Two threads: `work BYTES ROUNDS` writes that much anew in each round, `turns COUNT` has them wait
// for each other in loops without a call. `meet BYTES ROUNDS EVERY`: two processes, each with the
// work of both threads in turns of so many rounds, meet after each turn; `part` does without.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t bytes;
static long rounds;
static volatile long turn;

static unsigned long write_anew(unsigned char *place, unsigned long sum, long round) {
    for (size_t i = 0; i < bytes; i++)
        place[i] = (unsigned char)(sum += i * 7 + round);
    // What is written is read, as far as the compiler can tell.
    __asm__ volatile("" : : "r"(place) : "memory");
    return sum;
}

static void *work(void *id) {
    unsigned char *place = malloc(bytes);
    unsigned long sum = (unsigned long)id;
    for (long round = 0; round < rounds; round++)
        sum = write_anew(place, sum, round);
    free(place);
    return (void *)sum;
}

// Each of two processes says how far it is, in a line of its own.
static _Atomic long *reached;

static void take_turns(int self, long every, int meets) {
    unsigned char *places[2] = {malloc(bytes), malloc(bytes)};
    unsigned long sums[2] = {0, 1};
    for (long turn = 0; turn * every < 2 * rounds; turn++) {
        int thread = turn & 1;
        for (long round = 0; round < every; round++)
            sums[thread] = write_anew(places[thread], sums[thread], round);
        atomic_store(reached + 64 * self, turn + 1);
        while (meets && atomic_load(reached + 64 * !self) <= turn)
            __builtin_ia32_pause();
    }
}

static void stay_on_cpu(int number) {
    cpu_set_t mine, all;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&mine);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && number-- == 0)
            CPU_SET(cpu, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
}

static int both(long every, int meets) {
    reached = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (reached == MAP_FAILED || child < 0)
        return 1;
    stay_on_cpu(child == 0);
    take_turns(child == 0, every, meets);
    if (child == 0)
        _exit(0);
    int status;
    return waitpid(child, &status, 0) != child || status != 0;
}

static void *wait_in_turn(void *id) {
    for (long own = (long)id; own < rounds; own += 2) {
        while (turn != own)
            ;
        turn = own + 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    int meets = argc == 5 && !strcmp(argv[1], "meet");
    if (meets || (argc == 5 && !strcmp(argv[1], "part"))) {
        bytes = strtoul(argv[2], 0, 10);
        rounds = strtol(argv[3], 0, 10);
        long every = strtol(argv[4], 0, 10);
        return every > 0 ? both(every, meets) : 2;
    }
    int works = argc == 4 && !strcmp(argv[1], "work");
    if (!works && argc != 3)
        return 2;
    bytes = works ? strtoul(argv[2], 0, 10) : 0;
    rounds = strtol(argv[argc - 1], 0, 10);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(threads + i, 0, works ? work : wait_in_turn, (void *)i);
    unsigned long all = 0;
    for (int i = 0; i < 2; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        all ^= (unsigned long)sum;
    }
    printf("%lx\n", all);
    return 0;
}

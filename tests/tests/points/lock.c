// Processes that count under a lock for which they wait in a loop without a call, and compute.
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, ROUNDS = 3000 };

struct shared {
    atomic_flag lock;
    atomic_int ready;
    long count;
};

int main(void) {
    struct shared *it = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int own = 0; own < PROCESSES; own++) {
        if (fork() != 0)
            continue;
        it->ready++;
        while (it->ready < PROCESSES)
            ;
        for (int i = 0; i < ROUNDS; i++) {
            while (atomic_flag_test_and_set(&it->lock))
                ;
            long before = it->count;
            for (volatile int delay = 0; delay < 1000; delay++)
                ;
            it->count = before + 1;
            atomic_flag_clear(&it->lock);
        }
        _exit(0);
    }
    int status, bad = 0;
    while (wait(&status) > 0)
        bad |= status;
    printf("%ld counted, %x\n", it->count, bad);
    return 0;
}

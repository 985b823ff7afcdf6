// Two threads wait for each other in loops of code that is made at run time, in which nothing
// counts. With an argument no instruction of that is as long as a jump.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { TURNS = 10 };

// void wait(volatile int *turn, int own)
static const unsigned char long_ones[] = {
    0x3b, 0xb7, 0, 0, 0, 0, // cmp esi, [rdi + 0], a long one
    0x75, 0xf8,             // jne wait
    0xc3,                   // ret
};
static const unsigned char short_ones[] = {
    0x3b, 0x37, // cmp esi, [rdi]
    0x75, 0xfc, // jne wait
    0xc3,       // ret
};

static volatile int turn;
static void (*wait_in_code)(volatile int *, int);

static void *take(void *odd) {
    for (int own = odd != 0; own < TURNS; own += 2) {
        wait_in_code(&turn, own);
        turn++;
    }
    return 0;
}

int main(int count, char **arguments) {
    (void)arguments;
    int allowed = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *page = mmap(0, 4096, allowed, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t other;
    if (page == MAP_FAILED)
        return 1;
    if (count > 1)
        memcpy(page, short_ones, sizeof short_ones);
    else
        memcpy(page, long_ones, sizeof long_ones);
    wait_in_code = (void (*)(volatile int *, int))page;
    pthread_create(&other, 0, take, "odd");
    take(0);
    pthread_join(other, 0);
    puts(turn == TURNS ? "all turns taken" : "some turns taken");
    return 0;
}

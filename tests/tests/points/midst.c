// Two threads compute in a loop of short instructions, and give way to each other by a call each
// time it is over. Points stop them anywhere in it, and who goes on does so within a jump's length
// of where the next one may stop it.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { TURNS = 600, ROUNDS = 2000, LENGTHS = 50 };

static unsigned long sums[2];

static unsigned long loop(unsigned long rounds) {
    unsigned long a = 1, b = 2, c = 3, d = rounds;
    __asm__ volatile("1:\n\t"
                     "add %%edi,%%eax\n\t"
                     "xchg %%eax,%%ecx\n\t"
                     "xchg %%eax,%%edx\n\t"
                     "xchg %%eax,%%esi\n\t"
                     "cmc\n\t"
                     "xchg %%eax,%%edx\n\t"
                     "xchg %%eax,%%ecx\n\t"
                     "xchg %%eax,%%esi\n\t"
                     "dec %%edi\n\t"
                     "jnz 1b\n\t"
                     : "+a"(a), "+c"(b), "+d"(c), "+S"(d), "+D"(rounds)
                     :
                     : "cc");
    return a ^ b * 3 ^ c * 5 ^ d * 7;
}

static void *run(void *sum) {
    unsigned long *own = sum;
    for (int i = 0; i < TURNS; i++) {
        *own = *own * 31 + loop(ROUNDS * (LENGTHS + i % LENGTHS));
        sched_yield();
    }
    return 0;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, 0, run, &sums[1]);
    run(&sums[0]);
    pthread_join(other, 0);
    printf("%lx %lx\n", sums[0], sums[1]);
    return 0;
}

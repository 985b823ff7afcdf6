// OpenMP's own barriers, loops and reductions, in rounds that must all have one result.
#include <stdint.h>
#include <stdio.h>

enum { WORDS = 1 << 14 };

static uint64_t words[WORDS];

static uint64_t round_of_work(void) {
    uint64_t sum = 0;
#pragma omp parallel
    {
#pragma omp for
        for (int i = 0; i < WORDS; i++)
            words[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
#pragma omp for schedule(dynamic, 512) reduction(+ : sum)
        for (int i = 0; i < WORDS; i++)
            for (int j = 0; j < 50; j++)
                sum += words[i] >> (j & 31);
#pragma omp critical
        words[0]++;
    }
    return sum;
}

int main(void) {
    uint64_t first = round_of_work();
    while (round_of_work() == first)
        ;
    puts("a round had another result");
    return 1;
}

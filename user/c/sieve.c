/* Counts the primes up to its argument (100,000), by the sieve of Eratosthenes. */
#include "rcoe-system.h"

static uint64_t count(unsigned char *composite, uint64_t limit)
{
    uint64_t found = 0, sum = 0;
    for (uint64_t number = 2; number <= limit; number++) {
        if (composite[number])
            continue;
        found++;
        sum += number;
        for (uint64_t multiple = number * number; multiple <= limit; multiple += number)
            composite[multiple] = 1;
    }
    /* What counts is compared now, not when it is printed. */
    rcoe_add_trace(&sum, 1);
    return found;
}

static uint64_t sieve(uint64_t argument)
{
    uint64_t limit = argument == 0 ? 100000 : argument;
    unsigned char *composite = limit > 4000000 ? NULL : rcoe_memory(limit + 1);
    if (composite == NULL) {
        rcoe_print("sieve: no memory\n");
        return 1;
    }
    rcoe_print_number(count(composite, limit));
    rcoe_print(" primes up to ");
    rcoe_print_number(limit);
    rcoe_print("\n");
    return 0;
}

RCOE_PROGRAM(sieve);

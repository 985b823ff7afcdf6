/* Work in rounds, the same as an operating system's program and as the microkernel's: of integers
 * (a buffer of 1 MiB is changed and hashed) and of floating point (a sum of roots and quotients, in
 * thousands of steps). Argument: rounds (8); with a billion more, of floating point.
 *
 * With ROUNDS_ONLY there is nothing but the two functions, for a program of another system. */
#ifdef ROUNDS_ONLY
#include <stdint.h>
#else
#include "rcoe-system.h"
#endif

/* Words of the buffer. */
#define WORDS (1 << 17)

/* In the argument: rounds of floating point. */
#define FLOATING 1000000000

static uint64_t integers(uint64_t rounds, uint64_t *buffer)
{
    uint64_t seed = 0x243f6a8885a308d3, hash = 0xcbf29ce484222325;
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < WORDS; i++) {
            seed = seed * 6364136223846793005 + (round | 1);
            buffer[i] ^= seed >> 7;
        }
        for (int i = 0; i < WORDS; i++) {
            hash = (hash ^ buffer[i]) * 0x100000001b3;
            hash = hash << 13 | hash >> 51;
        }
    }
    return hash;
}

static uint64_t numbers(uint64_t rounds)
{
    union {
        double value;
        uint64_t bits;
    } sum = {0};
    double term = 1;
    for (uint64_t step = 1; step <= rounds * 1000; step++) {
        /* Newton's step towards the root of 2, disturbed and brought back. */
        term = 0.5 * (term + 2 / term);
        double divisor = (double)step;
        sum.value += term / (divisor * divisor);
        term += 1 / divisor;
    }
    return sum.bits;
}

#ifndef ROUNDS_ONLY
static uint64_t rounds(uint64_t argument)
{
    uint64_t of = argument % FLOATING, result;
    of = of == 0 ? 8 : of;
    if (argument >= FLOATING) {
        result = numbers(of);
    } else {
        uint64_t *buffer = rcoe_memory(WORDS * sizeof *buffer);
        if (buffer == NULL) {
            rcoe_print("rounds: no memory\n");
            return 1;
        }
        result = integers(of, buffer);
    }
    rcoe_print_number(of);
    rcoe_print(argument >= FLOATING ? " rounds of floating point: " : " rounds of integers: ");
    rcoe_print_number(result);
    rcoe_print("\n");
    return 0;
}

RCOE_PROGRAM(rounds);
#endif

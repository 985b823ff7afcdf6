/* A library of a program's own: data of each thread, and what is done before and after main. */
#include <cpuid.h>
#include <stdio.h>
#include <string.h>

static __thread int count = 7;
static const char *volatile names[] = {"zero", "one", "two"};
static char zeroes[10000];

__attribute__((constructor)) static void begin(void) { puts("own begins"); }
__attribute__((destructor)) static void end(void) { puts("own ends"); }

int own_count(int more) { return count += more; }
const char *own_name(int at) { return names[at]; }

int own_zeroes(void) {
    int sum = 0;
    for (int at = 0; at < (int)sizeof zeroes; at++)
        sum += zeroes[at];
    memset(zeroes, 1, sizeof zeroes);
    return sum;
}

/* What a processor is called has twelve letters. */
int own_vendor(void) {
    unsigned a, b[3], c;
    __cpuid(0, a, b[0], b[2], b[1]);
    c = 0;
    for (int at = 0; at < 12; at++)
        c += ((char *)b)[at] > ' ';
    return a > 0 && c == 12;
}

/* The library beside the module. */
#include <cpuid.h>

int other(int number) {
    unsigned a, b, c, d;
    __cpuid(0, a, b, c, d);
    return a > 0 ? 10 * number : -1;
}

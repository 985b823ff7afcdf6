/* The rounds of user/c/rounds.c as a program of Linux (AArch64), without a library.
 * Arguments: "integers" or another word, and how many. Ends with 1 if they are missing. */
#define ROUNDS_ONLY
#include "rounds.c"

#define WRITE 64
#define EXIT 93

static uint64_t buffer[WORDS];

static long call(long number, long a, long b, long c)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}

static void tell(uint64_t result)
{
    char line[21];
    int at = sizeof line;
    line[--at] = '\n';
    do {
        line[--at] = (char)('0' + result % 10);
        result /= 10;
    } while (result > 0);
    call(WRITE, 1, (long)(line + at), (long)sizeof line - at);
}

__attribute__((used)) static void begin(const uint64_t *stack)
{
    /* The number of arguments, and their addresses, of which the first is the program's name. */
    const char *const *arguments = (const char *const *)(stack + 1);
    uint64_t rounds = 0;
    if (stack[0] < 3)
        call(EXIT, 1, 0, 0);
    for (const char *digit = arguments[2]; *digit != 0; digit++)
        rounds = rounds * 10 + (uint64_t)(*digit - '0');
    tell(arguments[1][0] == 'i' ? integers(rounds, buffer) : numbers(rounds));
    call(EXIT, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n mov x0, sp\n b begin\n");

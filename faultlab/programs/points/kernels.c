// One thread that computes for ever without a call, in the way that the argument names. Each round
// must have the result of the first one.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { WORDS = 1 << 15, BIG = 4 << 20 };

static uint64_t words[WORDS];
static char *big[2];
static volatile uint64_t ticks;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill(void) {
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < WORDS; i++)
        words[i] = next(&state);
}

static uint64_t integer(void) {
    uint64_t state = 1;
    for (int i = 0; i < 1000000; i++)
        next(&state);
    return state;
}

// One place, one register that changes.
static uint64_t counting(void) {
    uint64_t count = 0;
    do
        __asm__ volatile("" : "+r"(count));
    while (++count < 3000000);
    return count;
}

static uint64_t bits(double value) {
    uint64_t word;
    memcpy(&word, &value, 8);
    return word;
}

static uint64_t sse(void) {
    double sum = 0, x = 1;
    for (int i = 1; i < 500000; i++) {
        x = x * 0.999 + 1.0 / i;
        sum += x;
    }
    return bits(sum);
}

static uint64_t x87(void) {
    long double sum = 0, x = 1;
    for (int i = 1; i < 300000; i++) {
        x = x * 0.999L + 1.0L / i;
        sum += x;
    }
    return bits((double)sum);
}

typedef double vector __attribute__((vector_size(32)));

// The state is in vector registers alone but for a counter.
__attribute__((target("avx"))) static uint64_t avx_sum(void) {
    vector sum = {1, 2, 3, 4}, factor = {0.5, 0.25, 0.75, 0.125};
    for (int i = 0; i < 500000; i++)
        sum = sum * factor + (vector){1, 1, 1, 1};
    return bits(sum[0]) ^ bits(sum[1]) ^ bits(sum[2]) ^ bits(sum[3]);
}

static uint64_t avx(void) {
    return __builtin_cpu_supports("avx") ? avx_sum() : sse();
}

static uint64_t fibonacci(int n) {
    return n < 2 ? (uint64_t)n : fibonacci(n - 1) + fibonacci(n - 2);
}

static uint64_t recursion(void) {
    return fibonacci(24);
}

__attribute__((noinline)) static uint64_t depth(int n) {
    volatile char frame[100];
    frame[n % 100] = (char)n;
    return n == 0 ? 0 : depth(n - 1) + (uint64_t)frame[n % 100] + 1;
}

static uint64_t deep(void) {
    return depth(20000);
}

static uint64_t movs(void) {
    void *to = big[0], *from = big[1];
    size_t count = BIG;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    return (uint64_t)to - (uint64_t)big[0];
}

static uint64_t stos(void) {
    static char value;
    void *to = big[0];
    size_t count = BIG;
    value++;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
    return big[0][BIG - 1] == value;
}

static uint64_t copying(void) {
    memcpy(big[0], big[1], BIG);
    big[0][5]++;
    memcpy(big[1], big[0], BIG);
    return big[0][9] == big[1][9];
}

static uint64_t churn(void) {
    static void *held[512];
    uint64_t state = 7, sum = 0;
    for (int i = 0; i < 40000; i++) {
        uint64_t pick = next(&state);
        void **slot = &held[pick % 512];
        free(*slot);
        size_t size = 16 + (pick >> 20) % 600;
        *slot = malloc(size);
        memset(*slot, (int)pick, size);
        sum += *(unsigned char *)*slot;
    }
    for (int i = 0; i < 512; i++) {
        free(held[i]);
        held[i] = 0;
    }
    return sum;
}

static int by_value(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static uint64_t sorting(void) {
    fill();
    qsort(words, WORDS, sizeof *words, by_value);
    return words[0] ^ words[WORDS / 2];
}

static uint64_t fold(const unsigned char *from, size_t bytes) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ from[i]) * 1099511628211u;
    return hash;
}

static uint64_t hashing(void) {
    return fold((const unsigned char *)words, sizeof words);
}

static uint64_t jumping(void) {
    static jmp_buf back;
    volatile uint64_t count = 0;
    while (setjmp(back) < 1000)
        longjmp(back, (int)++count);
    return count;
}

// An interpreter: jumps by a table, with its program in data.
static uint64_t computed(void) {
    static const unsigned char code[] = {0, 1, 2, 3, 1, 0, 2, 4};
    static void *const table[] = {&&add, &&mix, &&turn, &&drop, &&loop};
    uint64_t a = 1, left = 100000;
    size_t at = 0;
    goto *table[code[at]];
add:
    a += 0x9e3779b97f4a7c15u;
    goto *table[code[++at]];
mix:
    a ^= a >> 29;
    goto *table[code[++at]];
turn:
    a = a << 9 | a >> 55;
    goto *table[code[++at]];
drop:
    a *= 5;
    goto *table[code[++at]];
loop:
    if (--left == 0)
        return a;
    at = 0;
    goto *table[code[at]];
}

struct node {
    struct node *next;
    uint64_t value;
};

static uint64_t chasing(void) {
    static struct node nodes[4096];
    uint64_t sum = 0;
    for (int i = 0; i < 4096; i++)
        nodes[i] = (struct node){&nodes[(i * 1021 + 7) % 4096], (uint64_t)i};
    struct node *at = nodes;
    for (int i = 0; i < 300000; i++, at = at->next)
        sum += at->value ^ (uint64_t)i;
    return sum;
}

static uint64_t strings(void) {
    static char line[256];
    uint64_t sum = 0;
    for (int i = 0; i < 4000; i++) {
        snprintf(line, sizeof line, "%d %x %.6f %s", i, i * 7919, i / 7.0, "and so on");
        sum += strlen(line) + (uint64_t)(strchr(line, '.') - line) + (uint64_t)strtod(line, 0);
    }
    return sum;
}

static uint64_t matrix(void) {
    enum { N = 96 };
    static double a[N][N], b[N][N], c[N][N];
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i][j] = i + j, b[i][j] = i - j, c[i][j] = 0;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            for (int j = 0; j < N; j++)
                c[i][j] += a[i][k] * b[k][j];
    for (int i = 0; i < N; i++)
        sum += c[i][i];
    return bits(sum);
}

// Handlers within handlers, on a stack of their own, left by a jump now and then.
static sigjmp_buf out;
static volatile int ready;

static void inner(int signal) {
    (void)signal;
    ticks += fold((const unsigned char *)words, 4096) != 0;
    if (ready && ticks % 7 == 0)
        siglongjmp(out, 1);
}

static void outer(int signal) {
    (void)signal;
    raise(SIGUSR2);
    ticks++;
}

static uint64_t nested(void) {
    static char stack[1 << 16];
    if (ticks == 0) {
        stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
        struct itimerval every = {{0, 30000}, {0, 30000}};
        struct sigaction first = {.sa_handler = outer, .sa_flags = SA_ONSTACK | SA_RESTART};
        struct sigaction second = {.sa_handler = inner, .sa_flags = SA_ONSTACK | SA_NODEFER};
        sigaltstack(&own, 0);
        sigaction(SIGALRM, &first, 0);
        sigaction(SIGUSR2, &second, 0);
        setitimer(ITIMER_REAL, &every, 0);
        ticks = 1;
    }
    if (sigsetjmp(out, 1) == 0) {
        ready = 1;
        hashing();
    }
    ready = 0;
    return hashing();
}

// Memory that the host has not given it yet, page by page: nearly all of its time is that of faults
// at one instruction, which is long enough to be overwritten.
static uint64_t fresh(void) {
    enum { ALL = 64 << 20 };
    char *all = mmap(0, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(all, ALL, MADV_NOHUGEPAGE);
    for (volatile uint32_t *at = (uint32_t *)all; at < (uint32_t *)(all + ALL); at += 1024)
        *at = 0x01020304;
    uint64_t sum = fold((unsigned char *)all + ALL / 2, 4096);
    munmap(all, ALL);
    return sum;
}

// Its own code, which it reads.
extern const unsigned char __executable_start, etext;

static uint64_t itself(void) {
    return fold(&__executable_start, (size_t)(&etext - &__executable_start));
}

static const struct {
    const char *name;
    uint64_t (*run)(void);
} kinds[] = {
    {"integer", integer}, {"counting", counting}, {"sse", sse},           {"x87", x87},
    {"avx", avx},         {"recursion", recursion}, {"deep", deep},       {"movs", movs},
    {"stos", stos},       {"copying", copying},   {"churn", churn},       {"sorting", sorting},
    {"hashing", hashing}, {"jumping", jumping},   {"computed", computed}, {"chasing", chasing},
    {"strings", strings}, {"matrix", matrix},     {"nested", nested},     {"fresh", fresh},
    {"itself", itself},
};

int main(int argc, char **argv) {
    big[0] = calloc(1, BIG);
    big[1] = calloc(1, BIG);
    fill();
    for (size_t i = 0; argc > 1 && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(argv[1], kinds[i].name) != 0)
            continue;
        uint64_t first = kinds[i].run();
        while (kinds[i].run() == first)
            ;
        puts("a round had another result");
        return 1;
    }
    return 2;
}

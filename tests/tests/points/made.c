// Makes code at run time and computes in it while it gets signals; counts its rounds in the page
// with the code, too, and in memory of its own. Prints whether both counts are the same.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { SIGNALS = 8, COUNT_AT = 512 };

static volatile sig_atomic_t signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

// uint64_t rounds(volatile int *signals, int end): until so many signals have come, counts to
// a million in each round.
static const unsigned char code[] = {
    0x31, 0xc0,                                     // xor eax, eax
    0x31, 0xc9,                                     // round: xor ecx, ecx
    0x48, 0x8d, 0x89, 1, 0, 0, 0,                   // count: lea rcx, [rcx + 1], a long one
    0x81, 0xf9, 0x40, 0x42, 0x0f, 0,                // cmp ecx, 1000000
    0x75, 0xf1,                                     // jne count
    0x48, 0x83, 0x05, 0xe5, 0x01, 0, 0, 1,          // add qword [code + COUNT_AT], 1
    0x48, 0x8d, 0x80, 1, 0, 0, 0,                   // lea rax, [rax + 1]
    0x39, 0x37,                                     // cmp [rdi], esi
    0x7c, 0xdc,                                     // jl round
    0xc3,                                           // ret
};

int main(void) {
    int allowed = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *page = mmap(0, 4096, allowed, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct itimerval every = {{0, 20000}, {0, 20000}};
    if (page == MAP_FAILED)
        return 1;
    memcpy(page, code, sizeof code);
    signal(SIGALRM, count);
    setitimer(ITIMER_REAL, &every, 0);
    uint64_t (*rounds)(volatile int *, int) = (uint64_t (*)(volatile int *, int))page;
    uint64_t made = rounds(&signals, SIGNALS), counted;
    memcpy(&counted, page + COUNT_AT, sizeof counted);
    int same = memcmp(page, code, sizeof code) == 0;
    printf("%d signals, %s, %s\n", SIGNALS, made == counted ? "all rounds" : "some rounds",
           same ? "the same code" : "other code");
    return 0;
}

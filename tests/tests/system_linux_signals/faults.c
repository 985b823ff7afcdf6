/* What the processor does not allow: told to a handler, or the end. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

int main(int argc, char **argv);
static sigjmp_buf back;
static void *volatile expected;
static char *page;
static volatile int zero;
static char area[1 << 15];

static void told(int signal, siginfo_t *info, void *context)
{
    ucontext_t *it = context;
    greg_t *registers = it->uc_mcontext.gregs;
    int at_code = info->si_addr == (void *)registers[REG_RIP];
    printf("signal %d code %d, address %d, at code %d, exception %d, code %d, cr2 %d\n", signal,
           info->si_code, info->si_addr == expected, at_code, (int)registers[REG_TRAPNO],
           (int)registers[REG_ERR],
           registers[REG_TRAPNO] == 14 && (void *)registers[REG_CR2] == info->si_addr);
    siglongjmp(back, 1);
}

static void skip(int signal, siginfo_t *info, void *context)
{
    ucontext_t *it = context;
    (void)info;
    it->uc_mcontext.gregs[REG_RIP] += signal == SIGTRAP ? 0 : 2;
    printf("skipped %d\n", signal);
}

static void mend(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    printf("mended %d\n", info->si_addr == page + 8);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(signal, &action, 0);
}

static int sink(int depth)
{
    volatile char here[4096];
    here[0] = depth;
    return sink(depth + 1) + here[0];
}

static void all(void)
{
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (unsigned at = 0; at < sizeof signals / sizeof *signals; at++)
        handle(signals[at], told, 0);
    if (!sigsetjmp(back, 1))
        expected = (void *)16, *(volatile int *)16 = 1;
    if (!sigsetjmp(back, 1))
        expected = (void *)-4096, (void)*(volatile int *)-4096l;
    if (!sigsetjmp(back, 1))
        expected = page, *page = 1;
    if (!sigsetjmp(back, 1))
        expected = (void *)(uintptr_t)main, *(volatile char *)(uintptr_t)main = 0;
    if (!sigsetjmp(back, 1))
        expected = 0, (void)*(volatile int *)0x8000000000000000ul;
    if (!sigsetjmp(back, 1))
        expected = page + 4096, ((void (*)(void))(page + 4096))();
    expected = 0;
    if (!sigsetjmp(back, 1))
        printf("%d\n", 7 / zero);
    if (!sigsetjmp(back, 1))
        __asm__ volatile("ud2");
    if (!sigsetjmp(back, 1))
        __asm__ volatile("int3");
    if (!sigsetjmp(back, 1))
        __asm__ volatile("hlt");
    unsigned short control = 0x037b;
    if (!sigsetjmp(back, 1))
        __asm__ volatile("fldcw %0\n\tfld1\n\tfldz\n\tfdivrp\n\tfwait" : : "m"(control));
    __asm__ volatile("fninit");
}

static void on(void)
{
    handle(SIGILL, skip, 0);
    handle(SIGTRAP, skip, 0);
    handle(SIGSEGV, mend, 0);
    __asm__ volatile("ud2\n\tint3");
    page[8] = 5;
    printf("written %d\n", page[8]);
    stack_t own = {.ss_sp = area, .ss_size = sizeof area};
    sigaltstack(&own, 0);
    handle(SIGSEGV, told, SA_ONSTACK);
    /* The address is somewhere below the stack. */
    expected = (void *)1;
    if (!sigsetjmp(back, 1))
        printf("%d\n", sink(0));
}

int main(int argc, char **argv)
{
    sigset_t set;
    page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    mprotect(page, 4096, PROT_READ);
    setvbuf(stdout, 0, _IONBF, 0);
    switch (argc < 2 ? 'a' : argv[1][0]) {
    case 'a':
        all();
        on();
        return 0;
    case 'd': /* by itself */
        return 7 / zero;
    case 't':
        __asm__ volatile("int3");
        return 0;
    case 'b': /* blocked, with a handler */
        handle(SIGSEGV, told, 0);
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, 0);
        *(volatile int *)16 = 1;
        return 0;
    case 'i': /* ignored */
        signal(SIGSEGV, SIG_IGN);
        *(volatile int *)16 = 1;
        return 0;
    case 's': /* no stack for the handler */
        handle(SIGUSR1, told, 0);
        __asm__ volatile("mov $64, %%rsp\n\tsyscall"
                         : : "a"(62l), "D"((long)getpid()), "S"((long)SIGUSR1) : "memory");
        return 0;
    case 'o': /* none is left for the one of a fault */
        handle(SIGSEGV, told, 0);
        return sink(0);
    case 'r': /* a frame that is none */
        __asm__ volatile("mov $64, %%rsp\n\tsyscall" : : "a"(15l) : "memory");
        return 0;
    case 'x': /* a death that is asked for, from within a handler */
        signal(SIGUSR1, (void (*)(int))abort);
        raise(SIGUSR1);
        return 0;
    case 'k':
        kill(0, SIGKILL);
        return 0;
    case 'p':
        return raise(SIGSTOP) == 0;
    }
    return 99;
}

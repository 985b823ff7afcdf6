/* Handlers: what they are told, what is kept for the program, and in which order they run. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static char trail[64];
static volatile int depth, aligned = 1, on_stack, told;
static sigjmp_buf back;
static volatile double sum;

static void note(char mark)
{
    size_t len = strlen(trail);
    if (len + 1 < sizeof trail)
        trail[len] = mark;
}

static void show(const char *what)
{
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    printf("%s: '%s', blocked %d %d\n", what, trail, sigismember(&set, SIGUSR1),
           sigismember(&set, SIGUSR2));
    memset(trail, 0, sizeof trail);
}

static void set(int signal, void (*handler)(int), int flags, int blocked)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    if (blocked)
        sigaddset(&action.sa_mask, blocked);
    sigaction(signal, &action, 0);
}

static void first(int signal)
{
    char here[16] __attribute__((aligned(16)));
    aligned &= (uintptr_t)here % 16 == 0;
    note(signal == SIGUSR1 ? '1' : '2');
    sum = sum / 3 + signal;
    if (signal == SIGUSR1 && depth++ < 2)
        raise(SIGUSR1);
    if (signal == SIGUSR1)
        raise(SIGUSR2);
    note(signal == SIGUSR1 ? 'a' : 'b');
}

static void order(void)
{
    sigset_t both, old;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    set(SIGUSR1, first, 0, 0);
    set(SIGUSR2, first, 0, 0);
    depth = 0, raise(SIGUSR1), show("plain");
    set(SIGUSR1, first, 0, SIGUSR2);
    depth = 0, raise(SIGUSR1), show("with a mask");
    set(SIGUSR1, first, SA_NODEFER, 0);
    depth = 0, raise(SIGUSR1), show("not deferred");
    set(SIGUSR1, first, 0, 0);
    depth = 9, sigprocmask(SIG_BLOCK, &both, &old);
    raise(SIGUSR2), raise(SIGUSR1), note('-');
    sigprocmask(SIG_SETMASK, &old, 0), show("both at once");
    set(SIGUSR1, first, SA_RESETHAND, 0);
    depth = 9, raise(SIGUSR1);
    struct sigaction action;
    sigaction(SIGUSR1, 0, &action);
    printf("reset %d, aligned %d\n", action.sa_handler == SIG_DFL, aligned);
    show("once");
}

static void info(int signal, siginfo_t *info, void *context)
{
    ucontext_t *it = context;
    told = info->si_signo == signal && info->si_pid == getpid();
    printf("info %d: code %d, value %d, blocked %d, segments %llx, floats %d\n", told,
           info->si_code, info->si_value.sival_int, sigismember(&it->uc_sigmask, SIGUSR2),
           (unsigned long long)it->uc_mcontext.gregs[REG_CSGSFS],
           (uintptr_t)it->uc_mcontext.fpregs % 64 == 0);
    /* What is on the floating-point stack of the program is there, and can be changed. */
    it->uc_mcontext.fpregs->_xmm[9].element[0] = 0x40e00000;
    it->uc_mcontext.gregs[REG_RBX] = 4711;
    it->uc_mcontext.gregs[REG_R11] ^= 1;
}

/* Keeps values in registers and in the red zone over a signal to itself. */
static void registers(void)
{
    struct sigaction action = {.sa_sigaction = info, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN, &action, 0);
    sigqueue(getpid(), SIGRTMIN, (union sigval){77});
    long pid = getpid(), me = syscall(SYS_gettid), zone, kept, changed, answer = SYS_tgkill;
    float nine, ten = 10.5f;
    __asm__ volatile("movq $1234, -128(%%rsp)\n\t"
                     "movss %7, %%xmm10\n\t"
                     "movss %7, %%xmm9\n\t"
                     "mov $55, %%rbx\n\t"
                     "mov $66, %%r15\n\t"
                     "std\n\t"
                     "syscall\n\t"
                     "cld\n\t"
                     "mov -128(%%rsp), %1\n\t"
                     "mov %%r15, %2\n\t"
                     "mov %%rbx, %3\n\t"
                     "movss %%xmm9, %4\n\t"
                     "movss %%xmm10, %7"
                     : "+&a"(answer), "=&r"(zone), "=&r"(kept), "=&r"(changed), "=m"(nine),
                       "+D"(pid), "+S"(me), "+m"(ten)
                     : "d"((long)SIGRTMIN)
                     : "rbx", "r15", "rcx", "r11", "xmm9", "xmm10", "memory");
    printf("answer %ld, zone %ld, kept %ld, changed %ld, %.1f %.1f\n", answer, zone, kept,
           changed, nine, ten);
}

static void rounding(int signal)
{
    unsigned control = 0x1f80;
    unsigned short word;
    (void)signal;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(control), "=m"(word));
    printf("in the handler %x %x\n", control & 0xffc0, word);
    control = 0x7f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
}

static void modes(void)
{
    unsigned control = 0x3f80;
    set(SIGUSR1, rounding, 0, 0);
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
    raise(SIGUSR1);
    __asm__ volatile("stmxcsr %0" : "=m"(control));
    printf("behind it %x\n", control & 0xffc0);
    control = 0x1f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
}

static char area[1 << 14];

static void deep(int signal)
{
    char here;
    stack_t now, no = {.ss_flags = SS_DISABLE};
    on_stack = &here > area && &here < area + sizeof area;
    sigaltstack(0, &now);
    int refused = sigaltstack(&no, 0) < 0 && errno == EPERM;
    printf("%d on it %d, flags %d, refused %d\n", signal, on_stack, now.ss_flags, refused);
    if (signal == SIGUSR1)
        raise(SIGUSR2);
}

static void stacks(void)
{
    stack_t own = {.ss_sp = area, .ss_size = sizeof area}, old, small = {.ss_sp = area, .ss_size = 9};
    sigaltstack(&own, &old);
    printf("before %d, small %d\n", old.ss_flags, sigaltstack(&small, 0) < 0 && errno == ENOMEM);
    set(SIGUSR1, deep, SA_ONSTACK, 0);
    set(SIGUSR2, deep, SA_ONSTACK, 0);
    raise(SIGUSR1);
    set(SIGUSR2, deep, 0, 0);
    raise(SIGUSR2);
    sigaltstack(0, &old);
    printf("behind %d %d\n", old.ss_flags, old.ss_sp == area);
}

static void jump(int signal)
{
    siglongjmp(back, signal);
}

static void suspended(int signal)
{
    sigset_t now;
    sigprocmask(SIG_BLOCK, 0, &now);
    note(signal == SIGUSR1 ? 's' : 't');
    note(sigismember(&now, SIGUSR2) ? 'y' : 'n');
}

static void jumps(void)
{
    sigset_t both, old;
    set(SIGUSR1, jump, 0, 0);
    volatile int rounds = 0;
    if (sigsetjmp(back, 1) == 0 || ++rounds < 3)
        raise(SIGUSR1);
    printf("jumped %d\n", rounds);
    show("out of it");
    set(SIGUSR1, suspended, 0, 0);
    set(SIGUSR2, suspended, 0, 0);
    sigemptyset(&both);
    sigaddset(&both, SIGUSR2);
    sigaddset(&both, SIGUSR1);
    sigprocmask(SIG_BLOCK, &both, &old);
    raise(SIGUSR1);
    raise(SIGUSR2);
    sigdelset(&both, SIGUSR1);
    int over = sigsuspend(&both), why = errno;
    printf("suspended %d %d\n", over, why == EINTR);
    show("meanwhile");
    sigprocmask(SIG_SETMASK, &old, 0);
    show("behind");
}

int main(void)
{
    order();
    registers();
    modes();
    stacks();
    jumps();
    printf("%.4f\n", sum);
    return 0;
}

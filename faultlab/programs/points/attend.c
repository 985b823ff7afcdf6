// Loaded before a program of which points are verified. The program begins when the observer says
// so, by a byte on standard input. Each SIGWINCH folds what the handler sees of the interrupted
// program, all registers and the whole extended state, into a word of memory, which the observer
// compares at the next point. SIGUSR1 prints that word and ends the program. Both stay so: some
// programs reset all handlers as they begin.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static uint64_t seen = 14695981039346656037u;

static void fold(const void *from, size_t bytes) {
    const unsigned char *at = from;
    for (size_t i = 0; i < bytes; i++)
        seen = (seen ^ at[i]) * 1099511628211u;
}

// What the kernel says behind the legacy part: a mark, and how much there is.
static size_t extended_bytes(const void *state) {
    uint32_t mark, bytes;
    memcpy(&mark, (const char *)state + 464, 4);
    memcpy(&bytes, (const char *)state + 468, 4);
    return mark == 0x46505853 ? bytes : 512;
}

static void look(int signal, siginfo_t *info, void *context) {
    const ucontext_t *it = context;
    (void)info;
    fold(it->uc_mcontext.gregs, 18 * sizeof(greg_t));
    fold(it->uc_mcontext.fpregs, extended_bytes(it->uc_mcontext.fpregs));
    if (signal == SIGUSR1) {
        char line[64];
        int length = snprintf(line, sizeof line, "\nseen %016lx\n", (unsigned long)seen);
        if (write(1, line, length) == length)
            _exit(0);
        _exit(1);
    }
}

static int begun;

int sigaction(int signal, const struct sigaction *action, struct sigaction *old) {
    int (*next)(int, const struct sigaction *, struct sigaction *);
    *(void **)&next = dlsym(RTLD_NEXT, "sigaction");
    int is_ours = signal == SIGWINCH || signal == SIGUSR1;
    return next(signal, begun && is_ours ? 0 : action, old);
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    char go;
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaddset(&action.sa_mask, SIGWINCH);
    sigaction(SIGWINCH, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    begun = 1;
    unsetenv("LD_PRELOAD");
    if (read(0, &go, 1) != 1)
        _exit(9);
}

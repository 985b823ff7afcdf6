/* The race of DSN'19, V-A1, in C: 32 threads add to one counter without a lock. Argument: rounds
 * (10), in each of which every thread adds a thousand times. What each round comes to joins the
 * trace: replicas that are preempted at one instruction agree, others do not. */
#include "rcoe-system.h"

#define THREADS 32
#define ADDITIONS 1000
#define ALL (THREADS * ADDITIONS)
#define STACK 4096
#define PRIORITY 20

/* Slots: where threads are told to begin and tell that they have ended, a buffer that they have to
 * have, and the threads. */
#define BEGIN RCOE_SLOT_FREE
#define DONE (BEGIN + 1)
#define BUFFER (BEGIN + 2)
#define FIRST (BEGIN + 3)

/* What all add to. */
static volatile uint64_t counter;

/* A call, because emulators do not interrupt a straight run of code. */
__attribute__((noinline, noclone)) static uint64_t one_more(uint64_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value + 1;
}

/* A thread: what it read may be old when it writes. */
__attribute__((noreturn, used)) static void work(void)
{
    for (;;) {
        rcoe_recv(BEGIN);
        for (int i = 0; i < ADDITIONS; i++)
            counter = one_more(counter);
        rcoe_enter(RCOE_SEND, DONE, 0, NULL, 0, NULL, 0);
    }
}

static int ask(uint64_t thread, uint64_t what, const uint64_t *words, size_t length)
{
    return rcoe_call(thread, what, words, length).label == 0;
}

static int start(uint64_t thread)
{
    char *stack = rcoe_memory(STACK);
    if (stack == NULL || !rcoe_make(RCOE_TCB, thread))
        return 0;
    uint64_t top = (uint64_t)(stack + STACK - 16);
    uint64_t parts[4] = {RCOE_SLOT_CNODE, RCOE_SLOT_VSPACE, BUFFER, RCOE_SLOT_ROOT};
    uint64_t priority[1] = {PRIORITY};
    uint64_t registers[4] = {(uint64_t)work, top, 0, 0};
    return ask(thread, RCOE_TCB_CONFIGURE, parts, 4) &&
           ask(thread, RCOE_TCB_SET_PRIORITY, priority, 1) &&
           ask(thread, RCOE_TCB_WRITE_REGISTERS, registers, 4) &&
           ask(thread, RCOE_TCB_RESUME, NULL, 0);
}

static uint64_t race(void)
{
    counter = 0;
    for (int i = 0; i < THREADS; i++)
        rcoe_enter(RCOE_SEND, BEGIN, 0, NULL, 0, NULL, 0);
    for (int i = 0; i < THREADS; i++)
        rcoe_recv(DONE);
    return counter;
}

static uint64_t main_function(uint64_t argument)
{
    uint64_t rounds = argument == 0 ? 10 : argument, raced = 0, least = UINT64_MAX, most = 0;
    int made = rcoe_make(RCOE_ENDPOINT, BEGIN) && rcoe_make(RCOE_ENDPOINT, DONE) &&
               rcoe_make(RCOE_FRAME, BUFFER);
    for (uint64_t thread = FIRST; made && thread < FIRST + THREADS; thread++)
        made = start(thread);
    if (!made) {
        rcoe_print("racing: not enough memory\n");
        return 1;
    }
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t value = race();
        rcoe_add_trace(&value, 1);
        least = value < least ? value : least;
        most = value > most ? value : most;
        raced += value != ALL;
    }
    rcoe_print_number(rounds);
    rcoe_print(" rounds, ");
    rcoe_print_number(raced);
    rcoe_print(" with additions lost: ");
    rcoe_print_number(least);
    rcoe_print(" to ");
    rcoe_print_number(most);
    rcoe_print(" of ");
    rcoe_print_number(ALL);
    rcoe_print("\n");
    return 0;
}

RCOE_PROGRAM(main_function);

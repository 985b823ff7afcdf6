/* Programs in C for the system sphere: `rcoe run --sphere system -- ./program`.
 *
 * A program names its main function by RCOE_PROGRAM(main), which gets the one number of the command
 * line (0 if there is none) and returns the exit status. It begins with the capabilities of the
 * RCOE_SLOT_ constants. Of the C library there are memcpy, memmove, memset and memcmp only, here.
 * Build it so, from the folder of the sources:
 *
 *     gcc -std=gnu11 -O2 -ffreestanding -fno-pie -fno-stack-protector -fcf-protection=none \
 *         -nostdlib -static -no-pie -Wl,-Ttext-segment=0x400000 -Wl,-z,max-page-size=4096 \
 *         -Wl,-z,separate-code -Wl,-z,noexecstack -Wl,--build-id=none \
 *         -I user/include program.c -o program
 *
 * and for AArch64 by aarch64-linux-gnu-gcc with the same words but -fcf-protection=none.
 *
 * Programs must be free of data races that preemption would show: replicas are preempted at the
 * same event, not at the same instruction, unless they run with --coupling close. Where the machine
 * cannot count for that, the program can itself (--count-by compiler), if it was built by
 *
 *     cargo xtask counted program.c -o program
 *
 * The time stamp counter of x86-64 faults.
 */
#ifndef RCOE_SYSTEM_H
#define RCOE_SYSTEM_H

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "Programs in C are for x86-64 and AArch64."
#endif

#include <stddef.h>
#include <stdint.h>

/* System calls. */
#define RCOE_CALL 1
#define RCOE_REPLY_RECV 2
#define RCOE_SEND 3
#define RCOE_NB_SEND 4
#define RCOE_RECV 5
#define RCOE_NB_RECV 6
#define RCOE_REPLY 7
#define RCOE_YIELD 8
#define RCOE_ADD_TRACE 9

/* What a program finds in its capability table, and the first slot that is free. */
#define RCOE_SLOT_ROOT 1
#define RCOE_SLOT_CONSOLE 2
#define RCOE_SLOT_TCB 3
#define RCOE_SLOT_PEER 4
#define RCOE_SLOT_CNODE 5
#define RCOE_SLOT_VSPACE 6
#define RCOE_SLOT_TIMER 10
#define RCOE_SLOT_DEVICE 11
#define RCOE_SLOT_TRACE 12
#define RCOE_SLOT_FREE 32

/* Requests to the root task, the console, the timer, and the driver `edu`. */
#define RCOE_ROOT_EXIT 32
#define RCOE_ROOT_SPAWN 33
#define RCOE_ROOT_MAP 34
#define RCOE_ROOT_MAKE 35
#define RCOE_ROOT_WINDOW 36
#define RCOE_CONSOLE_WRITE 32
#define RCOE_TIMER_SLEEP 32
#define RCOE_EDU_FACTORIAL 44
#define RCOE_EDU_COPY 45

/* Types of objects that the root task makes, and rights. */
#define RCOE_TCB 3
#define RCOE_ENDPOINT 4
#define RCOE_NOTIFICATION 5
#define RCOE_FRAME 6
#define RCOE_READ 1
#define RCOE_WRITE 2
#define RCOE_GRANT 8

/* Invocations of a thread, of a capability table and of a frame. */
#define RCOE_TCB_CONFIGURE 24
#define RCOE_TCB_SET_PRIORITY 25
#define RCOE_TCB_WRITE_REGISTERS 26
#define RCOE_TCB_RESUME 28
#define RCOE_CNODE_COPY 17
#define RCOE_CNODE_MINT 18
#define RCOE_CNODE_MOVE 19
#define RCOE_CNODE_DELETE 20
#define RCOE_CNODE_REVOKE 21
#define RCOE_FRAME_MAP 32
#define RCOE_FRAME_UNMAP 33
#define RCOE_DEVICE_FRAME 57
#define RCOE_SHARED_MEET 58

/* An error: a page table is missing. */
#define RCOE_MISSING_TABLE 11

/* Messages, and where their parts are in the IPC buffer. */
#define RCOE_MAX_MESSAGE 120
#define RCOE_MAX_CAPS 3
#define RCOE_IN_REGISTERS 4
#define RCOE_FIRST_BUFFER_WORD 1
#define RCOE_CAPS_WORD 121
#define RCOE_RECEIVE_WORD 124

/* The IPC buffer, and where shared frames are mapped. */
#define RCOE_IPC_BUFFER 0x80000000
#define RCOE_WINDOW 0x2000000000

/* A message as it was received. */
struct rcoe_message {
    uint64_t badge;     /* of the capability it was sent by; of a notification, its signals */
    uint64_t label;     /* in an answer of the kernel 0 or an error */
    size_t length;      /* words; those beyond the first four are at rcoe_word() until the next */
    size_t capabilities; /* that came with it, into the slots given to rcoe_accept() */
    uint64_t unwrapped; /* those of which only the badge came, one bit each */
    uint64_t words[RCOE_IN_REGISTERS];
};

static inline volatile uint64_t *rcoe_buffer_(void)
{
    return (volatile uint64_t *)RCOE_IPC_BUFFER;
}

/* The instruction that enters the kernel, with what goes and comes in registers. */
#ifdef __x86_64__
static inline void rcoe_raw_(uint64_t number, uint64_t *pointer, uint64_t *info, uint64_t *words)
{
    register uint64_t a __asm__("r10") = words[0];
    register uint64_t b __asm__("r8") = words[1];
    register uint64_t c __asm__("r9") = words[2];
    register uint64_t d __asm__("r12") = words[3];
    __asm__ volatile("syscall"
                     : "+D"(*pointer), "+S"(*info), "+r"(a), "+r"(b), "+r"(c), "+r"(d)
                     : "a"(number)
                     : "rcx", "r11", "memory");
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}
#else
static inline void rcoe_raw_(uint64_t number, uint64_t *pointer, uint64_t *info, uint64_t *words)
{
    register uint64_t call __asm__("x8") = number;
    register uint64_t badge __asm__("x0") = *pointer;
    register uint64_t answer __asm__("x1") = *info;
    register uint64_t a __asm__("x2") = words[0];
    register uint64_t b __asm__("x3") = words[1];
    register uint64_t c __asm__("x4") = words[2];
    register uint64_t d __asm__("x5") = words[3];
    __asm__ volatile("svc #0"
                     : "+r"(badge), "+r"(answer), "+r"(a), "+r"(b), "+r"(c), "+r"(d)
                     : "r"(call)
                     : "memory");
    *pointer = badge, *info = answer;
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}
#endif

/* Any system call, with `length` words and `capabilities` pointers. */
static inline struct rcoe_message rcoe_enter(uint64_t number, uint64_t pointer, uint64_t label,
                                             const uint64_t *words, size_t length,
                                             const uint64_t *capabilities, size_t count)
{
    uint64_t first[RCOE_IN_REGISTERS] = {0, 0, 0, 0};
    if (length > RCOE_MAX_MESSAGE)
        length = RCOE_MAX_MESSAGE;
    if (count > RCOE_MAX_CAPS)
        count = RCOE_MAX_CAPS;
    for (size_t i = 0; i < length; i++) {
        if (i < RCOE_IN_REGISTERS)
            first[i] = words[i];
        else
            rcoe_buffer_()[RCOE_FIRST_BUFFER_WORD + i] = words[i];
    }
    for (size_t i = 0; i < count; i++)
        rcoe_buffer_()[RCOE_CAPS_WORD + i] = capabilities[i];
    uint64_t badge = pointer, info = label << 12 | (uint64_t)count << 7 | length;
    rcoe_raw_(number, &badge, &info, first);
    struct rcoe_message answer = {badge, info >> 12, info & 127, info >> 7 & 3, info >> 9 & 7,
                                  {first[0], first[1], first[2], first[3]}};
    return answer;
}

/* Sends and waits for the answer; or invokes a kernel object. */
static inline struct rcoe_message rcoe_call(uint64_t pointer, uint64_t label,
                                            const uint64_t *words, size_t length)
{
    return rcoe_enter(RCOE_CALL, pointer, label, words, length, NULL, 0);
}

/* As rcoe_call(), with capabilities. The endpoint must allow that. */
static inline struct rcoe_message rcoe_call_with(uint64_t pointer, uint64_t label,
                                                 const uint64_t *words, size_t length,
                                                 const uint64_t *capabilities, size_t count)
{
    return rcoe_enter(RCOE_CALL, pointer, label, words, length, capabilities, count);
}

/* Waits for a message or a signal. */
static inline struct rcoe_message rcoe_recv(uint64_t pointer)
{
    return rcoe_enter(RCOE_RECV, pointer, 0, NULL, 0, NULL, 0);
}

/* Answers the last caller and waits for the next message. */
static inline struct rcoe_message rcoe_reply_recv(uint64_t pointer, uint64_t label,
                                                  const uint64_t *words, size_t length)
{
    return rcoe_enter(RCOE_REPLY_RECV, pointer, label, words, length, NULL, 0);
}

/* Lets others of the same priority run. */
static inline void rcoe_yield(void)
{
    rcoe_enter(RCOE_YIELD, 0, 0, NULL, 0, NULL, 0);
}

/* Word `index` of the last message received. */
static inline uint64_t rcoe_word(const struct rcoe_message *message, size_t index)
{
    if (index < RCOE_IN_REGISTERS)
        return message->words[index];
    return index < message->length ? rcoe_buffer_()[RCOE_FIRST_BUFFER_WORD + index] : 0;
}

/* Says which slots of `table` take capabilities that messages bring: `count` from `first` on. */
static inline void rcoe_accept(uint64_t table, uint64_t first, uint64_t count)
{
    rcoe_buffer_()[RCOE_RECEIVE_WORD] = table;
    rcoe_buffer_()[RCOE_RECEIVE_WORD + 1] = first;
    rcoe_buffer_()[RCOE_RECEIVE_WORD + 2] = count;
}

/* Has these words compared between replicas before anything goes out. A program without the right
 * to that ends here: it may not go on as if they were. */
static inline void rcoe_add_trace(const uint64_t *words, size_t length)
{
    while (length > 0) {
        size_t part = length < RCOE_MAX_MESSAGE ? length : RCOE_MAX_MESSAGE;
        if (rcoe_enter(RCOE_ADD_TRACE, RCOE_SLOT_TRACE, 0, words, part, NULL, 0).label != 0)
            __builtin_trap();
        words += part;
        length -= part;
    }
}

/* Ends the program. */
__attribute__((noreturn)) static inline void rcoe_exit(uint64_t status)
{
    rcoe_call(RCOE_SLOT_ROOT, RCOE_ROOT_EXIT, &status, 1);
    __builtin_trap();
}

/* Writes to the console. */
static inline void rcoe_write(const char *text, size_t length)
{
    uint64_t words[RCOE_MAX_MESSAGE];
    while (length > 0) {
        size_t room = 8 * (RCOE_MAX_MESSAGE - 1);
        size_t part = length < room ? length : room, used = 1 + (part + 7) / 8;
        words[0] = part;
        for (size_t i = 1; i < used; i++)
            words[i] = 0;
        for (size_t i = 0; i < part; i++)
            words[1 + i / 8] |= (uint64_t)(unsigned char)text[i] << (i % 8 * 8);
        rcoe_call(RCOE_SLOT_CONSOLE, RCOE_CONSOLE_WRITE, words, used);
        text += part;
        length -= part;
    }
}

/* Writes a text to the console. */
static inline void rcoe_print(const char *text)
{
    size_t length = 0;
    while (text[length] != 0)
        length++;
    rcoe_write(text, length);
}

/* Writes a number to the console. */
static inline void rcoe_print_number(uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    rcoe_write(digits + at, sizeof digits - at);
}

/* Zeroed memory, a multiple of 4096 bytes, or NULL if there is not enough. */
static inline void *rcoe_memory(size_t bytes)
{
    uint64_t pages = (bytes + 4095) / 4096;
    struct rcoe_message answer = rcoe_call(RCOE_SLOT_ROOT, RCOE_ROOT_MAP, &pages, 1);
    return answer.label == 0 ? (void *)answer.words[0] : NULL;
}

/* Starts another program of the boot image, which shares RCOE_SLOT_PEER; tells whether there is
 * one. Names have at most 32 bytes. */
static inline int rcoe_spawn(const char *name, uint64_t argument)
{
    uint64_t words[5] = {0, 0, 0, 0, argument};
    for (size_t i = 0; name[i] != 0; i++) {
        if (i == 32)
            return 0;
        words[i / 8] |= (uint64_t)(unsigned char)name[i] << (i % 8 * 8);
    }
    return rcoe_call(RCOE_SLOT_ROOT, RCOE_ROOT_SPAWN, words, 5).label == 0;
}

/* A new endpoint, notification or frame in `slot` of the own table; tells whether there is one. */
static inline int rcoe_make(uint64_t type, uint64_t slot)
{
    rcoe_accept(RCOE_SLOT_CNODE, slot, 1);
    struct rcoe_message answer = rcoe_call(RCOE_SLOT_ROOT, RCOE_ROOT_MAKE, &type, 1);
    rcoe_accept(RCOE_SLOT_CNODE, slot, 0);
    return answer.label == 0 && answer.capabilities == 1;
}

/* Maps the frame in `slot` in the window for shared frames, as its page `page`; NULL if it cannot.
 * What others write there meanwhile is for programs to agree on by messages. */
static inline volatile void *rcoe_map(uint64_t slot, uint64_t page, uint64_t rights)
{
    uint64_t words[3] = {RCOE_SLOT_VSPACE, RCOE_WINDOW + page * 4096, rights};
    struct rcoe_message answer = rcoe_call(slot, RCOE_FRAME_MAP, words, 3);
    if (answer.label == RCOE_MISSING_TABLE) {
        rcoe_call(RCOE_SLOT_ROOT, RCOE_ROOT_WINDOW, NULL, 0);
        answer = rcoe_call(slot, RCOE_FRAME_MAP, words, 3);
    }
    return answer.label == 0 ? (volatile void *)words[1] : NULL;
}

/* Copies a capability of the own table to slot `to`, with these rights at most; 0 or an error. */
static inline uint64_t rcoe_copy(uint64_t to, uint64_t from, uint64_t rights)
{
    uint64_t words[3] = {to, from, rights};
    return rcoe_call(RCOE_SLOT_CNODE, RCOE_CNODE_COPY, words, 3).label;
}

/* Deletes a capability of the own table; 0 or an error. */
static inline uint64_t rcoe_delete(uint64_t slot)
{
    return rcoe_call(RCOE_SLOT_CNODE, RCOE_CNODE_DELETE, &slot, 1).label;
}

/* Makes a capability to a page of device memory (those of RCOE_SLOT_DEVICE), for rcoe_map, in slot
 * `to`; 0 or an error. */
static inline uint64_t rcoe_device_frame(uint64_t device, uint64_t page, uint64_t to)
{
    uint64_t words[2] = { page, to };
    return rcoe_call(device, RCOE_DEVICE_FRAME, words, 2).label;
}

/* Drivers: meets the other replicas, by such a capability. Shared pages are the present primary's
 * from here on. The first word of the answer is another one after each change among the replicas;
 * the second is 1 in the primary, which alone writes. Nothing but the pages may depend on that. */
static inline struct rcoe_message rcoe_meet(uint64_t shared)
{
    return rcoe_call(shared, RCOE_SHARED_MEET, NULL, 0);
}

/* Waits for so many hundredths of a second. */
static inline void rcoe_sleep(uint64_t ticks)
{
    rcoe_call(RCOE_SLOT_TIMER, RCOE_TIMER_SLEEP, &ticks, 1);
}

/* Names the main function: uint64_t main(uint64_t argument). */
#define RCOE_PROGRAM(main_function)                                                                \
    __attribute__((noreturn, used)) static void rcoe_begin_(uint64_t argument)                     \
    {                                                                                              \
        rcoe_exit(main_function(argument));                                                        \
    }                                                                                              \
    __asm__(RCOE_NOTE_ ".text\n.globl _start\n_start:\n" RCOE_START_)

/* The note that says that a program is made for this system, and is none of Linux. */
#define RCOE_NOTE_                                                                                 \
    ".pushsection .note.rcoe, \"a\", %note\n.balign 4\n.long 5, 0, 1\n.asciz \"rcoe\"\n"            \
    ".balign 4\n.popsection\n"

/* A program's first instructions, and copies upwards and downwards and filling by bytes: by
 * instructions, since the compiler would make calls of loops. */
#ifdef __x86_64__
#define RCOE_START_ "\txor %ebp, %ebp\n\tand $-16, %rsp\n\tcall rcoe_begin_\n\tud2\n"
#define RCOE_COPY_ "rep movsb"
#define RCOE_COPY_DOWN_ "std\n\trep movsb\n\tcld"
#define RCOE_FILL_ "rep stosb"
#define RCOE_TO_ "+D"
#define RCOE_FROM_ "+S"
#define RCOE_LENGTH_ "+c"
#define RCOE_VALUE_ "a"
#define RCOE_SCRATCH_ "cc"
#else
#define RCOE_START_                                                                                \
    "\tmov x29, xzr\n\tmov x30, xzr\n\tmov x9, sp\n\tand sp, x9, #-16\n"                           \
    "\tbl rcoe_begin_\n\tudf #0\n"
#define RCOE_LOOP_(steps) "1:\tcbz %2, 2f\n\t" steps "\n\tsub %2, %2, #1\n\tb 1b\n2:"
#define RCOE_COPY_ RCOE_LOOP_("ldrb w9, [%1], #1\n\tstrb w9, [%0], #1")
#define RCOE_COPY_DOWN_ RCOE_LOOP_("ldrb w9, [%1], #-1\n\tstrb w9, [%0], #-1")
#define RCOE_FILL_ "1:\tcbz %1, 2f\n\tstrb %w2, [%0], #1\n\tsub %1, %1, #1\n\tb 1b\n2:"
#define RCOE_TO_ "+r"
#define RCOE_FROM_ "+r"
#define RCOE_LENGTH_ "+r"
#define RCOE_VALUE_ "r"
#define RCOE_SCRATCH_ "x9"
#endif

/* What the compiler may call. */
__attribute__((weak)) void *memcpy(void *to, const void *from, size_t length)
{
    void *result = to;
    __asm__ volatile(RCOE_COPY_
                     : RCOE_TO_(to), RCOE_FROM_(from), RCOE_LENGTH_(length)
                     :
                     : "memory", RCOE_SCRATCH_);
    return result;
}

__attribute__((weak)) void *memmove(void *to, const void *from, size_t length)
{
    if ((uintptr_t)to - (uintptr_t)from >= length)
        return memcpy(to, from, length);
    unsigned char *last = (unsigned char *)to + length - 1;
    const unsigned char *source = (const unsigned char *)from + length - 1;
    __asm__ volatile(RCOE_COPY_DOWN_
                     : RCOE_TO_(last), RCOE_FROM_(source), RCOE_LENGTH_(length)
                     :
                     : "memory", RCOE_SCRATCH_);
    return to;
}

__attribute__((weak)) void *memset(void *to, int value, size_t length)
{
    void *result = to;
    __asm__ volatile(RCOE_FILL_
                     : RCOE_TO_(to), RCOE_LENGTH_(length)
                     : RCOE_VALUE_(value)
                     : "memory");
    return result;
}

__attribute__((weak)) int memcmp(const void *first, const void *second, size_t length)
{
    const volatile unsigned char *a = first, *b = second;
    for (size_t i = 0; i < length; i++)
        if (a[i] != b[i])
            return a[i] - b[i];
    return 0;
}

#endif

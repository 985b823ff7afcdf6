/* Puts a program under Syscall User Dispatch that lets every call through, if DISPATCHED is set.
 *
 * What a native program costs then is what one that rcoe runs cannot go below, since the host enters
 * it by its slow way as long as a call from any other place must be caught. Preloaded, or linked into
 * a static program. The host takes it off at a fork and at an exec; programs here are one process.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#define DISPATCH_ON 1
/* Calls from here are let through: all that user mode can have. */
#define FIRST 1UL
#define LENGTH 0x7ffffffffffeUL

__attribute__((constructor)) static void put_under_dispatch(void) {
    if (!getenv("DISPATCHED")) return;
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_ON, FIRST, LENGTH, 0) != 0) _exit(3);
}

/* For programs that want their critical data voted before it reaches output.
 *
 * rcoe_add_trace() folds bytes into the replica's signature at once, so that the next vote, at the
 * latest the next output, finds replicas that hold different bytes. All replicas must call it at
 * the same place with the same length. Without rcoe it does nothing and costs one refused system
 * call.
 *
 *     long balance = 1000;
 *     rcoe_add_trace(&balance, sizeof balance);
 *
 * A seccomp filter that kills on unknown system calls must let number RCOE_ADD_TRACE through.
 */
#ifndef RCOE_H
#define RCOE_H

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

/* No system call of Linux has this number. */
#define RCOE_ADD_TRACE 0x72636f65L

/* Returns 0 if somebody compares the data, -1 with errno ENOSYS without rcoe, and -1 with errno
 * EFAULT under rcoe if the data cannot be read. */
static inline int rcoe_add_trace(const void *data, size_t length)
{
    return (int)syscall(RCOE_ADD_TRACE, data, length);
}

#endif

// Succeeds if this host offers breakpoints of the processor.
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    struct perf_event_attr event = {
        .type = PERF_TYPE_BREAKPOINT,
        .size = sizeof event,
        .bp_type = HW_BREAKPOINT_X,
        .bp_addr = (unsigned long)main,
        .bp_len = sizeof(long),
        .sample_period = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .remove_on_exec = 1,
        .sigtrap = 1,
    };
    return syscall(SYS_perf_event_open, &event, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) < 0;
}

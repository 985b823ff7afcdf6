// Ends, or has the kernel end, whoever sends a signal in one of the old ways, and starts a command.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE(nr, action) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)

int main(int argc, char **argv) {
    unsigned action = strcmp(argv[1], "kill") ? SECCOMP_RET_ERRNO | 1 : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_kill, action),
        REFUSE(SYS_tkill, action),
        REFUSE(SYS_tgkill, action),
        REFUSE(SYS_rt_sigqueueinfo, action),
        REFUSE(SYS_rt_tgsigqueueinfo, action),
        REFUSE(SYS_timer_create, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter)) {
        perror("filter");
        return 1;
    }
    execvp(argv[2], argv + 2);
    return 127;
}

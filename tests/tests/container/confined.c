// Runs a command under a filter of system calls like that of container engines: what they refuse
// without a capability is answered with the error that is the first argument.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define GIVE(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW GIVE(SECCOMP_RET_ALLOW)
// The next instruction is passed over unless the word is this one, or unless it is another one.
#define IF(word) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word, 0, 1)
#define REFUSE(number, error) IF(number), GIVE(SECCOMP_RET_ERRNO | (error))

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    unsigned error = (unsigned)atoi(argv[1]);
    struct sock_filter rules[] = {
        LOAD(nr),
        // The C library then makes threads and processes by the older call.
        REFUSE(__NR_clone3, ENOSYS),
        REFUSE(__NR_io_uring_setup, error),
        REFUSE(__NR_io_uring_enter, error),
        REFUSE(__NR_io_uring_register, error),
        REFUSE(__NR_userfaultfd, error),
        REFUSE(__NR_perf_event_open, error),
        REFUSE(__NR_kcmp, error),
        REFUSE(__NR_process_madvise, error),
        REFUSE(__NR_pidfd_getfd, error),
        REFUSE(__NR_bpf, error),
        REFUSE(__NR_mount, error),
        REFUSE(__NR_umount2, error),
        REFUSE(__NR_unshare, error),
        REFUSE(__NR_setns, error),
        REFUSE(__NR_keyctl, error),
        REFUSE(__NR_move_pages, error),
        REFUSE(__NR_open_by_handle_at, error),
        REFUSE(__NR_syslog, error),
        REFUSE(__NR_acct, error),
        REFUSE(__NR_reboot, error),
        REFUSE(__NR_vmsplice, error),
        // Of personalities only the usual ones, and the question.
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_personality, 1, 0),
        ALLOW,
        LOAD(args[0]),
        IF(0), ALLOW,
        IF(8), ALLOW,
        IF(0x20000), ALLOW,
        IF(0x20008), ALLOW,
        IF(0xffffffff), ALLOW,
        GIVE(SECCOMP_RET_ERRNO | error),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) {
        perror("filter");
        return 2;
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 2;
}

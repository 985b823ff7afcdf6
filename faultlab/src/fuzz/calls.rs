//! Which system calls are made, and what their arguments are, as a header for the program.

use std::fmt::Write as _;

use rcoe_linux_syscalls::{ALL, Arg, Syscall};

/// Never made: what could act on the machine, on others or on time even without privilege, and what
/// would only end or multiply the program.
const DENIED: &[&str] = &[
    // The machine.
    "reboot",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "create_module",
    "query_module",
    "get_kernel_syms",
    "swapon",
    "swapoff",
    "acct",
    "syslog",
    "quotactl",
    "quotactl_fd",
    "ioperm",
    "iopl",
    "bpf",
    "perf_event_open",
    "vhangup",
    "nfsservctl",
    "lookup_dcookie",
    "fanotify_init",
    "fanotify_mark",
    "userfaultfd",
    "_sysctl",
    "sysfs",
    "uselib",
    // Time and names.
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "sethostname",
    "setdomainname",
    // Mounts and roots, namespaces.
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "open_tree",
    "open_tree_attr",
    "mount_setattr",
    "unshare",
    "setns",
    // Others.
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "pidfd_send_signal",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "pidfd_getfd",
    "kcmp",
    "migrate_pages",
    "move_pages",
    "setpriority",
    "ioprio_set",
    // The program itself.
    "exit",
    "exit_group",
    "fork",
    "vfork",
    "clone",
    "clone3",
    "execve",
    "execveat",
    "rt_sigreturn",
    "brk",
    "sync",
    "seccomp",
    "uretprobe",
    "uprobe",
];

/// Made as seldom as those that may wait: on a machine with other work the rest of an episode that
/// has given up its share of the processors takes seconds.
const SLOWING: &[&str] = &["sched_setscheduler"];

/// The calls that are made.
pub(super) fn chosen() -> impl Iterator<Item = &'static Syscall> {
    ALL.iter().filter(|call| !DENIED.contains(&call.name()))
}

/// The table in C.
pub(super) fn header() -> String {
    let mut text = String::from("static const struct call calls[] = {\n");
    for call in chosen() {
        let kinds: Vec<&str> = call.args.iter().map(|arg| kind(*arg)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {{\"{}\", {}, {}, {{{}}}}},",
            call.name(),
            call.nr,
            u8::from(call.blocking || SLOWING.contains(&call.name())),
            kinds.join(", ")
        );
    }
    text.push_str("};\n");
    text
}

/// What the program calls such an argument.
const fn kind(arg: Arg) -> &'static str {
    match arg {
        Arg::None => "NONE",
        Arg::Fd => "FD",
        Arg::Pid => "PID",
        Arg::Int | Arg::Uint => "INT",
        Arg::Mode => "MODE",
        Arg::Long => "LONG",
        Arg::Size => "SIZE",
        Arg::Addr => "ADDR",
        Arg::Path => "PATH",
        Arg::StrVec => "STRVEC",
        Arg::IovIn { .. } | Arg::IovOut { .. } => "IOV",
        Arg::SockaddrIn { .. } | Arg::SockaddrOut { .. } => "NAME",
        Arg::SockLenPtr => "LENGTH",
        Arg::MsghdrIn | Arg::MsghdrOut | Arg::MmsghdrIn { .. } | Arg::MmsghdrOut { .. } => {
            "MESSAGE"
        }
        _ => "BYTES",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_harm_is_not_made_and_most_is() {
        let names: Vec<&str> = chosen().map(|call| call.name()).collect();
        for denied in [
            "reboot",
            "kill",
            "mount",
            "clock_settime",
            "swapon",
            "init_module",
        ] {
            assert!(!names.contains(&denied), "{denied}");
        }
        for made in [
            "read",
            "mmap",
            "sendmsg",
            "io_uring_setup",
            "futex",
            "ioctl",
            "setrlimit",
            "prlimit64",
        ] {
            assert!(names.contains(&made), "{made}");
        }
        assert!(names.len() > 250, "{}", names.len());
    }

    #[test]
    fn names_are_singled_out_that_there_are() {
        let known = |name: &&str| ALL.iter().any(|call| call.name() == *name);
        let names = DENIED.iter().chain(SLOWING);
        let unknown: Vec<_> = names.filter(|name| !known(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

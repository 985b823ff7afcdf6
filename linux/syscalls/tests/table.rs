//! The table against itself and against independent sources: the `syscalls` crate for numbers, the
//! `libc` crate for sizes and codes.
#![forbid(unsafe_code)]

use rcoe_linux_syscalls::{
    ALL, Arg, Class, FCNTL, IOCTL, LSEEK, PRCTL, Request, Special, Syscall, Valid, entry, fcntl,
    ioctl, name, prctl,
};
use std::mem::size_of;

fn call(name: &str) -> &'static Syscall {
    ALL.iter()
        .find(|c| c.name() == name)
        .unwrap_or_else(|| panic!("no call {name}"))
}

#[test]
fn every_call_of_linux_is_listed_under_its_number() {
    for sysno in syscalls::Sysno::iter() {
        let nr = u64::from(sysno.id().unsigned_abs());
        assert_eq!(name(nr), sysno.name(), "number {nr}");
    }
}

#[test]
fn the_index_leads_to_each_call_and_nowhere_else() {
    for c in ALL {
        assert_eq!(entry(c.nr.into()), Some(c));
    }
    let hits = (0..0x1_0000).filter(|nr| entry(*nr).is_some()).count();
    assert_eq!(hits, ALL.len());
    assert_eq!(name(1 | 1 << 40), "write");
    for nr in [0x4000_0000, 0xffff_ffff, u64::MAX] {
        assert_eq!((entry(nr), name(nr)), (None, "unknown"));
    }
}

/// The argument that holds the length of `arg`, if any.
fn length_of(arg: Arg) -> Option<u8> {
    match arg {
        Arg::InBuf { len_arg }
        | Arg::InMsg { len_arg }
        | Arg::OutMsg { len_arg }
        | Arg::OutBuf { len_arg, .. }
        | Arg::SockaddrIn { len_arg } => Some(len_arg),
        Arg::InArray { count_arg, .. }
        | Arg::OutArray { count_arg, .. }
        | Arg::InOutArray { count_arg, .. }
        | Arg::IovIn { count_arg }
        | Arg::IovOut { count_arg }
        | Arg::MmsghdrIn { count_arg }
        | Arg::MmsghdrOut { count_arg } => Some(count_arg),
        Arg::FdSet { nfds_arg } => Some(nfds_arg),
        _ => None,
    }
}

#[test]
fn lengths_are_numbers_and_length_pointers_are_such() {
    for c in ALL {
        for arg in c.args {
            if let Some(at) = length_of(arg) {
                let length = c.args[usize::from(at)];
                let ok = matches!(length, Arg::Int | Arg::Uint | Arg::Long | Arg::Size);
                assert!(ok, "{}: {arg:?} has its length in {length:?}", c.name());
            }
            if let Arg::SockaddrOut { lenptr_arg } | Arg::OutBufLenPtr { lenptr_arg } = arg {
                assert_eq!(
                    c.args[usize::from(lenptr_arg)],
                    Arg::SockLenPtr,
                    "{}",
                    c.name()
                );
            }
        }
    }
}

#[test]
fn arguments_are_counted_and_named() {
    for c in ALL {
        for i in 0..6 {
            let present = i < usize::from(c.nargs);
            assert_eq!(c.args[i] != Arg::None, present, "{} argument {i}", c.name());
            assert_eq!(
                !c.params()[i].is_empty(),
                present,
                "{} argument {i}",
                c.name()
            );
        }
    }
}

#[test]
fn refusals_say_why_and_the_agent_has_code_for_the_rest() {
    let rows = [IOCTL, FCNTL, PRCTL, LSEEK].into_iter().flatten();
    let rows = rows.map(|r| (r.name(), r.class, r.special, r.reason()));
    for (name, class, special, reason) in ALL
        .iter()
        .map(|c| (c.name(), c.class, c.special, c.reason()))
        .chain(rows)
    {
        assert_eq!(class == Class::Unsupported, !reason.is_empty(), "{name}");
        if matches!(class, Class::Emulated | Class::Process) {
            assert_ne!(special, Special::None, "{name}");
        }
    }
}

#[test]
fn rows_are_sorted_so_that_the_search_finds_them() {
    type Lookup = fn(u32) -> Option<&'static Request>;
    let tables: [(&[Request], Lookup); 3] = [(IOCTL, ioctl), (FCNTL, fcntl), (PRCTL, prctl)];
    for (rows, find) in tables {
        assert!(rows.is_sorted_by(|a, b| a.code < b.code));
        assert!(rows.iter().all(|r| find(r.code) == Some(r)));
        assert_eq!(find(0xdead_beef), None);
    }
}

#[test]
fn widths_and_signs_are_the_kernels() {
    assert_eq!(call("wait4").args[0].canonical(0xffff_ffff), u64::MAX);
    assert_eq!(
        call("openat").args[0].canonical(0xffff_ff9c),
        (-100_i64).cast_unsigned()
    );
    assert_eq!(call("chown").args[1].canonical(u64::MAX), 0xffff_ffff);
    assert_eq!(call("mkdir").args[1].canonical(0xdead_0001_01ed), 0x01ed);
    assert_eq!(call("write").args[2].canonical(u64::MAX), u64::MAX);
    assert_eq!(call("write").args[0].canonical(0x7_0000_0001), 1);
    assert_eq!(call("lseek").args[1].canonical(u64::MAX), u64::MAX);
    assert_eq!(call("poll").args[1], Arg::Uint);
    assert_eq!(call("poll").args[2], Arg::Int);
    assert_eq!(call("getpid").args[0].canonical(77), 0);
}

#[test]
fn fd_sets_are_whole_words() {
    let sizes: Vec<u64> = [0, 1, 64, 65, 1024].map(Arg::fd_set_bytes).into();
    assert_eq!(sizes, [0, 8, 8, 16, 128]);
    assert_eq!(Arg::fd_set_bytes(Arg::Int.canonical(0xffff_ffff)), 0);
}

/// The size of the structure that an argument points to, or of its elements.
fn struct_size(name: &str, i: usize) -> usize {
    match call(name).args[i] {
        Arg::InStruct { size }
        | Arg::OutStruct { size }
        | Arg::OutStructOnError { size }
        | Arg::InOutStruct { size }
        | Arg::InArray { elem: size, .. }
        | Arg::OutArray { elem: size, .. }
        | Arg::InOutArray { elem: size, .. } => size.into(),
        other => panic!("{name} argument {i} is {other:?}"),
    }
}

/// Call, argument, and the size of what it points to.
const SIZES: &[(&str, usize, usize)] = &[
    ("fstat", 1, size_of::<libc::stat>()),
    ("statx", 4, size_of::<libc::statx>()),
    ("statfs", 1, size_of::<libc::statfs>()),
    ("getrusage", 1, size_of::<libc::rusage>()),
    ("wait4", 3, size_of::<libc::rusage>()),
    ("waitid", 2, size_of::<libc::siginfo_t>()),
    ("sysinfo", 0, size_of::<libc::sysinfo>()),
    ("uname", 0, size_of::<libc::utsname>()),
    ("prlimit64", 3, size_of::<libc::rlimit>()),
    ("gettimeofday", 0, size_of::<libc::timeval>()),
    ("clock_gettime", 1, size_of::<libc::timespec>()),
    ("nanosleep", 1, size_of::<libc::timespec>()),
    ("setitimer", 1, size_of::<libc::itimerval>()),
    ("timerfd_settime", 2, size_of::<libc::itimerspec>()),
    ("timer_create", 1, size_of::<libc::sigevent>()),
    ("epoll_ctl", 3, size_of::<libc::epoll_event>()),
    ("epoll_wait", 1, size_of::<libc::epoll_event>()),
    ("poll", 0, size_of::<libc::pollfd>()),
    ("times", 0, size_of::<libc::tms>()),
    ("sched_setparam", 1, size_of::<libc::sched_param>()),
    ("sigaltstack", 0, size_of::<libc::stack_t>()),
    ("adjtimex", 0, size_of::<libc::timex>()),
    ("utime", 1, size_of::<libc::utimbuf>()),
    ("mq_getsetattr", 1, size_of::<libc::mq_attr>()),
];

#[test]
fn structures_have_the_sizes_of_libc() {
    for &(name, i, size) in SIZES {
        assert_eq!(struct_size(name, i), size, "{name} argument {i}");
    }
}

#[test]
fn results_tell_how_much_of_a_buffer_is_valid() {
    let filled = |name, i: usize, len_arg| {
        let valid = Valid::Ret;
        assert_eq!(call(name).args[i], Arg::OutBuf { len_arg, valid }, "{name}");
    };
    filled("read", 1, 2);
    filled("pread64", 1, 2);
    filled("recvfrom", 1, 2);
    filled("getdents64", 1, 2);
    filled("sched_getaffinity", 2, 1);
    filled("readlink", 1, 2);
    filled("getcwd", 0, 1);
}

#[test]
fn a_lone_buffer_is_all_that_a_call_writes() {
    let mut lone = 0;
    for call in ALL {
        let what = call.resolve(&[0; 6]);
        let written: Vec<usize> = (0..6).filter(|i| what.args[*i].writes_memory()).collect();
        let expected = match written[..] {
            [at] => match what.args[at] {
                Arg::OutBuf { len_arg, valid } => Some((at, len_arg, 1, valid)),
                Arg::OutArray {
                    count_arg,
                    elem,
                    valid,
                } => Some((at, count_arg, elem, valid)),
                _ => None,
            },
            _ => None,
        };
        let found = what
            .buffer
            .map(|it| (usize::from(it.at), it.len, it.elem, it.valid));
        assert_eq!(found, expected, "{}", call.name());
        lone += usize::from(found.is_some());
    }
    assert!(lone > 5 && call("read").resolve(&[0; 6]).buffer.is_some());
}

fn resolved_class(name: &str, raw: [u64; 6]) -> Class {
    call(name).resolve(&raw).class
}

#[test]
fn opening_for_reading_is_input_and_anything_else_is_output() {
    for (flags, class) in [
        (libc::O_RDONLY, Class::Input),
        (
            libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY,
            Class::Input,
        ),
        (libc::O_WRONLY, Class::Output),
        (libc::O_RDWR, Class::Output),
        (libc::O_CREAT, Class::Output),
        (libc::O_TRUNC, Class::Output),
        (libc::O_APPEND, Class::Output),
    ] {
        let flags = u64::from(flags.cast_unsigned());
        assert_eq!(
            resolved_class("open", [0, flags, 0, 0, 0, 0]),
            class,
            "{flags:#x}"
        );
        assert_eq!(
            resolved_class("openat", [0, 0, flags, 0, 0, 0]),
            class,
            "{flags:#x}"
        );
    }
}

#[test]
fn requests_decide_and_unknown_ones_are_refused() {
    let winsize = call("ioctl").resolve(&[1, libc::TIOCGWINSZ, 0x1000, 0, 0, 0]);
    assert_eq!((winsize.class, winsize.repeatable), (Class::Input, true));
    assert_eq!(winsize.args[2], Arg::OutStruct { size: 8 });
    let junk_above = call("ioctl").resolve(&[1, libc::TIOCGWINSZ | 1 << 40, 0x1000, 0, 0, 0]);
    assert_eq!(junk_above.request, winsize.request);
    let unknown = call("ioctl").resolve(&[1, 0xdead_beef, 0, 0, 0, 0]);
    assert_eq!((unknown.class, unknown.errno), (Class::Unsupported, 25));
    assert_eq!(call("ptrace").resolve(&[0; 6]).errno, 38);
    let cur = call("lseek").resolve(&[3, 0, 1, 0, 0, 0]);
    assert_eq!((cur.class, cur.repeatable), (Class::Input, false));
}

#[test]
fn request_codes_are_those_of_libc() {
    let ioctls = [
        ("TCGETS", libc::TCGETS),
        ("TCSETS2", libc::TCSETS2),
        ("TIOCGPTN", libc::TIOCGPTN),
        ("FIONREAD", libc::FIONREAD),
        ("FIONBIO", libc::FIONBIO),
        ("FICLONE", libc::FICLONE),
        ("SIOCGIFADDR", libc::SIOCGIFADDR),
        ("FS_IOC_GETFLAGS", libc::FS_IOC_GETFLAGS),
    ];
    for (name, code) in ioctls {
        assert_eq!(
            u32::try_from(code).ok().and_then(ioctl).map(|r| r.name()),
            Some(name)
        );
    }
}

#[test]
fn command_codes_are_those_of_libc() {
    let fcntls = [
        ("F_SETLKW", libc::F_SETLKW),
        ("F_DUPFD_CLOEXEC", libc::F_DUPFD_CLOEXEC),
        ("F_OFD_SETLKW", libc::F_OFD_SETLKW),
        ("F_ADD_SEALS", libc::F_ADD_SEALS),
    ];
    for (name, code) in fcntls {
        assert_eq!(fcntl(code.cast_unsigned()).map(|r| r.name()), Some(name));
    }
    assert_eq!(
        prctl(libc::PR_SET_VMA.cast_unsigned()).map(|r| r.name()),
        Some("PR_SET_VMA")
    );
}

#[test]
fn encoded_sizes_agree_where_the_code_has_one() {
    let exceptions = ["FS_IOC_GETFLAGS", "FS_IOC_SETFLAGS", "FS_IOC_GETVERSION"];
    let exceptions = exceptions
        .iter()
        .chain(&["BLKBSZGET", "BLKBSZSET", "BLKGETSIZE64"]);
    let exceptions: Vec<_> = exceptions.chain(&["TUNSETIFF", "TUNGETIFF"]).collect();
    for r in IOCTL {
        let size = match r.arg {
            Arg::InStruct { size } | Arg::OutStruct { size } | Arg::InOutStruct { size } => size,
            _ => continue,
        };
        let encoded = (r.code >> 16) & 0x3fff;
        if encoded != 0 && !exceptions.contains(&&r.name()) {
            assert_eq!(u32::from(size), encoded, "{}", r.name());
        }
    }
}

#[test]
fn kinds_of_arguments_are_those_of_the_resolved_call() {
    for call in ALL {
        let rows = call.requests.map_or(&[][..], |it| it.rows());
        let codes = rows.iter().map(|row| u64::from(row.code));
        for code in codes.chain([0xdead_beef]) {
            let raw = call.requests.map_or([0; 6], |it| {
                let mut raw = [0; 6];
                raw[usize::from(it.selector)] = code;
                raw
            });
            let kinds = std::array::from_fn(|i| call.kind(i, &raw));
            assert_eq!(kinds, call.resolve(&raw).args, "{} {code:#x}", call.name());
        }
    }
}

//! Numbers of calls.

use super::names::NAMES;

/// The numbers, with those of calls that this processor's programs do not have, which others do.
/// Such a number is none that a program can mean.
pub(crate) mod nr {
    pub(crate) use linux_raw_sys::general::*;

    /// A flag of `mmap` that is none here.
    pub(crate) const MAP_32BIT: u32 = 0;

    /// The first number of a call that is none.
    pub(super) const ABSENT: u32 = 0xffff_0000;

    macro_rules! absent {
        ($($name:ident = $place:literal),* $(,)?) => {
            $(
                #[expect(non_upper_case_globals, reason = "as the others are named")]
                pub(crate) const $name: u32 = ABSENT + $place;
            )*
        };
    }

    absent! {
        __NR_access = 0,
        __NR_alarm = 1,
        __NR_arch_prctl = 2,
        __NR_chmod = 3,
        __NR_chown = 4,
        __NR_creat = 5,
        __NR_dup2 = 6,
        __NR_epoll_create = 7,
        __NR_epoll_wait = 8,
        __NR_eventfd = 9,
        __NR_fork = 10,
        __NR_futimesat = 11,
        __NR_getpgrp = 12,
        __NR_lchown = 13,
        __NR_link = 14,
        __NR_lstat = 15,
        __NR_mkdir = 16,
        __NR_mknod = 17,
        __NR_open = 18,
        __NR_pause = 19,
        __NR_pipe = 20,
        __NR_poll = 21,
        __NR_readlink = 22,
        __NR_rename = 23,
        __NR_rmdir = 24,
        __NR_select = 25,
        __NR_stat = 26,
        __NR_symlink = 27,
        __NR_time = 28,
        __NR_unlink = 29,
        __NR_utime = 30,
        __NR_utimes = 31,
        __NR_vfork = 32,
    }
}

/// The call that a program means by a number, of which the lower half counts.
pub(crate) fn call_of(number: u64) -> u32 {
    let call = u32::try_from(number & 0xffff_ffff);
    call.ok().filter(|&it| it < nr::ABSENT).unwrap_or(u32::MAX)
}

/// What a call is called.
pub(crate) fn name_of(number: u64) -> &'static str {
    let mut all = NAMES.iter();
    let found = all.find(|(it, _)| u64::from(*it) == number & 0xffff_ffff);
    found.map_or("unknown", |(_, name)| name)
}

/// Do programs only probe for it?
pub(crate) fn is_quiet(number: u64) -> bool {
    let name = name_of(number);
    let mut all = rcoe_linux_syscalls::ALL.iter();
    all.any(|call| call.name() == name && call.quiet)
}

/// Of the words of `clone` behind flags and stack: where its maker and the new thread want its
/// number, and where its own data is.
pub(crate) const fn clone_order(words: [u64; 6]) -> [u64; 3] {
    let [_, _, parent, pointer, child, _] = words;
    [parent, child, pointer]
}

//! Numbers of calls. Those that other processors do not have are here, too.

pub(crate) use linux_raw_sys::general as nr;

/// The call that a program means by a number, of which the lower half counts.
pub(crate) fn call_of(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or(u32::MAX)
}

/// What a call is called.
pub(crate) fn name_of(number: u64) -> &'static str {
    rcoe_linux_syscalls::name(number)
}

/// Do programs only probe for it?
pub(crate) fn is_quiet(number: u64) -> bool {
    rcoe_linux_syscalls::entry(number).is_some_and(|call| call.quiet)
}

/// Of the words of `clone` behind flags and stack: where its maker and the new thread want its
/// number, and where its own data is.
pub(crate) const fn clone_order(words: [u64; 6]) -> [u64; 3] {
    let [_, _, parent, child, pointer, _] = words;
    [parent, child, pointer]
}

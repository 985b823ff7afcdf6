//! What is ready: descriptors that the host is asked about, mostly without waiting.

use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall3, syscall6};

use crate::convert::low32;
use crate::sys;

/// The calls that wait for descriptors, for waits that a signal has to end.
pub(crate) const POLL: u64 = nr::__NR_poll as u64;
pub(crate) const PPOLL: u64 = nr::__NR_ppoll as u64;

/// A timespec of no time at all.
const NOW: [u64; 2] = [0; 2];

/// The kernel's `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollFd {
    pub(crate) fd: i32,
    pub(crate) events: u16,
    pub(crate) revents: u16,
}

/// A condition of `poll` as its 16 bits.
pub(crate) fn condition(bits: u32) -> u16 {
    u16::try_from(bits).expect("conditions have 16 bits")
}

/// Would a call that waits for this condition go on at once?
pub(crate) fn is_ready(fd: u64, events: u32) -> bool {
    unless_interrupted(|| poll(low32(fd).cast_signed(), events, 0)) != 0
}

/// What a look comes to that does not wait. It is interrupted all the same if nothing is ready and
/// a signal has just come: that is no answer, and whoever took it for one would wait.
fn unless_interrupted(mut look: impl FnMut() -> i64) -> i64 {
    loop {
        let found = look();
        if found != sys::error(EINTR) {
            return found;
        }
    }
}

/// Waits until a descriptor has one of these conditions, for so many milliseconds at most. Whatever
/// came of it, the caller tries again.
pub(crate) fn wait_until(fd: u32, events: u32, milliseconds: u64) {
    let _ = poll(fd.cast_signed(), events, milliseconds);
}

fn poll(fd: i32, events: u32, milliseconds: u64) -> i64 {
    let mut poll = PollFd {
        fd,
        events: condition(events),
        revents: 0,
    };
    // SAFETY: one valid structure.
    unsafe { syscall3(POLL, (&raw mut poll) as u64, 1, milliseconds) }
}

/// Looks which of `count` descriptors are ready, without waiting; how many, or a negative errno.
///
/// # Safety
/// The array of [`PollFd`] must be the program's, or valid for writing.
pub(crate) unsafe fn poll_now(array: u64, count: u64) -> i64 {
    let now = NOW;
    let args = [array, count, now.as_ptr() as u64, 0, 0, 0];
    // SAFETY: the time is one that the kernel may write to; the rest is forwarded from the caller.
    unless_interrupted(|| unsafe { syscall6(PPOLL, args) })
}

/// The same of the numbers below `count` in the sets of `select`, each of which may be missing (0).
///
/// # Safety
/// The sets must be valid for writing.
pub(crate) unsafe fn select_now(count: u64, [reads, writes, others]: [u64; 3]) -> i64 {
    let now = NOW;
    let args = [count, reads, writes, others, now.as_ptr() as u64, 0];
    // SAFETY: as above.
    unless_interrupted(|| unsafe { syscall6(u64::from(nr::__NR_pselect6), args) })
}

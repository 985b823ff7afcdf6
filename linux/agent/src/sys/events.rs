//! Counters that are descriptors (`eventfd`), and sets of events (`epoll`).

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall2, syscall3, syscall4};

use crate::convert::low32;

/// A counter that begins at 0; its descriptor, or a negative errno.
pub(crate) fn new_counter(flags: u64) -> i64 {
    // SAFETY: numbers only.
    unsafe { syscall2(u64::from(nr::__NR_eventfd2), 0, flags) }
}

/// Takes what a counter has counted. Waits if that is nothing.
pub(crate) fn take_count(fd: u64) {
    let mut count = 0_u64;
    // SAFETY: room for the eight bytes.
    let _ = unsafe { syscall3(u64::from(nr::__NR_read), fd, (&raw mut count) as u64, 8) };
}

/// Adds 1 to a counter. Waits if that is more than it can hold.
pub(crate) fn count_one(fd: u64) {
    let one = 1_u64;
    // SAFETY: eight bytes.
    let _ = unsafe { syscall3(u64::from(nr::__NR_write), fd, (&raw const one) as u64, 8) };
}

/// What a set waits for and has happened, without waiting; how many events, or a negative errno.
///
/// # Safety
/// The array must be the program's, or have room for so many events.
pub(crate) unsafe fn events_now(set: u64, array: u64, most: u64) -> i64 {
    // SAFETY: forwarded from the caller.
    unsafe { syscall4(u64::from(nr::__NR_epoll_wait), set, array, most, 0) }
}

/// Sets anew for what the set waits on a descriptor. One that is not in the set is left as it is.
pub(crate) fn set_events(set: u64, fd: u64, events: u32, data: u64) {
    let _ = control(set, nr::EPOLL_CTL_MOD, fd, events, data);
}

fn control(set: u64, operation: u32, fd: u64, events: u32, data: u64) -> i64 {
    let event = [events, low32(data), low32(data >> 32)];
    let at = event.as_ptr() as u64;
    // SAFETY: the event is the packed structure.
    unsafe { syscall4(u64::from(nr::__NR_epoll_ctl), set, operation.into(), fd, at) }
}

/// A new set with one descriptor in it, for tests.
#[cfg(test)]
pub(crate) fn new_set(fd: u64, events: u32, data: u64) -> u64 {
    use rcoe_linux_sys::syscall1;
    // SAFETY: numbers only.
    let set = unsafe { syscall1(u64::from(nr::__NR_epoll_create1), 0) }.cast_unsigned();
    assert_eq!(control(set, nr::EPOLL_CTL_ADD, fd, events, data), 0);
    set
}

//! Sleeping on words of memory that replicas or processes share, and waking.

use linux_raw_sys::errno::{ENOSYS, ETIMEDOUT};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::membarrier_cmd as cmd;
use rcoe_linux_sys::{syscall2, syscall3, syscall4, syscall5, syscall6};

use crate::sys::{error, monotonic};

/// The call itself, for waits that a signal has to end.
pub(crate) const FUTEX: u64 = nr::__NR_futex as u64;

/// Will [`barrier`] reach this process? It does from here on if the host has such barriers and lets
/// this process use them. An exec ends that.
pub(crate) fn accept_barriers() -> bool {
    let registered = cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u64;
    // SAFETY: touches no memory.
    unsafe { syscall2(nr::__NR_membarrier.into(), registered, 0) == 0 }
}

/// All that replicas that accept it have stored is seen by all before they look at anything more;
/// each of them is interrupted if it runs.
pub(crate) fn barrier() {
    let all = cmd::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u64;
    // SAFETY: touches no memory. Refused only where the host has no room, and then whoever is not
    // woken sleeps for a bounded time.
    let _ = unsafe { syscall2(nr::__NR_membarrier.into(), all, 0) };
}

/// Sleeps while `*word == expected`, at most `timeout_ns`; says whether that time is over.
pub(crate) fn futex_wait(word: *const u32, expected: u32, timeout_ns: u64) -> bool {
    let timeout = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000];
    // SAFETY: the word is in memory shared by the replicas, the timeout is a timespec. Shared
    // futex: processes, not threads, meet here.
    let ended = unsafe {
        syscall4(
            FUTEX,
            word as u64,
            0,
            u64::from(expected),
            timeout.as_ptr() as u64,
        )
    };
    ended == error(ETIMEDOUT)
}

/// Wakes all sleepers on `word`.
pub(crate) fn futex_wake(word: *const u32) {
    // SAFETY: waking touches no memory.
    let _ = unsafe { syscall3(FUTEX, word as u64, 1, u64::from(i32::MAX.cast_unsigned())) };
}

/// Sleeps until one of the words no longer has its expected value or is woken, at most
/// `timeout_ns`; says whether that time is over.
pub(crate) fn futex_wait_any(words: &[(*const u32, u32)], timeout_ns: u64) -> bool {
    /// `struct futex_waitv` of the kernel.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const SIZE_U32: u32 = 2;
    let mut waiters = [Waiter::default(); 3];
    for (waiter, (word, expected)) in waiters.iter_mut().zip(words) {
        *waiter = Waiter {
            value: u64::from(*expected),
            address: *word as u64,
            flags: SIZE_U32,
            reserved: 0,
        };
    }
    let end = monotonic() + timeout_ns;
    let end = [end / 1_000_000_000, end % 1_000_000_000];
    // SAFETY: waiters and timeout are valid; the words lie in memory the replicas share.
    let ret = unsafe {
        syscall5(
            u64::from(nr::__NR_futex_waitv),
            waiters.as_ptr() as u64,
            words.len() as u64,
            0,
            end.as_ptr() as u64,
            1,
        )
    };
    if ret == error(ENOSYS) {
        // Kernels before 5.16: one word, and a short sleep for the other's sake.
        return futex_wait(words[0].0, words[0].1, timeout_ns.min(10_000_000));
    }
    ret == error(ETIMEDOUT)
}

/// Sleeps while `*word == expected`, at most `timeout_ns`, until a waker means this bit.
pub(crate) fn futex_wait_bit(word: *const u32, expected: u32, bit: u32, timeout_ns: u64) {
    const FUTEX_WAIT_BITSET: u64 = 9;
    let end = monotonic() + timeout_ns;
    let end = [end / 1_000_000_000, end % 1_000_000_000];
    let args = [
        word as u64,
        FUTEX_WAIT_BITSET,
        u64::from(expected),
        end.as_ptr() as u64,
        0,
        u64::from(bit),
    ];
    // SAFETY: the word is mapped for good, the time is a timespec.
    let _ = unsafe { syscall6(FUTEX, args) };
}

/// Wakes all sleepers on `word` that wait for this bit.
pub(crate) fn futex_wake_bit(word: *const u32, bit: u32) {
    const FUTEX_WAKE_BITSET: u64 = 10;
    let all = u64::from(i32::MAX.cast_unsigned());
    let args = [word as u64, FUTEX_WAKE_BITSET, all, 0, 0, u64::from(bit)];
    // SAFETY: waking touches no memory.
    let _ = unsafe { syscall6(FUTEX, args) };
}

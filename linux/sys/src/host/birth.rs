//! What the process inherited, recorded before Rust's runtime changes it.
//!
//! Before `main`, the runtime opens `/dev/null` on descriptors 0 to 2 that are closed, and ignores
//! `SIGPIPE`. The program under replication must see neither, so a function in `.init_array`, which
//! the loader calls before the runtime, writes down how things were.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

static RECORDED: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicU8 = AtomicU8::new(0);
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Size in bytes of the kernel's signal set.
pub(super) const SIGSET_BYTES: usize = 8;

/// The kernel's `struct sigaction` on x86-64; libc's hides the handlers of its own signals.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelAction {
    pub(super) handler: usize,
    pub(super) flags: u64,
    pub(super) restorer: usize,
    pub(super) mask: u64,
}

#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD reads a flag of a descriptor and touches no memory.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            closed |= 1 << fd;
        }
    }
    let mut ignored = 0;
    for signal in 1..=64 {
        if action_of(signal).is_some_and(|action| action.handler == libc::SIG_IGN) {
            ignored |= 1 << (signal - 1);
        }
    }
    let mut blocked = 0_u64;
    // SAFETY: a null new set only reads; the old set is 8 writable bytes, as the size says.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            core::ptr::null::<u64>(),
            &raw mut blocked,
            SIGSET_BYTES,
        );
    }
    CLOSED.store(closed, Relaxed);
    IGNORED.store(ignored, Relaxed);
    BLOCKED.store(blocked, Relaxed);
    RECORDED.store(true, Relaxed);
}

/// The disposition of a signal, or `None` if there is no such signal.
pub(super) fn action_of(signal: i32) -> Option<KernelAction> {
    let mut action = KernelAction::default();
    // SAFETY: a null new action only reads; the old one is a valid kernel sigaction to write.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            core::ptr::null::<KernelAction>(),
            &raw mut action,
            SIGSET_BYTES,
        )
    };
    (result == 0).then_some(action)
}

/// What this process inherited from whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Bit *n* for each descriptor 0 to 2 that was closed.
    pub closed: u8,
    /// Bit *n - 1* for each signal *n* that was ignored.
    pub ignored: u64,
    /// Bit *n - 1* for each signal *n* that was blocked.
    pub blocked: u64,
}

impl Inherited {
    /// The state at the start of the process.
    ///
    /// # Panics
    ///
    /// If the recording function was not linked in, which a test excludes.
    #[must_use]
    pub fn get() -> Self {
        assert!(
            RECORDED.load(Relaxed),
            "the start-up state was not recorded"
        );
        Self {
            closed: CLOSED.load(Relaxed),
            ignored: IGNORED.load(Relaxed),
            blocked: BLOCKED.load(Relaxed),
        }
    }

    /// Whether the signal was ignored.
    #[must_use]
    pub const fn ignores(&self, signal: u32) -> bool {
        self.ignored & (1 << (signal - 1)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_recorded_before_main() {
        let inherited = Inherited::get();
        let pipe = action_of(libc::SIGPIPE).expect("SIGPIPE exists");
        assert_eq!(pipe.handler, libc::SIG_IGN, "the runtime ignores SIGPIPE");
        assert!(inherited.closed < 8);
    }
}

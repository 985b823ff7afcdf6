//! Breakpoints of the processor, before whose instruction the host stops the thread that set one.
//!
//! Nothing in memory is changed for it, and nobody can read that there is one. Each visit costs an
//! exception and a signal.
//!
//! Contract: who sets a breakpoint takes the signal SIGTRAP that says so ([`TRAP_PERF`]), and goes
//! on behind it by the resume flag, which the host sets in the registers that it saves.
//!
//! Not covered: hosts that offer none, as containers that refuse `perf_event_open`; processors have
//! four, which others may use up.

use linux_raw_sys::errno::EMFILE;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall3, syscall5};

use crate::sys::{Errno, FIRST_OWN, check, close, duplicate, error, with_most_descriptors};

/// What the signal of a breakpoint has for a code.
pub(crate) const TRAP_PERF: i32 = 6;

/// The kernel's `struct perf_event_attr`, as far as it goes up to the data of the signal.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    samples: u64,
    reads: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
    len: u64,
    rest: [u64; 7],
}

const _: () = assert!(size_of::<Attributes>() == 128);

/// Of the kind of event, and of the breakpoint.
const BREAKPOINT: u32 = 5;
const EXECUTION: u32 = 4;
/// Neither the kernel nor a hypervisor is stopped; it is gone with `execve`; and a signal comes
/// before the thread goes on.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const SIGNAL: u64 = 1 << 37;

/// One that stands.
#[derive(Debug)]
pub(crate) struct Breakpoint(u64);

impl Breakpoint {
    /// Stops this thread before the instruction there from now on.
    ///
    /// # Errors
    /// The host or the processor has none.
    pub(crate) fn set(at: u64) -> Result<Self, Errno> {
        let attributes = Attributes {
            kind: BREAKPOINT,
            size: 128,
            period: 1,
            flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | REMOVE_ON_EXEC | SIGNAL,
            breakpoint: EXECUTION,
            address: at,
            len: size_of::<usize>() as u64,
            ..Attributes::default()
        };
        let opened = with_most_descriptors(|| open(&attributes));
        let fd = check(opened)?;
        Ok(Self(fd))
    }

    /// Takes it away, also from those who have inherited the descriptor.
    pub(crate) fn remove(self) {
        const DISABLE: u64 = 0x2401;
        let Self(fd) = self;
        // SAFETY: no memory involved. It stands, so nothing can go wrong.
        let _ = unsafe { syscall3(u64::from(nr::__NR_ioctl), fd, DISABLE, 0) };
        close_own(fd);
    }
}

/// Its descriptor, beyond those of the program.
fn open(attributes: &Attributes) -> i64 {
    const CLOSE_ON_EXEC: u64 = 1 << 3;
    const ANY: u64 = (-1_i64).cast_unsigned();
    let at = (&raw const *attributes) as u64;
    // SAFETY: the structure is whole, and tells how long it is.
    let opened = unsafe {
        syscall5(
            u64::from(nr::__NR_perf_event_open),
            at,
            0,
            ANY,
            ANY,
            CLOSE_ON_EXEC,
        )
    };
    let Ok(fd) = check(opened) else {
        return opened;
    };
    let own = duplicate(fd, FIRST_OWN);
    close_own(fd);
    if own < 0 { error(EMFILE) } else { own }
}

fn close_own(fd: u64) {
    close(i32::try_from(fd).expect("descriptors are small"));
}

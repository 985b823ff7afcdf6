//! What the host's `perf_event_open` is asked for: breakpoints and counters of this thread.
//!
//! Contract: descriptors lie beyond those of the program. All replicas share one table, so each has
//! numbers of its own there.

use linux_raw_sys::errno::EMFILE;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::perf::{Attributes, CLOSE_ON_EXEC, DISABLE, ENABLE};
use rcoe_linux_sys::{syscall3, syscall5};

use crate::sys::{Errno, FIRST_OWN, check, close, duplicate, error, with_most_descriptors};

/// Opens it for this thread.
///
/// # Errors
/// The host's.
pub(super) fn open(attributes: &Attributes) -> Result<u64, Errno> {
    check(with_most_descriptors(|| open_beyond(attributes)))
}

/// Its descriptor, beyond those of the program.
fn open_beyond(attributes: &Attributes) -> i64 {
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

/// Lets it count from here on, or no more, whoever has its descriptor.
pub(super) fn enable(fd: u64, on: bool) {
    let order = if on { ENABLE } else { DISABLE };
    // SAFETY: no memory involved. It stands, so nothing can go wrong.
    let _ = unsafe { syscall3(u64::from(nr::__NR_ioctl), fd, order, 0) };
}

pub(super) fn close_own(fd: u64) {
    close(i32::try_from(fd).expect("descriptors are small"));
}

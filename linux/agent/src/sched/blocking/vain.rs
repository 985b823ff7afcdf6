//! Calls of which the kernel says at once that they fail, or that there is nothing to do, though a
//! poll would wait: descriptors that are none or point the wrong way, arguments out of bounds,
//! nothing to move.
//!
//! Whether that is so is asked before a thread is parked for the first time, in ways that move
//! nothing, or by the call itself where the kernel can be told not to wait for it.
//!
//! Not covered: files that the kernel cannot ask not to wait and that look at what they are given
//! first (timers before Linux 6.10, counters at the largest number).

use linux_raw_sys::errno::{EAGAIN, EOPNOTSUPP};
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK};
use rcoe_linux_syscalls::{Arg, Offset, Waits};

use crate::calls::Call;
use crate::calls::descriptors::Vector;
use crate::convert::low32;
use crate::protocol::arguments::IOV_MAX;
use crate::sched::blocking::Try;
use crate::sys::sockets::listens;
use crate::sys::{self, S_IFIFO, S_IFSOCK};

/// Flags of vector calls that are known not to be refused.
const RWF_KNOWN: u32 = 0xff;

/// Is a vector of this call longer than any kernel takes, or are its flags unknown?
pub(crate) fn is_malformed(call: &Call) -> bool {
    let facts = &call.what.facts;
    if facts.waits == Waits::Accept {
        return low32(call.arg(3)) & !(O_CLOEXEC | O_NONBLOCK) != 0;
    }
    if !matches!(call.what.args[1], Arg::IovIn { .. } | Arg::IovOut { .. }) {
        return false;
    }
    let flags = match facts.offset {
        Offset::AtOrOn(_) => low32(call.arg(5)),
        _ => 0,
    };
    call.arg(2) > IOV_MAX || flags & !RWF_KNOWN != 0
}

/// Are there no bytes to move, or fewer than a counter takes, and does the file say so without
/// waiting? Other files wait for an event, or send an empty message.
pub(crate) fn is_too_short(call: &Call, writes: bool) -> bool {
    let Ok(vector) = Vector::of(call, 0, u64::MAX) else {
        return false;
    };
    match sys::type_bits(call.arg(0)) {
        S_IFIFO => vector.bytes == 0,
        S_IFSOCK => vector.bytes == 0 && !writes,
        // Without a type: a counter, as only those wait to be written.
        0 => writes && vector.bytes < 8,
        _ => false,
    }
}

/// What the kernel says if even moving nothing is an error, as with a descriptor that is none, or
/// not for this direction.
pub(crate) fn refusal(call: &Call, writes: bool) -> Option<i64> {
    let [fd, _, _, low, high, _] = call.raw;
    let result = match (call.what.facts.offset, writes) {
        (Offset::AtOrOn(_), _) => {
            let args = [fd, 0, 0, low, high, 0];
            // SAFETY: a vector of no parts.
            unsafe { rcoe_linux_sys::syscall6(call.nr, args) }
        }
        (_, false) => sys::read_nothing(fd),
        (_, true) => sys::write_nothing(fd),
    };
    (result < 0).then_some(result)
}

impl Try<'_> {
    /// A call that reads, or takes a connection, where a poll tells of nothing: `None` if it waits,
    /// else its result, or `Some(None)` if it has yet to be made.
    pub(super) fn read_in_vain(&self) -> Option<Option<i64>> {
        if self.call.what.facts.waits == Waits::Accept {
            let vain = is_malformed(self.call) || !listens(self.fd());
            return vain.then_some(None);
        }
        if is_malformed(self.call) || refusal(self.call, false).is_some() {
            return Some(None);
        }
        let result = self.read_without_waiting();
        match result {
            _ if result == sys::error(EAGAIN) => None,
            _ if result == sys::error(EOPNOTSUPP) => is_too_short(self.call, false).then_some(None),
            _ => Some(Some(result)),
        }
    }

    /// The same of one that writes where there is no room.
    pub(super) fn is_written_in_vain(&self) -> bool {
        is_malformed(self.call)
            || refusal(self.call, true).is_some()
            || is_too_short(self.call, true)
    }

    /// The call itself, as one that does not wait.
    fn read_without_waiting(&self) -> i64 {
        let [fd, buffer, len, low, high, flags] = *self.args;
        let whole = [buffer, len];
        let what = self.call.what;
        // SAFETY: the program's own buffers, which the kernel checks.
        unsafe {
            match what.args[1] {
                Arg::IovOut { .. } if what.facts.offset == Offset::Position => {
                    sys::read_now(fd, buffer, len)
                }
                Arg::IovOut { .. } => sys::read_at_now(fd, [buffer, len], [low, high], flags),
                _ => sys::read_now(fd, whole.as_ptr() as u64, 1),
            }
        }
    }
}

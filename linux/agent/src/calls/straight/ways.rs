//! Which function makes a call that goes straight, by the call's number.
//!
//! Intuition: what the table says of a call is a dozen answers, and one compiled function for all
//! calls asks for each of them every time. So the commonest calls have functions of their own
//! ([`known`]): the same source, compiled for what the table says of that one call, so that what
//! does not concern it is not there.

use rcoe_linux_syscalls::{NUMBERS, Resolved};

use super::{enter_alone, enter_by, enter_together};
use crate::arch::entry::{Leave, TrapFrame};
use crate::kernel::Kernel;
use crate::sys::numbers::common::{EPOLL_WAIT, PARENT, READ, RECEIVE, SEND, WRITE};

/// Makes a call of which the table says this; returns what is to be loaded from the frame.
type Make = fn(&mut Kernel, &mut TrapFrame, &'static Resolved) -> Leave;

/// A call that goes straight whatever its arguments, and what makes it.
#[derive(Clone, Copy)]
pub(in crate::calls) struct Entry {
    pub(in crate::calls) what: &'static Resolved,
    /// The only replica makes it.
    pub(in crate::calls) alone: Make,
    /// One of several does.
    pub(in crate::calls) together: Make,
}

static WAYS: [Option<Entry>; NUMBERS] = {
    let mut ways = [None; NUMBERS];
    let mut nr = 0;
    while nr < NUMBERS {
        if let Some(what) = rcoe_linux_syscalls::straight(nr) {
            ways[nr] = Some(Entry {
                what,
                alone: enter_alone,
                together: enter_together,
            });
        }
        nr += 1;
    }
    ways[READ] = Some(of::<READ>());
    ways[WRITE] = Some(of::<WRITE>());
    ways[SEND] = Some(of::<SEND>());
    ways[RECEIVE] = Some(of::<RECEIVE>());
    ways[EPOLL_WAIT] = Some(of::<EPOLL_WAIT>());
    ways[PARENT] = Some(of::<PARENT>());
    ways
};

/// How the call of this number goes, if straight whatever its arguments. The kernel looks at the
/// low half of the register only, and so does this.
#[inline]
pub(in crate::calls) fn way(nr: u64) -> Option<&'static Entry> {
    let at = usize::try_from(nr & 0xffff_ffff).ok()?;
    WAYS.get(at)?.as_ref()
}

/// What the table says of a call that goes straight.
const fn described<const NR: usize>() -> &'static Resolved {
    rcoe_linux_syscalls::straight(NR).expect("the commonest calls go straight")
}

/// How a call goes that has functions of its own.
const fn of<const NR: usize>() -> Entry {
    Entry {
        what: described::<NR>(),
        alone: known::<NR, true>,
        together: known::<NR, false>,
    }
}

/// Makes this very call.
fn known<const NR: usize, const ALONE: bool>(
    kernel: &mut Kernel,
    frame: &mut TrapFrame,
    _: &'static Resolved,
) -> Leave {
    enter_by::<ALONE>(kernel, frame, const { described::<NR>() })
}

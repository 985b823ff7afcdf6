//! Which function makes a call that goes straight, by the call's number.
//!
//! Intuition: what the table says of a call is a dozen answers, and one compiled function for all
//! calls asks for each of them every time. So the commonest calls have functions of their own
//! ([`known`]): the same source, compiled for what the table says of that one call, so that what
//! does not concern it is not there.

use rcoe_linux_syscalls::{NUMBERS, Resolved};

use super::{Kernel, enter_alone, enter_by, enter_together};
use crate::arch::entry::{Leave, TrapFrame};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_what_the_table_says_of_it() {
        for nr in 0..NUMBERS {
            let expected = rcoe_linux_syscalls::straight(nr);
            let low = nr as u64;
            for register in [low, low | 7 << 32] {
                let found = way(register).map(|entry| entry.what);
                let alike = match (found, expected) {
                    (Some(found), Some(expected)) => core::ptr::eq(found, expected),
                    (None, None) => true,
                    _ => false,
                };
                assert!(alike, "call {nr}");
            }
        }
        assert!(way(NUMBERS as u64).is_none() && way(u64::MAX).is_none());
    }

    #[test]
    fn a_call_that_depends_on_its_arguments_has_no_way_of_its_own() {
        let depends = |nr: &u64| {
            let call = rcoe_linux_syscalls::entry(*nr).expect("known");
            call.requests.is_some() || call.output_if.is_some()
        };
        let all = 0..NUMBERS as u64;
        let known = all.filter(|nr| rcoe_linux_syscalls::entry(*nr).is_some());
        assert!(known.filter(depends).all(|nr| way(nr).is_none()));
    }
}

//! Which function makes a call that goes straight, by the call's number.
//!
//! Intuition: what the table says of a call is a dozen answers, and one compiled function for all
//! calls asks for each of them every time. So the commonest calls have functions of their own
//! ([`known`]): the same source, compiled for what the table says of that one call, so that what
//! does not concern it is not there. The same is done with what stays as it is for as long as a
//! process is calm: there is a table for each of its answers, and that one is named by the word
//! that says that it is calm ([`Calm`]).

use rcoe_core::Compare;
use rcoe_linux_syscalls::{NUMBERS, Resolved};

use super::{Kernel, enter_alone, enter_by, enter_together, is_calm};
use crate::arch::entry::{Leave, TrapFrame};
use crate::calls::{arguments_of, make_any};
use crate::sys::numbers::common::{
    CLOSE, DESCRIBE, DESCRIBE_AT, EPOLL_WAIT, OPEN_AT, PARENT, READ, READ_AT, RECEIVE, SEND, WRITE,
    WRITE_PARTS,
};

/// Makes a call of which the table says this; returns what is to be loaded from the frame.
type Make = fn(&mut Kernel, &mut TrapFrame, &'static Resolved) -> Leave;

/// A call that goes straight whatever its arguments, and what makes it.
#[derive(Clone, Copy)]
pub(in crate::calls) struct Entry {
    pub(in crate::calls) what: &'static Resolved,
    pub(in crate::calls) make: Make,
}

/// One for each number.
type Table = [Option<Entry>; NUMBERS];

/// Of the only replica, and of one of several; each also where all is simple: see [`is_simple`].
static ALONE: Table = table::<true, false>();
static ALONE_SIMPLE: Table = table::<true, true>();
static TOGETHER: Table = table::<false, false>();
static TOGETHER_SIMPLE: Table = table::<false, true>();

const fn table<const ALONE: bool, const SIMPLE: bool>() -> Table {
    let mut ways = [None; NUMBERS];
    let mut nr = 0;
    while nr < NUMBERS {
        if let Some(what) = rcoe_linux_syscalls::straight(nr) {
            let make: Make = if ALONE { enter_alone } else { enter_together };
            ways[nr] = Some(Entry { what, make });
        }
        nr += 1;
    }
    ways[READ] = Some(of::<READ, ALONE, SIMPLE>());
    ways[WRITE] = Some(of::<WRITE, ALONE, SIMPLE>());
    ways[SEND] = Some(of::<SEND, ALONE, SIMPLE>());
    ways[RECEIVE] = Some(of::<RECEIVE, ALONE, SIMPLE>());
    ways[READ_AT] = Some(of::<READ_AT, ALONE, SIMPLE>());
    ways[WRITE_PARTS] = Some(of::<WRITE_PARTS, ALONE, SIMPLE>());
    ways[DESCRIBE] = Some(of::<DESCRIBE, ALONE, SIMPLE>());
    ways[DESCRIBE_AT] = Some(of::<DESCRIBE_AT, ALONE, SIMPLE>());
    ways[OPEN_AT] = Some(Entry {
        what: opening(),
        make: opens::<ALONE, SIMPLE>,
    });
    ways[CLOSE] = Some(of::<CLOSE, ALONE, SIMPLE>());
    ways[EPOLL_WAIT] = Some(of::<EPOLL_WAIT, ALONE, SIMPLE>());
    ways[PARENT] = Some(of::<PARENT, ALONE, SIMPLE>());
    ways
}

/// Is nothing rare under way, and how do calls go then?
#[derive(Clone, Copy)]
pub(crate) struct Calm(Option<&'static Table>);

impl Calm {
    /// Something is, or may be.
    pub(crate) const NOT: Self = Self(None);

    /// Of this process.
    pub(in crate::calls) fn of(kernel: &Kernel) -> Self {
        Self(
            is_calm(kernel).then(|| match (kernel.alone, is_simple(kernel)) {
                (true, false) => &ALONE,
                (true, true) => &ALONE_SIMPLE,
                (false, false) => &TOGETHER,
                (false, true) => &TOGETHER_SIMPLE,
            }),
        )
    }

    /// Is nothing rare under way?
    #[inline]
    pub(crate) const fn is_calm(self) -> bool {
        self.0.is_some()
    }

    /// The same, and is all simple, with siblings?
    #[inline(always)]
    pub(crate) fn is_simple_together(self) -> bool {
        self.0
            .is_some_and(|table| core::ptr::eq(table, &raw const TOGETHER_SIMPLE))
    }

    /// How the call of this number goes, if straight whatever its arguments. The kernel looks at
    /// the low half of the register only, and so does this.
    #[inline]
    pub(in crate::calls) fn way(self, nr: u64) -> Option<&'static Entry> {
        let at = usize::try_from(nr & 0xffff_ffff).ok()?;
        self.0?.get(at)?.as_ref()
    }
}

/// Has the process a single thread and shares memory with nobody, and if it has siblings, is it as
/// most are: the arguments of calls are compared, and no notes are kept for a successor? None of
/// that changes on the straight way.
pub(super) fn is_simple(kernel: &Kernel) -> bool {
    !kernel.turns.is_member()
        && kernel.threads.runs_alone()
        && !kernel.threads.others_wait()
        && (kernel.alone || kernel.compare == Compare::Args && !kernel.masks)
}

/// What the table says of a call that goes straight.
const fn described<const NR: usize>() -> &'static Resolved {
    rcoe_linux_syscalls::straight(NR).expect("the commonest calls go straight")
}

/// How a call goes that has functions of its own.
const fn of<const NR: usize, const ALONE: bool, const SIMPLE: bool>() -> Entry {
    Entry {
        what: described::<NR>(),
        make: known::<NR, ALONE, SIMPLE>,
    }
}

/// Makes this very call.
fn known<const NR: usize, const ALONE: bool, const SIMPLE: bool>(
    kernel: &mut Kernel,
    frame: &mut TrapFrame,
    _: &'static Resolved,
) -> Leave {
    let what = const { described::<NR>() };
    if SIMPLE && !ALONE && kernel.outgoing.is_open() {
        return known::<NR, ALONE, false>(kernel, frame, what);
    }
    enter_by::<ALONE, SIMPLE, true>(kernel, frame, what)
}

/// What the table says of a call that opens a file, unless it does more than that.
const fn opening() -> &'static Resolved {
    rcoe_linux_syscalls::straight_if(OPEN_AT).expect("the commonest calls go straight")
}

/// Makes this very call, if its arguments are none that make another one of it.
fn opens<const ALONE: bool, const SIMPLE: bool>(
    kernel: &mut Kernel,
    frame: &mut TrapFrame,
    _: &'static Resolved,
) -> Leave {
    let what = const { opening() };
    let (_, raw) = arguments_of(frame);
    if what.call.output_if.is_some_and(|other| other.applies(&raw)) {
        make_any(kernel, frame)
    } else if SIMPLE && !ALONE && kernel.outgoing.is_open() {
        enter_together(kernel, frame, what)
    } else {
        enter_by::<ALONE, SIMPLE, true>(kernel, frame, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> impl Iterator<Item = Calm> {
        let all = [&ALONE, &ALONE_SIMPLE, &TOGETHER, &TOGETHER_SIMPLE];
        all.into_iter().map(|table| Calm(Some(table)))
    }

    #[test]
    fn each_number_has_what_the_table_says_of_it() {
        for nr in 0..NUMBERS {
            let expected = match nr {
                OPEN_AT => Some(opening()),
                _ => rcoe_linux_syscalls::straight(nr),
            };
            let low = nr as u64;
            for (table, register) in tables().flat_map(|it| [(it, low), (it, low | 7 << 32)]) {
                let found = table.way(register).map(|entry| entry.what);
                let alike = match (found, expected) {
                    (Some(found), Some(expected)) => core::ptr::eq(found, expected),
                    (None, None) => true,
                    _ => false,
                };
                assert!(alike, "call {nr}");
            }
        }
        for table in tables() {
            assert!(table.way(NUMBERS as u64).is_none() && table.way(u64::MAX).is_none());
        }
        assert!(Calm::NOT.way(0).is_none() && !Calm::NOT.is_calm());
    }

    #[test]
    fn a_call_that_depends_on_its_arguments_has_no_way_of_its_own() {
        let depends = |nr: &u64| {
            // It looks at them.
            if *nr == OPEN_AT as u64 {
                return false;
            }
            let call = rcoe_linux_syscalls::entry(*nr).expect("known");
            call.requests.is_some() || call.output_if.is_some()
        };
        let all = 0..NUMBERS as u64;
        let known = all.filter(|nr| rcoe_linux_syscalls::entry(*nr).is_some());
        assert!(
            known
                .filter(depends)
                .all(|nr| tables().all(|it| it.way(nr).is_none()))
        );
    }
}

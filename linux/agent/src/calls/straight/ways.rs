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
use crate::calls::{Call, arguments_of, make_any, processes, signals, stat_class};
use crate::convert::size;
use crate::sys::numbers::common::{
    CLOSE, DESCRIBE, DESCRIBE_AT, EPOLL_WAIT, OPEN_AT, PARENT, READ, READ_AT, RECEIVE, SEND, WRITE,
    WRITE_PARTS,
};

/// Makes a call; returns what is to be loaded from the frame.
pub(in crate::calls) type Make = fn(&mut Kernel, &mut TrapFrame) -> Leave;

/// What makes the call of each number.
type Table = [Make; NUMBERS];

/// Of a process of which something rare is under way, or may be: whatever call it is.
static NOT_CALM: Table = [make_any; NUMBERS];
/// Of the only replica, and of one of several; each also where all is simple: see [`is_simple`].
static ALONE: Table = table::<true, false>();
static ALONE_SIMPLE: Table = table::<true, true>();
static TOGETHER: Table = table::<false, false>();
static TOGETHER_SIMPLE: Table = table::<false, true>();

const fn table<const ALONE: bool, const SIMPLE: bool>() -> Table {
    let mut ways: Table = [make_any; NUMBERS];
    let mut nr = 0;
    while nr < NUMBERS {
        if rcoe_linux_syscalls::straight(nr).is_some() {
            ways[nr] = if ALONE {
                straight_alone
            } else {
                straight_together
            };
        }
        nr += 1;
    }
    ways[READ] = known::<READ, ALONE, SIMPLE>;
    ways[WRITE] = known::<WRITE, ALONE, SIMPLE>;
    ways[SEND] = known::<SEND, ALONE, SIMPLE>;
    ways[RECEIVE] = known::<RECEIVE, ALONE, SIMPLE>;
    ways[READ_AT] = known::<READ_AT, ALONE, SIMPLE>;
    ways[WRITE_PARTS] = known::<WRITE_PARTS, ALONE, SIMPLE>;
    ways[DESCRIBE] = known::<DESCRIBE, ALONE, SIMPLE>;
    ways[DESCRIBE_AT] = known::<DESCRIBE_AT, ALONE, SIMPLE>;
    ways[OPEN_AT] = opens::<ALONE, SIMPLE>;
    ways[CLOSE] = known::<CLOSE, ALONE, SIMPLE>;
    ways[EPOLL_WAIT] = known::<EPOLL_WAIT, ALONE, SIMPLE>;
    ways[PARENT] = if ALONE && SIMPLE {
        parent
    } else {
        known::<PARENT, ALONE, SIMPLE>
    };
    ways
}

/// Is nothing rare under way, and how do calls go then? One word of memory, by which each call
/// goes.
#[derive(Clone, Copy)]
pub(crate) struct Calm(&'static Table);

impl Calm {
    /// Something is, or may be.
    pub(crate) const NOT: Self = Self(&NOT_CALM);

    /// Of this process.
    pub(in crate::calls) fn of(kernel: &Kernel) -> Self {
        if !is_calm(kernel) {
            return Self::NOT;
        }
        Self(match (kernel.alone, is_simple(kernel)) {
            (true, false) => &ALONE,
            (true, true) => &ALONE_SIMPLE,
            (false, false) => &TOGETHER,
            (false, true) => &TOGETHER_SIMPLE,
        })
    }

    /// Is nothing rare under way?
    #[inline]
    pub(crate) fn is_calm(self) -> bool {
        !core::ptr::eq(self.0, &raw const NOT_CALM)
    }

    /// The same, and is all simple, with siblings?
    #[inline(always)]
    pub(crate) fn is_simple_together(self) -> bool {
        core::ptr::eq(self.0, &raw const TOGETHER_SIMPLE)
    }

    /// The same of the only replica.
    #[inline(always)]
    pub(crate) fn is_simple_alone(self) -> bool {
        core::ptr::eq(self.0, &raw const ALONE_SIMPLE)
    }

    /// What makes the call of this number. The kernel looks at the low half of the register only,
    /// and so does this.
    #[inline(always)]
    pub(in crate::calls) fn way(self, nr: u64) -> Make {
        let way = self.0.get(size(nr & 0xffff_ffff));
        way.copied().unwrap_or(make_any)
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

/// What the table says of the call that the program makes, which goes straight.
fn of_frame(frame: &TrapFrame) -> &'static Resolved {
    let (nr, _) = arguments_of(frame);
    let what = rcoe_linux_syscalls::straight(size(nr & 0xffff_ffff));
    what.expect("by its number the call goes straight")
}

/// Makes a call without a function of its own, as the only replica.
fn straight_alone(kernel: &mut Kernel, frame: &mut TrapFrame) -> Leave {
    let what = of_frame(frame);
    enter_alone(kernel, frame, what)
}

/// The same as one of several.
fn straight_together(kernel: &mut Kernel, frame: &mut TrapFrame) -> Leave {
    let what = of_frame(frame);
    enter_together(kernel, frame, what)
}

/// Makes this very call.
fn known<const NR: usize, const ALONE: bool, const SIMPLE: bool>(
    kernel: &mut Kernel,
    frame: &mut TrapFrame,
) -> Leave {
    let what = const { described::<NR>() };
    if SIMPLE && !ALONE && kernel.outgoing.is_open() {
        return known::<NR, ALONE, false>(kernel, frame);
    }
    let call = Call::of_known(frame, NR as u64, what);
    enter_by::<ALONE, SIMPLE, true>(kernel, frame, &call, what)
}

/// Tells the program its parent, as the only replica where all is simple: so little that to lay
/// the call out would be most of it.
fn parent(kernel: &mut Kernel, frame: &mut TrapFrame) -> Leave {
    if signals::is_anything_due(kernel) {
        return known::<PARENT, true, true>(kernel, frame);
    }
    kernel.count_call(const { stat_class(described::<PARENT>().class) });
    frame.cpu.regs.rax = processes::parent(kernel).cast_unsigned();
    Leave::Result
}

/// What the table says of a call that opens a file, unless it does more than that.
const fn opening() -> &'static Resolved {
    rcoe_linux_syscalls::straight_if(OPEN_AT).expect("the commonest calls go straight")
}

/// Makes this very call, if its arguments are none that make another one of it.
fn opens<const ALONE: bool, const SIMPLE: bool>(
    kernel: &mut Kernel,
    frame: &mut TrapFrame,
) -> Leave {
    let what = const { opening() };
    let (_, raw) = arguments_of(frame);
    if what.call.output_if.is_some_and(|other| other.applies(&raw)) {
        make_any(kernel, frame)
    } else if SIMPLE && !ALONE && kernel.outgoing.is_open() {
        enter_together(kernel, frame, what)
    } else {
        let call = Call::of_known(frame, OPEN_AT as u64, what);
        enter_by::<ALONE, SIMPLE, true>(kernel, frame, &call, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> impl Iterator<Item = Calm> {
        let all = [&ALONE, &ALONE_SIMPLE, &TOGETHER, &TOGETHER_SIMPLE];
        all.into_iter().map(Calm)
    }

    fn is_any(way: Make) -> bool {
        core::ptr::fn_addr_eq(way, make_any as Make)
    }

    #[test]
    fn each_number_that_goes_straight_has_a_way() {
        for nr in 0..NUMBERS {
            let expected = nr == OPEN_AT || rcoe_linux_syscalls::straight(nr).is_some();
            let low = nr as u64;
            for (table, register) in tables().flat_map(|it| [(it, low), (it, low | 7 << 32)]) {
                assert_eq!(is_any(table.way(register)), !expected, "call {nr}");
            }
        }
        for table in tables().chain([Calm::NOT]) {
            assert!(is_any(table.way(NUMBERS as u64)) && is_any(table.way(u64::MAX)));
        }
        assert!(is_any(Calm::NOT.way(0)) && !Calm::NOT.is_calm());
        assert!(tables().all(Calm::is_calm));
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
                .all(|nr| tables().all(|it| is_any(it.way(nr))))
        );
    }
}

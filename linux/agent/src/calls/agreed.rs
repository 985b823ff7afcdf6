//! What was voted is what is made: the last look before an effect.
//!
//! The vote is on what each replica folded. Until the primary has made the call, its registers and
//! the memory that goes out can still be hit, most of all where it loses its CPU just then. So
//! number and arguments are compared with a second copy as they are loaded for the call, and if the
//! CPU was lost since the fold, what goes out is digested once more ([`crate::arch::rseq`]). A
//! primary in which either differs has a vote called in which it differs; nothing has happened
//! then, so where the group masks faults its successor makes the call.
//!
//! One that is disturbed at every attempt (a debugger steps through it), or whose kernel tells of
//! no disturbance, digests again each time and makes the call at once.
//!
//! Not covered: the few instructions of the call itself, while nobody takes the CPU; what the
//! kernel does between the entry and its copy. Calls through the ring and those of programs with
//! several threads that may wait are looked at right before they are laid out, and made by their
//! own ways.

use core::sync::atomic::{AtomicU32, Ordering};

use rcoe_linux_syscalls::{Class, Resolved};

use crate::arch::entry::{RCOE_INTERRUPT, interruptible_call};
use crate::arch::rseq::{self, ALTERED, DISTURBED, Twice, Words};
use crate::calls::Call;
use crate::kernel::{Kernel, kind};
use crate::memory::guest::Fault;
use crate::protocol::arguments;
use crate::protocol::uring::Request;

/// Stops no call.
static NEVER: AtomicU32 = AtomicU32::new(0);

/// Was the call folded and voted, so that it can be held against that?
#[inline]
pub(crate) fn is_voted(kernel: &Kernel, call: &Call) -> bool {
    call.what.class == Class::Output && !kernel.alone
}

/// Primary: makes a voted call with these arguments, which are the program's but for those that
/// the agent has replaced, and notes what came of it. One that may wait is left for a signal.
pub(crate) fn make(kernel: &mut Kernel, call: &Call, args: &[u64; 6]) -> i64 {
    if *args == call.raw {
        return make_own(kernel, call);
    }
    let replaced = replace(kernel, call, args);
    insist(kernel, call, Some(&replaced))
}

/// The same with the program's own arguments.
#[inline(always)]
pub(crate) fn make_own(kernel: &mut Kernel, call: &Call) -> i64 {
    make_known(kernel, call, call.what)
}

/// The same, where more is known of what the call is.
#[inline(always)]
pub(crate) fn make_known(kernel: &mut Kernel, call: &Call, what: &Resolved) -> i64 {
    let came = try_once(what, call.words(), &kernel.agreed.words);
    if came.result > UNMADE {
        kernel.made.note(came.copy);
        return came.result;
    }
    not_made(kernel, call, came)
}

/// The larger one of the results by which nothing was done.
const UNMADE: i64 = ALTERED;
const _: () = assert!(ALTERED == DISTURBED + 1);

/// The same after a first attempt with such a result.
#[cold]
#[inline(never)]
fn not_made(kernel: &mut Kernel, call: &Call, came: Twice) -> i64 {
    assert_not_made(came);
    if came.result == ALTERED {
        differ(kernel);
    }
    insist(kernel, call, None)
}

/// # Panics
/// The kernel made the call, and its result was hit.
fn assert_not_made(came: Twice) {
    assert!(came.copy <= UNMADE, "a call is made once");
}

/// What is sent and what it must be, where the agent has replaced arguments.
fn replace(kernel: &Kernel, call: &Call, args: &[u64; 6]) -> [Words; 2] {
    let [mut sent, mut agreed] = [*call.words(), kernel.agreed.words];
    for (at, (own, given)) in args.iter().zip(call.raw).enumerate() {
        if *own != given {
            (sent[at + 1], agreed[at + 1]) = (*own, *own);
        }
    }
    [sent, agreed]
}

/// Makes it, unless this replica was disturbed. Does not return if the call is not what was voted.
fn attempt(kernel: &mut Kernel, call: &Call, sent: &Words, agreed: Option<&Words>) -> Option<i64> {
    let came = try_once(call.what, sent, agreed.unwrap_or(&kernel.agreed.words));
    if came.result > UNMADE {
        kernel.made.note(came.copy);
        return Some(came.result);
    }
    assert_not_made(came);
    if came.result == ALTERED {
        differ(kernel);
    }
    None
}

/// Makes it, unless something is not as it was.
#[inline(always)]
fn try_once(what: &Resolved, sent: &Words, agreed: &Words) -> Twice {
    let stop = if what.blocking {
        &RCOE_INTERRUPT
    } else {
        &NEVER
    };
    // SAFETY: the program's own call. Its buffers are its own memory, and the table lets no call
    // through that changes mappings, signal handling or the agent's own state. No output call is
    // one that the kernel continues by itself.
    unsafe { rseq::call(what.nargs, sent, agreed, stop) }
}

/// Makes it after a disturbance.
#[cold]
#[inline(never)]
fn insist(kernel: &mut Kernel, call: &Call, replaced: Option<&[Words; 2]>) -> i64 {
    let sent = replaced.map_or(call.words(), |[sent, _]| sent);
    let agreed = replaced.map(|[_, agreed]| agreed);
    for _ in 0..rseq::attempts() {
        confirm(kernel, call);
        if let Some(result) = attempt(kernel, call, sent, agreed) {
            return result;
        }
    }
    confirm(kernel, call);
    if !are_alike(call.what, sent, agreed.unwrap_or(&kernel.agreed.words)) {
        differ(kernel);
    }
    let [nr, args @ ..] = *sent;
    // SAFETY: as in `attempt`.
    let result = unsafe {
        if call.what.blocking {
            interruptible_call(nr, &args)
        } else {
            rcoe_linux_sys::syscall6(nr, args)
        }
    };
    kernel.made.note(result);
    result
}

/// Primary: makes a call through the ring, under this name; what `lay_out` makes of it is made anew
/// after a disturbance. `None` if the ring is gone, and nothing happened.
pub(crate) fn through_ring(
    kernel: &mut Kernel,
    call: &Call,
    name: u64,
    lay_out: impl Fn(&Kernel) -> Result<Request, Fault>,
) -> Option<i64> {
    let voted = is_voted(kernel, call);
    for left in (0..=rseq::attempts()).rev() {
        if voted {
            check(kernel, call);
        }
        let Ok(request) = lay_out(kernel) else {
            return Some(Fault::RESULT);
        };
        let result = kernel.ring.perform(name, request, voted && left != 0)?;
        if result != DISTURBED {
            return Some(result);
        }
    }
    unreachable!("the last request is not watched")
}

/// Primary, before a voted call that is made in another way: it is still what was voted.
pub(crate) fn check(kernel: &mut Kernel, call: &Call) {
    rseq::after_calls();
    if rseq::is_disturbed() {
        confirm(kernel, call);
    }
    if !are_alike(call.what, call.words(), &kernel.agreed.words) {
        differ(kernel);
    }
}

/// Are number and arguments the same in both?
fn are_alike(what: &Resolved, sent: &Words, agreed: &Words) -> bool {
    let words = if rseq::is_short(what.nargs) {
        rseq::SHORT
    } else {
        sent.len()
    };
    sent[..words] == agreed[..words]
}

/// Primary: does `work` while what goes out is not what was voted, because this agent has just
/// changed it for the time of the call.
pub(crate) fn altered<T>(
    kernel: &mut Kernel,
    call: &Call,
    work: impl FnOnce(&mut Kernel) -> T,
) -> T {
    let voted = kernel.agreed.content;
    rseq::watch();
    // What cannot be read any more is found out when it is made.
    kernel.agreed.content = arguments::digest(kernel, call).unwrap_or(voted);
    let result = work(kernel);
    kernel.agreed.content = voted;
    result
}

/// What goes out is still what was voted; from here on disturbances count anew.
fn confirm(kernel: &mut Kernel, call: &Call) {
    rseq::watch();
    if arguments::digest(kernel, call) != Ok(kernel.agreed.content) {
        differ(kernel);
    }
}

/// This replica would do something else than was voted: it calls for a vote in which it differs.
/// The effect has not begun.
#[cold]
#[inline(never)]
fn differ(kernel: &mut Kernel) -> ! {
    kernel.report.in_call.store(0, Ordering::Relaxed);
    kernel.replica.begin_effect(true);
    let kind = kind::of(kernel.agreed.words[0], kind::CONTENT);
    let accused = kernel.replica.accuse_self(kind, kernel.agreed.content);
    let Err(halt) = accused else {
        panic!("the only replica left would not do what it has agreed on");
    };
    kernel.park(halt)
}

//! The straight way: common calls while nothing rare is under way.
//!
//! Intuition: hardly any call meets a signal, a timer, the end of a slice, a mapped file or a
//! terminal in the background, and yet each would have to be asked about all of them. So it is
//! found out once whether any of that is so, at the end of every call that went the long way, and
//! kept in one word ([`Kernel::calm`]); what comes from outside shows in a few words of memory
//! ([`signals::is_anything_due`], by which the vDSO goes, too). A call that the table says is
//! common ([`rcoe_linux_syscalls::Resolved::straight`]) is then made at once. What is rare about
//! the call itself sends it the long way, before anything was done.
//!
//! A replica that never had siblings folds nothing into a trace that nobody compares, and lays
//! nothing out for followers ([`alone`]). With siblings ([`together`]) the straight way has the
//! same events, votes and records as the long one, so each replica goes by what it knows itself:
//! one may take the one way and its sibling the other.
//!
//! The commonest calls have functions of their own, compiled for what the table says of them
//! ([`ways`]). So what a call is goes from function to function as an argument (`what`), which such
//! a function knows, beside the call, of which it is a part: what is in memory it would not know.
//!
//! Contract: nothing on the straight way makes anything of [`is_calm`] untrue. All else that does
//! goes the long way or is a fault, and nobody is calm then before a call has looked again.
//!
//! In a program with several threads, or that shares memory with other processes and has a turn, no
//! call may wait in the host: see [`unwaiting`].
//!
//! Not covered: files while one is mapped shared, and waits for some time at most.

mod unwaiting;
pub(super) mod ways;

use core::sync::atomic::Ordering;

use linux_raw_sys::general::O_NONBLOCK;
use rcoe_core::Compare;
use rcoe_linux_syscalls::{
    Arg, Class, Content, Offset, Opens, Outgoing, Resolved, Special, Terminal, Time, Waits,
};

use crate::arch::entry::{Leave, NOT_BEGUN, TrapFrame, is_away, unkept_call};
use crate::calls::{
    Call, after, agreed, emulated, go_on, io, made, order, outgoing, paths, processes, signals,
    stat_class,
};
use crate::convert::low32;
use crate::kernel::{Kernel, kind};
use crate::memory::deferred;
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer::{self, Outcome};
use crate::protocol::{arguments, publish};
use crate::recover::takeover;
use crate::sched::{blocking, turns};

/// How far a call has come.
pub(super) enum Way {
    /// It is made, and nothing else is due.
    Done(i64),
    /// It is made; the way out is the long one.
    News(i64),
    /// Nothing was done yet: it goes the long way.
    Long,
}

/// Is nothing rare under way in this process? Asked at the end of a call that went the long way.
pub(super) fn is_calm(kernel: &Kernel) -> bool {
    kernel.signals.are_calm()
        && kernel.threads.are_calm()
        && !kernel.shared.has_files()
        && !kernel.acting.is_open()
        && !kernel.orders.is_pending()
        && !deferred::is_active()
        && !kernel.replica.env().meeting.is_under_way()
}

/// Is there nothing rare about this call either, of those that go the straight way?
#[inline(always)]
fn is_plain<const KNOWN: bool>(kernel: &Kernel, call: &Call, what: &Resolved) -> bool {
    what.plain
        || is_at_once(call, what)
        || if KNOWN {
            has_plain_arguments(kernel, call, what)
        } else {
            has_plain_arguments_apart(kernel, call)
        }
}

/// Does the call not wait, and is there nothing else about it?
#[inline(always)]
fn is_at_once(call: &Call, what: &Resolved) -> bool {
    let time = what.timeout.map(usize::from);
    let time = time.and_then(|at| call.raw.get(at));
    time.is_some_and(|&time| low32(time).cast_signed() <= 0)
}

#[inline(never)]
fn has_plain_arguments_apart(kernel: &Kernel, call: &Call) -> bool {
    has_plain_arguments(kernel, call, call.what)
}

#[inline(always)]
fn has_plain_arguments(kernel: &Kernel, call: &Call, what: &Resolved) -> bool {
    let raw = |index: u8| call.raw[usize::from(index)];
    let arg = |index: usize| what.canonical(index, &call.raw);
    let facts = what.facts;
    let at_once = match facts.time {
        Time::None => true,
        Time::Milliseconds(time) => arg(usize::from(time)).cast_signed() <= 0,
        Time::Timespec(_) | Time::TimespecRest(_) | Time::TimevalRest(_) => false,
    };
    let outside = match facts.offset {
        Offset::Position => true,
        Offset::At(at) | Offset::AtOrOn(at) | Offset::To(at) => !guest::is_reserved(raw(at)),
    };
    let own = match what.special {
        // Clocks of CPU time have negative numbers.
        Special::CpuClock => arg(0).cast_signed() >= 0,
        Special::EpollPwait => arg(4) == 0,
        _ => true,
    };
    at_once
        && outside
        && own
        && (!what.nested || has_own_parts(call))
        && (what.paths == 0 || paths::are_plain(call, what) && opens_plainly(kernel, call, what))
}

/// Does the call open nothing, or what can neither become a terminal of a session nor make all
/// threads wait?
#[inline(always)]
fn opens_plainly(kernel: &Kernel, call: &Call, what: &Resolved) -> bool {
    match what.facts.opens {
        Opens::None => true,
        Opens::Plain(_, flags) => {
            let at_once = call.arg(usize::from(flags)) & u64::from(O_NONBLOCK) != 0;
            !processes::leads(kernel) && (at_once || !kernel.threads.others_wait())
        }
        Opens::Described(..) | Opens::Created(_) | Opens::Peer(_) => false,
    }
}

/// Is this no call on a terminal by a process in the background?
#[inline(always)]
fn is_in_foreground(kernel: &Kernel, what: &Resolved) -> bool {
    what.facts.terminal == Terminal::None || !processes::jobs::is_in_background(kernel)
}

/// Makes a call that goes straight by the table, of a calm process. Returns what is to
/// be loaded from the frame.
pub(super) fn enter(kernel: &mut Kernel, frame: &mut TrapFrame, what: &'static Resolved) -> Leave {
    if kernel.alone {
        enter_alone(kernel, frame, what)
    } else {
        enter_together(kernel, frame, what)
    }
}

/// The same of the only replica.
#[inline(never)]
fn enter_alone(kernel: &mut Kernel, frame: &mut TrapFrame, what: &'static Resolved) -> Leave {
    let call = Call::of(frame, what);
    enter_by::<true, false, false>(kernel, frame, &call, what)
}

/// The same of one of several.
#[inline(never)]
fn enter_together(kernel: &mut Kernel, frame: &mut TrapFrame, what: &'static Resolved) -> Leave {
    let call = Call::of(frame, what);
    enter_by::<false, false, false>(kernel, frame, &call, what)
}

/// The same within the caller, who knows when it is compiled which call it is if `KNOWN`, and that
/// all is simple ([`ways::is_simple`]) if `SIMPLE`.
#[inline(always)]
fn enter_by<const ALONE: bool, const SIMPLE: bool, const KNOWN: bool>(
    kernel: &mut Kernel,
    frame: &mut TrapFrame,
    call: &Call,
    what: &Resolved,
) -> Leave {
    debug_assert!(
        !SIMPLE || ways::is_simple(kernel),
        "what is simple stays so"
    );
    debug_assert!(
        !SIMPLE || !kernel.outgoing.is_open(),
        "nothing waits where all is simple"
    );
    let way = if ALONE {
        alone::<SIMPLE, KNOWN>(kernel, frame, call, what)
    } else {
        together::<SIMPLE, KNOWN>(kernel, frame, call, what)
    };
    if let Way::Done(result) = way {
        frame.cpu.regs.rax = result.cast_unsigned();
        return Leave::Result;
    }
    go_on(kernel, frame, call, &way)
}

/// The only replica makes it.
#[inline(always)]
fn alone<const SIMPLE: bool, const KNOWN: bool>(
    kernel: &mut Kernel,
    frame: &TrapFrame,
    call: &Call,
    what: &Resolved,
) -> Way {
    let rare = signals::is_anything_due(kernel)
        || arguments::names_agent::<KNOWN>(call, what)
        || !SIMPLE && meets_mapped_files(kernel, what);
    if rare || !is_plain::<KNOWN>(kernel, call, what) || !is_in_foreground(kernel, what) {
        return Way::Long;
    }
    if matches!(what.class, Class::Local | Class::Emulated) {
        kernel.count_call(stat_class(what.class));
        let result = emulated::answer(kernel, frame, call, what);
        return done::<SIMPLE>(kernel, result);
    }
    let Some(result) = host::<SIMPLE>(kernel, call, what) else {
        return Way::Long;
    };
    if result < 0 && what.blocking && is_to_be_made(kernel, result) {
        return Way::Long;
    }
    kernel.count_call(stat_class(what.class));
    kernel.signals.hear_nothing();
    if result >= 0 && !signals::has_come(kernel) {
        return done::<SIMPLE>(kernel, result);
    }
    Way::News(with_news(kernel, call, result))
}

/// Is a call with this result yet to be made? Called away before it began, or for nothing that the
/// program acts on, it has done nothing.
#[cold]
fn is_to_be_made(kernel: &mut Kernel, result: i64) -> bool {
    is_away(result) && (result == NOT_BEGUN || !signals::must_interrupt(kernel))
}

/// The end of a call with which nothing else has come: only a slice may be over, or a turn.
#[inline(always)]
fn done<const SIMPLE: bool>(kernel: &mut Kernel, result: i64) -> Way {
    if SIMPLE || kernel.threads.runs_alone() {
        Way::Done(result)
    } else {
        counted(kernel, result)
    }
}

/// The same where others wait for that. Each way out counts the call once.
#[inline(never)]
fn counted(kernel: &mut Kernel, result: i64) -> Way {
    if kernel.turns.goes_on() && kernel.threads.count_reading() {
        kernel.turns.count_within();
        Way::Done(result)
    } else {
        Way::News(result)
    }
}

/// Does the call have to do with a file's content, while some process of those that share memory
/// has a file mapped shared?
#[inline(always)]
fn meets_mapped_files(kernel: &Kernel, what: &Resolved) -> bool {
    let member = kernel.turns.is_member();
    member && what.facts.content != Content::None && turns::have_files(kernel)
}

/// Makes the call. One that was interrupted did nothing. None, and nothing was done, if it may wait
/// and other threads must not.
#[inline(always)]
fn host<const SIMPLE: bool>(kernel: &Kernel, call: &Call, what: &Resolved) -> Option<i64> {
    let report = kernel.report;
    report.in_call.store(call.nr + 1, Ordering::Relaxed);
    // SAFETY: the program's own call; it is none that changes mappings, signal handling or the
    // agent's own state, and its pointers are not the agent's.
    let result = unsafe {
        if !what.blocking {
            Some(rcoe_linux_sys::syscall6(call.nr, call.raw))
        } else if !SIMPLE && kernel.threads.others_wait() {
            unwaiting::make(call)
        } else {
            Some(unkept_call(call.nr, &call.raw))
        }
    };
    report.in_call.store(0, Ordering::Relaxed);
    result
}

/// Primary: the same, and what came of it is noted.
#[inline(always)]
fn noted<const SIMPLE: bool>(kernel: &Kernel, call: &Call, what: &Resolved) -> Option<i64> {
    let result = host::<SIMPLE>(kernel, call, what)?;
    kernel.made.note(result);
    Some(result)
}

/// Primary: the same, of a call that is made only as it was voted, if it was.
#[inline(always)]
fn effect<const SIMPLE: bool>(kernel: &mut Kernel, call: &Call, what: &Resolved) -> Option<i64> {
    if what.class != Class::Output {
        return noted::<SIMPLE>(kernel, call, what);
    }
    if !SIMPLE && what.blocking && kernel.threads.others_wait() {
        agreed::check(kernel, call);
        return noted::<SIMPLE>(kernel, call, what);
    }
    kernel.report.in_call.store(call.nr + 1, Ordering::Relaxed);
    let result = agreed::make_known(kernel, call, what);
    kernel.report.in_call.store(0, Ordering::Relaxed);
    Some(result)
}

/// Do the buffers of a vector lie in the program's own memory? Calls with other structures that
/// hold pointers go the long way.
fn has_own_parts(call: &Call) -> bool {
    let (Arg::IovIn { count_arg } | Arg::IovOut { count_arg }) = call.what.args[1] else {
        return false;
    };
    let count = call.arg(usize::from(count_arg));
    let is_own = |at: u64| {
        let part = guest::read::<[u64; 2]>(call.arg(1).wrapping_add(16 * at));
        part.is_ok_and(|[base, _]| !guest::is_reserved(base))
    };
    count <= arguments::IOV_MAX && (0..count).all(is_own)
}

/// The result of a call that has failed, or while which something has arrived: that counts from
/// here on.
#[cold]
fn with_news(kernel: &mut Kernel, call: &Call, result: i64) -> i64 {
    let result = io::unless_cut(kernel, call, result);
    let result = io::failed(kernel, call, result);
    let [due, taken] = signals::collect(kernel);
    let order = kernel.orders.next(kernel.control);
    let outcome = Outcome {
        result,
        due,
        taken,
        order,
    };
    signals::take(kernel, outcome);
    blocking::settle(kernel, call, result)
}

/// One of several replicas makes it.
#[inline(always)]
fn together<const SIMPLE: bool, const KNOWN: bool>(
    kernel: &mut Kernel,
    frame: &TrapFrame,
    call: &Call,
    what: &Resolved,
) -> Way {
    let output = what.class == Class::Output;
    let voted = !SIMPLE && kernel.compare == Compare::Every && !output;
    let rare = voted
        || arguments::names_agent::<KNOWN>(call, what)
        || !SIMPLE && (meets_mapped_files(kernel, what) || outgoing::looks(kernel, what));
    if rare || !is_plain::<KNOWN>(kernel, call, what) {
        return Way::Long;
    }
    // Where all is simple nothing waits.
    if !SIMPLE {
        outgoing::before(kernel, call);
    }
    // Where the compiler still has the arguments in registers.
    if output {
        arguments::keep(kernel, call, what);
    }
    kernel.count_call(stat_class(what.class));
    kernel.enter(call.nr);
    signals::count_call(kernel);
    let compared = SIMPLE || output || kernel.compare >= Compare::Args;
    if compared && let Err(Fault) = arguments::fold_kept::<KNOWN>(kernel, call, what) {
        kernel.event(kind::of(call.nr, kind::FAULTY_POINTER), 0);
        return Way::News(order::of_fault(kernel, call));
    }
    let (result, plain) = if matches!(what.class, Class::Local | Class::Emulated) {
        let result = emulated::answer(kernel, frame, call, what);
        (result, !signals::is_due(kernel))
    } else {
        to_outside::<SIMPLE, KNOWN>(kernel, call, what)
    };
    if compared {
        kernel.outcome.set(result);
    }
    if plain {
        done::<SIMPLE>(kernel, result)
    } else {
        Way::News(result)
    }
}

/// An effect that waits, or what the primary gets; and whether that is all that has come.
#[inline(always)]
fn to_outside<const SIMPLE: bool, const KNOWN: bool>(
    kernel: &mut Kernel,
    call: &Call,
    what: &Resolved,
) -> (i64, bool) {
    if SIMPLE && what.noted && what.facts.outgoing != Outgoing::Sends {
        let (result, plain) = through_primary::<SIMPLE, KNOWN>(kernel, call, what, false);
        note(kernel, call, what, result);
        return (result, plain);
    }
    if what.noted {
        return to_be_noted(kernel, call);
    }
    // Input has to do with a descriptor that is known only where it is taken later.
    let concerned = !SIMPLE && kernel.masks || what.class == Class::Output;
    if !SIMPLE && kernel.outgoing.is_open() || concerned && kernel.outgoing.knows(call.raw[0]) {
        let sends = what.facts.outgoing == Outgoing::Sends;
        if KNOWN && what.class == Class::Input && !sends && !kernel.masks {
            return input_near_what_waits::<KNOWN>(kernel, call, what);
        }
        near_what_waits(kernel, call)
    } else {
        through_primary::<SIMPLE, KNOWN>(kernel, call, what, false)
    }
}

/// The same of a call whose result says something of descriptors.
#[inline(never)]
fn to_be_noted(kernel: &mut Kernel, call: &Call) -> (i64, bool) {
    let (result, plain) = near_what_waits(kernel, call);
    note(kernel, call, call.what, result);
    (result, plain)
}

/// Notes what such a result says. To do that twice, as where the way out is the long one, is as
/// good as once.
#[inline(always)]
fn note(kernel: &mut Kernel, call: &Call, what: &Resolved, result: i64) {
    takeover::kinds::after(call, what);
    outgoing::after_known(kernel, call, what, result);
}

/// As [`through_primary`], where it is rarer.
#[inline(never)]
fn through_primary_yet(kernel: &mut Kernel, call: &Call) -> (i64, bool) {
    through_primary::<false, false>(kernel, call, call.what, true)
}

/// The same of a call whose effect may wait, or while another's does.
#[inline(never)]
fn near_what_waits(kernel: &mut Kernel, call: &Call) -> (i64, bool) {
    if call.what.class == Class::Output
        && let Some(result) = outgoing::defer(kernel, call)
    {
        io::signal_failure(kernel, call, result);
        return (result, result >= 0 && !signals::is_due(kernel));
    }
    if call.what.class == Class::Input && outgoing::takes_later(kernel, call) {
        return read(kernel, call);
    }
    let (result, plain) = through_primary_yet(kernel, call);
    if outgoing::must_repeat(kernel, call, result) {
        return through_primary_yet(kernel, call);
    }
    outgoing::written(kernel, call, result);
    (result, plain)
}

/// The same of input where nothing is taken out later.
#[inline(always)]
fn input_near_what_waits<const KNOWN: bool>(
    kernel: &mut Kernel,
    call: &Call,
    what: &Resolved,
) -> (i64, bool) {
    // Nobody waits for others at an input where no losses are masked.
    let (result, plain) = through_primary::<false, KNOWN>(kernel, call, what, false);
    if result <= 0 && outgoing::must_repeat(kernel, call, result) {
        return through_primary_yet(kernel, call);
    }
    (result, plain)
}

/// A read that takes out later what it reads.
fn read(kernel: &mut Kernel, call: &Call) -> (i64, bool) {
    if let Err(Fault) = kernel.segments.prepare(call) {
        return (conclude(kernel, call, true, Fault::RESULT), false);
    }
    let outcome = outgoing::read(kernel, call);
    let (result, plain) = conclude_with(kernel, call, true, outcome);
    if outgoing::must_repeat(kernel, call, result) {
        return near_what_waits(kernel, call);
    }
    (result, plain)
}

/// What the primary gets for the call, and whether that is all that has come. `may_wait`: effects
/// may wait to be released.
#[inline(always)]
fn through_primary<const SIMPLE: bool, const KNOWN: bool>(
    kernel: &mut Kernel,
    call: &Call,
    what: &Resolved,
    may_wait: bool,
) -> (i64, bool) {
    if must_meet::<SIMPLE>(kernel, call, what) {
        meet(kernel, what, may_wait);
    }
    let repeatable = what.class == Class::Input && what.repeatable;
    if let Err(Fault) = kernel.segments.prepare_known::<KNOWN>(call, what) {
        return (conclude(kernel, call, repeatable, Fault::RESULT), false);
    }
    let outcome = if may_lead::<SIMPLE>(kernel, what) {
        match lead::<SIMPLE>(kernel, call, what) {
            Ok(result) => {
                kernel.signals.hear_nothing();
                return (result, true);
            }
            Err(outcome) => outcome,
        }
    } else if let Some(result) = transfer::receive_promptly(kernel) {
        kernel.signals.hear_nothing();
        return (result, true);
    } else {
        io::obtain(kernel, call, repeatable)
    };
    conclude_with(kernel, call, repeatable, outcome)
}

/// As [`Kernel::rendezvous`] with siblings, of whom one is there already or comes soon.
#[inline(always)]
fn meet(kernel: &mut Kernel, what: &Resolved, may_wait: bool) {
    // With what an effect brings with it that was told.
    if what.class != Class::Output {
        kernel.tell_outcome();
    }
    if let Err(halt) = kernel.replica.rendezvous_inline() {
        kernel.park(halt);
    }
    if may_wait && kernel.outgoing.is_open() {
        outgoing::settle(kernel);
    }
}

/// Does nobody make this call before all have come to it?
#[inline(always)]
fn must_meet<const SIMPLE: bool>(kernel: &Kernel, call: &Call, what: &Resolved) -> bool {
    if what.class == Class::Output {
        !outgoing::ends_unseen(kernel, call, what)
    } else {
        !SIMPLE && kernel.masks && takeover::is_final(call)
    }
}

/// All that has come of a call, and whether that is a result only.
fn conclude_with(
    kernel: &mut Kernel,
    call: &Call,
    repeatable: bool,
    outcome: Outcome,
) -> (i64, bool) {
    if outcome.result >= 0 && kernel.signals.is_nothing_new(&outcome) {
        kernel.signals.hear_nothing();
        return (outcome.result, true);
    }
    let result = io::heed(kernel, call, outcome);
    (conclude(kernel, call, repeatable, result), false)
}

/// Is this the primary, which leaves no notes for a successor, has no predecessor's to read, and
/// nothing to tell but the result?
#[inline(always)]
fn may_lead<const SIMPLE: bool>(kernel: &Kernel, what: &Resolved) -> bool {
    kernel.replica.is_primary()
        && (SIMPLE || !kernel.masks)
        && kernel.inherited == kernel.replica.epoch()
        && !signals::is_anything_due(kernel)
        && is_in_foreground(kernel, what)
}

/// Primary: makes the call and publishes what came of it.
///
/// # Errors
/// More came of it than a result.
#[inline(always)]
fn lead<const SIMPLE: bool>(
    kernel: &mut Kernel,
    call: &Call,
    what: &Resolved,
) -> Result<i64, Outcome> {
    if may_wait_for_events(call, what) {
        kernel.settle_debt();
    }
    let repeatable = what.class == Class::Input && what.repeatable;
    kernel.replica.announce_effect(repeatable);
    kernel.made.begin();
    let Some(result) = effect::<SIMPLE>(kernel, call, what) else {
        return Err(lead_in_vain(kernel, call));
    };
    if result < 0 {
        return Err(lead_to_failure(kernel, call, result));
    }
    if signals::has_come(kernel) {
        return Err(tell(kernel, call, result));
    }
    kernel.made.assert_is(result);
    made::assert_possible(call, what, result);
    publish::publish_noted(kernel, call, what, repeatable);
    Ok(result)
}

/// Is this a question what is ready, that may wait for an answer?
#[inline(always)]
fn may_wait_for_events(call: &Call, what: &Resolved) -> bool {
    let at_once = |at: u8| low32(call.raw[usize::from(at)]) == 0;
    matches!(what.facts.waits, Waits::Epoll | Waits::Poll) && !what.timeout.is_some_and(at_once)
}

/// Primary: nothing was done yet, and the call is made in another way.
#[cold]
#[inline(never)]
fn lead_in_vain(kernel: &mut Kernel, call: &Call) -> Outcome {
    let result = io::on_host(kernel, call, call.raw);
    tell(kernel, call, result)
}

/// Primary: this came out.
#[cold]
#[inline(never)]
fn lead_to_failure(kernel: &mut Kernel, call: &Call, result: i64) -> Outcome {
    if call.what.blocking && is_to_be_made(kernel, result) {
        return lead_in_vain(kernel, call);
    }
    tell(kernel, call, result)
}

/// Primary: publishes a result, and all that has come with it.
#[cold]
fn tell(kernel: &mut Kernel, call: &Call, result: i64) -> Outcome {
    kernel.made.assert_is(result);
    made::assert_possible(call, call.what, result);
    let result = io::unless_cut(kernel, call, result);
    let result = io::refused_terminal(kernel, call, result);
    io::tell(kernel, call, result)
}

/// All that the long way does with a result.
#[cold]
fn conclude(kernel: &mut Kernel, call: &Call, repeatable: bool, result: i64) -> i64 {
    let result = io::go_on(kernel, call, repeatable, result);
    if call.what.class == Class::Output {
        io::signal_failure(kernel, call, result);
    }
    after(kernel, call, result);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_question_that_waits_is_a_wait() {
        const POLL: u64 = 7;
        const EPOLL_WAIT: u64 = 232;
        let waits = |nr, raw| {
            let call = Call::new(nr, raw).expect("known");
            may_wait_for_events(&call, call.what)
        };
        for (time, expected) in [(0, false), (1 << 32, false), (10, true), (u64::MAX, true)] {
            assert_eq!(waits(EPOLL_WAIT, [3, 4096, 1, time, 0, 0]), expected);
            assert_eq!(waits(POLL, [4096, 1, time, 0, 0, 0]), expected);
        }
        assert!(!waits(1, [1, 4096, 8, 0, 0, 0]), "write");
    }
}

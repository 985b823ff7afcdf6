//! Calls that reach the outside: the primary makes them, everyone gets the result.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EFBIG, EINTR, EIO, EPIPE};
use linux_raw_sys::general::{SIGPIPE, SIGXFSZ};
use rcoe_linux_syscalls::{Class, Sigpipe, Size};

use crate::arch::entry::{NOT_BEGUN, interruptible_call};
use crate::arch::rseq;
use crate::calls::{
    Call, NEWS, PARKED, acting, agreed, credentials, made, outgoing, paths, processes, signals,
    status,
};
use crate::kernel::Kernel;
use crate::memory::deferred;
use crate::memory::guest::{self, Fault};
use crate::protocol::publish;
use crate::protocol::transfer::{self, Lost, Outcome};
use crate::recover::reintegration;
use crate::recover::takeover::{Course, Effect};
use crate::sched::blocking;
use crate::sys;

/// Result of a call that was given up for a signal before it did anything, or was not begun for
/// one: the program makes it again, unless a handler that does not want that has run; then it is
/// EINTR. The kernel's own ERESTARTSYS, which no program ever sees either.
pub(crate) const GIVEN_UP: i64 = -512;

/// An input call: no barrier, the followers check and consume.
pub(crate) fn input(kernel: &mut Kernel, call: &Call) -> i64 {
    if outgoing::takes_later(kernel, call) {
        return read(kernel, call);
    }
    let result = through_primary(kernel, call, call.what.repeatable);
    if outgoing::must_repeat(kernel, call, result) {
        return through_primary(kernel, call, call.what.repeatable);
    }
    result
}

/// A read that takes out later what it reads.
fn read(kernel: &mut Kernel, call: &Call) -> i64 {
    if let Err(Fault) = kernel.segments.prepare(call) {
        return Fault::RESULT;
    }
    let outcome = outgoing::read(kernel, call);
    let result = heed(kernel, call, outcome);
    let result = go_on(kernel, call, true, result);
    if outgoing::must_repeat(kernel, call, result) {
        return input(kernel, call);
    }
    result
}

/// An output call: voted first.
pub(crate) fn output(kernel: &mut Kernel, call: &Call) -> i64 {
    let result = match outgoing::defer(kernel, call) {
        Some(result) => result,
        None => at_once(kernel, call),
    };
    signal_failure(kernel, call, result);
    result
}

/// An output call that is made before the program goes on.
fn at_once(kernel: &mut Kernel, call: &Call) -> i64 {
    if !outgoing::ends_unseen(kernel, call, call.what) {
        kernel.rendezvous();
    }
    let result = through_primary(kernel, call, false);
    outgoing::written(kernel, call, result);
    result
}

/// All replicas: the signals that come with the failure of an output call.
pub(super) fn signal_failure(kernel: &mut Kernel, call: &Call, result: i64) {
    if result == sys::error(EPIPE) && !silent(call) {
        signals::raise(kernel, SIGPIPE);
    } else if result == sys::error(EFBIG) && is_beyond_limit(call) {
        signals::raise(kernel, SIGXFSZ);
    }
}

/// The only replica, with the failure of a call that the host has made: what the program gets.
pub(super) fn failed(kernel: &mut Kernel, call: &Call, result: i64) -> i64 {
    if call.what.class == Class::Output {
        signal_failure(kernel, call, result);
    }
    refused_terminal(kernel, call, result)
}

/// Primary: the host refuses to read from rcoe's terminal, or reading fails otherwise.
pub(super) fn refused_terminal(kernel: &Kernel, call: &Call, result: i64) -> i64 {
    if result == sys::error(EIO)
        && let Some(result) = processes::jobs::refused(kernel, call)
    {
        return result;
    }
    result
}

/// Means EFBIG that the program's own limit was reached, not that of a file or of semaphores?
fn is_beyond_limit(call: &Call) -> bool {
    let limit = sys::file_size_limit();
    if limit == u64::MAX {
        return false;
    }
    let arg = |index: u8| call.arg(usize::from(index));
    match call.what.facts.size {
        Size::None => false,
        Size::To(length) => arg(length) > limit,
        Size::By(offset, length) => arg(offset).saturating_add(arg(length)) > limit,
        Size::From(offset) => arg(offset) >= limit,
        Size::Position => true,
    }
}

/// Does the call ask for EPIPE without SIGPIPE?
fn silent(call: &Call) -> bool {
    match call.what.facts.sigpipe {
        Sigpipe::Silent => true,
        Sigpipe::Raises => false,
        Sigpipe::RaisesWithout(arg, bits) => call.arg(usize::from(arg)) & u64::from(bits) != 0,
    }
}

/// All replicas get what the primary gets for this call; see [`processes::execute`].
pub(crate) fn exchange(kernel: &mut Kernel, call: &Call, repeatable: bool) -> i64 {
    through_primary(kernel, call, repeatable)
}

fn through_primary(kernel: &mut Kernel, call: &Call, repeatable: bool) -> i64 {
    let result = once(kernel, call, repeatable);
    go_on(kernel, call, repeatable, result)
}

/// After the primary has got this for the call: until it is more than [`NEWS`].
pub(super) fn go_on(kernel: &mut Kernel, call: &Call, repeatable: bool, mut result: i64) -> i64 {
    loop {
        reintegration::carry_out(kernel);
        if result != NEWS {
            return blocking::settle(kernel, call, result);
        }
        result = once(kernel, call, repeatable);
    }
}

/// What the primary gets for the call, or [`NEWS`].
fn once(kernel: &mut Kernel, call: &Call, repeatable: bool) -> i64 {
    if let Err(Fault) = kernel.segments.prepare(call) {
        return Fault::RESULT;
    }
    let outcome = obtain(kernel, call, repeatable);
    heed(kernel, call, outcome)
}

/// Takes what the primary has published of the call, or makes it as the primary. What it fills was
/// noted.
pub(super) fn obtain(kernel: &mut Kernel, call: &Call, repeatable: bool) -> Outcome {
    let records = kernel.replica.records();
    let received = if kernel.replica.is_primary() {
        Err(Lost { torn: false })
    } else {
        transfer::receive(kernel)
    };
    received.unwrap_or_else(|Lost { torn }| {
        let effect = Effect::new(call, records);
        as_primary(kernel, call, effect, repeatable, torn)
    })
}

/// All replicas, with what has come of a call: what it means, and what has come with it.
pub(super) fn heed(kernel: &mut Kernel, call: &Call, outcome: Outcome) -> i64 {
    signals::take(kernel, outcome);
    acting::opened(kernel, call, outcome.result)
}

#[inline(never)]
fn as_primary(
    kernel: &mut Kernel,
    call: &Call,
    mut effect: Effect,
    repeatable: bool,
    torn: bool,
) -> Outcome {
    signals::signalfd::refresh(kernel);
    kernel.made.begin();
    let result = match course(kernel, call, &mut effect, torn) {
        Course::Make => credentials::telling(kernel, call, |kernel| {
            make(kernel, call, &mut effect, repeatable)
        }),
        Course::Made(result) => {
            kernel.replica.begin_effect(false);
            result
        }
    };
    credentials::told(call, result);
    tell(kernel, call, result)
}

/// Primary, with what the host gave: all of it that the others have to know.
pub(super) fn tell(kernel: &mut Kernel, call: &Call, result: i64) -> Outcome {
    let result = acting::judge(kernel, call, result);
    let [due, taken] = signals::collect(kernel);
    let outcome = Outcome {
        result,
        due,
        taken,
        order: kernel.orders.next(kernel.control),
    };
    if !kernel.alone {
        publish::publish(kernel, call, &outcome);
    }
    outcome
}

/// What is left to do of this call: all of it, unless a lost primary had begun it.
fn course(kernel: &mut Kernel, call: &Call, effect: &mut Effect, torn: bool) -> Course {
    let epoch = kernel.replica.epoch();
    if kernel.inherited == epoch && !torn {
        return Course::Make;
    }
    kernel.inherited = epoch;
    effect.inherit(kernel, call, torn).unwrap_or_else(|| {
        let halt = kernel.replica.lose_effect();
        kernel.park(halt)
    })
}

/// Makes the call, with notes for a successor if there can be one.
fn make(kernel: &mut Kernel, call: &Call, effect: &mut Effect, repeatable: bool) -> i64 {
    if !kernel.masks {
        if !kernel.alone {
            kernel.replica.begin_effect(repeatable);
        }
        let result = execute(kernel, call, effect);
        kernel.made.assert_is(result);
        return result;
    }
    effect.prepare(kernel, call);
    kernel.replica.begin_effect(repeatable || effect.traceable);
    let result = execute(kernel, call, effect);
    kernel.made.assert_is(result);
    effect.note_result(&kernel.report.journal, call, result);
    if effect.traceable {
        kernel.replica.begin_effect(true);
    }
    result
}

/// Says that this replica is inside the host's part of a call, which may take for ever. Only then:
/// a primary that gets lost in the agent itself must be missed like any other.
pub(super) fn in_host<T>(
    kernel: &mut Kernel,
    call: &Call,
    work: impl FnOnce(&mut Kernel) -> T,
) -> T {
    let report = kernel.report;
    report.in_call.store(call.nr + 1, Ordering::Relaxed);
    let result = work(kernel);
    report.in_call.store(0, Ordering::Relaxed);
    result
}

/// Makes the call on the host; what came of it is noted.
fn execute(kernel: &mut Kernel, call: &Call, effect: &mut Effect) -> i64 {
    let result = answer(kernel, call, effect);
    kernel.made.note(result);
    made::assert_possible(call, call.what, result);
    result
}

/// What the host, or the agent in its stead, answers to the call.
fn answer(kernel: &mut Kernel, call: &Call, effect: &mut Effect) -> i64 {
    if deferred::is_active() {
        // It has taken over from a lost primary: from here on the host touches its memory.
        deferred::settle_all();
        processes::release_twin(kernel);
    }
    if let Some(result) = in_host(kernel, call, |kernel| processes::execute(kernel, call)) {
        return result;
    }
    effect.leave_to_host(kernel);
    if let Some(result) = credentials::refused(call) {
        return result;
    }
    if let Some(result) = processes::jobs::background(kernel, call) {
        return result;
    }
    if let Some(result) = status::open(kernel, call) {
        return result;
    }
    if let Some(result) = acting::conceal(call) {
        return result;
    }
    if let Some(result) = processes::terminals::open_own(kernel, call) {
        return result;
    }
    let recorded = |kernel: &mut Kernel| effect.record(kernel, call);
    if let Some(result) = in_host(kernel, call, recorded) {
        return result;
    }
    let mut args = host_arguments(call);
    paths::substitute(kernel.processes.pid, call, &mut args);
    if let Some(result) = processes::busy::refusal(call, &args) {
        return result;
    }
    match effect.redirect(kernel, call, &mut args) {
        Ok(()) => {
            let result = on_host(kernel, call, args);
            effect.complete(kernel, call, result)
        }
        Err(Fault) => Fault::RESULT,
    }
}

/// Makes the call on the host with these arguments.
pub(super) fn on_host(kernel: &mut Kernel, call: &Call, args: [u64; 6]) -> i64 {
    kernel.made.assert_nothing_done();
    let result = made_on_host(kernel, call, args);
    if !kernel.made.is(result) {
        // An error, or a word of the agent's own instead. What a flip makes negative is far below.
        let deliberate = (2 * blocking::PARTIAL..0).contains(&result);
        assert!(deliberate, "a result is what the host gave");
        kernel.made.note(result);
    }
    result
}

fn made_on_host(kernel: &mut Kernel, call: &Call, args: [u64; 6]) -> i64 {
    if agreed::is_voted(kernel, call) {
        rseq::after_calls();
    }
    if !call.what.blocking {
        let result = in_host(kernel, call, |kernel| now(kernel, call, &args));
        return move_rest(kernel, call, args, result);
    }
    kernel.begun = blocking::is_timed(call).then(sys::monotonic);
    if kernel.threads.must_not_block() || outgoing::looks(kernel, call.what) {
        if agreed::is_voted(kernel, call) {
            agreed::check(kernel, call);
        }
        let attempt = |kernel: &mut Kernel| blocking::attempt(kernel, call, &args);
        if let Some(result) = in_host(kernel, call, attempt) {
            kernel.made.note(result);
            return result;
        }
    }
    let result = wait_in_host(kernel, call, args);
    refused_terminal(kernel, call, result)
}

/// Makes the call with these arguments; a signal ends one that waits.
fn now(kernel: &mut Kernel, call: &Call, args: &[u64; 6]) -> i64 {
    if agreed::is_voted(kernel, call) {
        return agreed::make(kernel, call, args);
    }
    // SAFETY: the program's own call. Its buffers are its own memory, its time may be a copy, and
    // the table lets no call through that changes mappings, signal handling or the agent's state.
    let result = unsafe {
        if call.what.blocking {
            interruptible_call(call.nr, args)
        } else {
            rcoe_linux_sys::syscall6(call.nr, *args)
        }
    };
    kernel.made.note(result);
    result
}

/// Makes a call that may wait, until a signal comes that the program acts on.
fn wait_in_host(kernel: &mut Kernel, call: &Call, mut args: [u64; 6]) -> i64 {
    // The host writes what is left of a time, also if the call then goes on elsewhere.
    let rest = blocking::rest_of_time(call);
    let mut time = [0_u64; 2];
    kernel.settle_debt();
    if let Some(rest) = rest {
        match guest::read(rest.address) {
            Ok(asked) => time = asked,
            Err(Fault) => return Fault::RESULT,
        }
        args[rest.argument] = (&raw mut time) as u64;
    }
    let result = loop {
        if signals::must_interrupt(kernel) {
            break if blocking::would_wait(call) {
                signals::before_begun(kernel)
            } else {
                NOT_BEGUN
            };
        }
        // What has come before the call, unheeded, may still be what it waits for.
        if signals::has_arrived(kernel) || reintegration::is_due(kernel) {
            return NEWS;
        }
        let result = in_host(kernel, call, |kernel| now(kernel, call, &args));
        if result > 0 {
            let moved = move_rest(kernel, call, args, result);
            break unless_cut(kernel, call, moved);
        }
        if result == NOT_BEGUN {
            continue;
        }
        if result != sys::error(EINTR) || signals::must_interrupt(kernel) {
            break result;
        }
        // Called away for nothing that the program acts on. A time must not begin anew.
        if kernel.begun.is_some() {
            return PARKED;
        }
    };
    if let Some(rest) = rest {
        let _ = guest::write(rest.address, &time);
    }
    result
}

/// Primary, with the result of a call that has sent: if that is less than it would be, because this
/// replica was called away for nothing that the program acts on, the rest is to be sent when there
/// is room.
pub(super) fn unless_cut(kernel: &mut Kernel, call: &Call, result: i64) -> i64 {
    let is_part = |sent: u64| sent > 0 && signals::is_called() && blocking::sends_more(call, sent);
    if u64::try_from(result).is_ok_and(is_part) && !signals::must_interrupt(kernel) {
        blocking::PARTIAL - result
    } else {
        result
    }
}

/// Primary, with the result of a call that moves bytes between files: goes on with it if this
/// replica was called away for nothing that the program acts on.
fn move_rest(kernel: &mut Kernel, call: &Call, mut args: [u64; 6], first: i64) -> i64 {
    /// As many as the host moves at a time.
    const MOST: u64 = i32::MAX as u64 & !0xfff;
    if !signals::is_called() {
        return first;
    }
    let Some((len, at_once)) = blocking::moved_by(call) else {
        return first;
    };
    let total = args[len].min(MOST);
    let (mut moved, mut result) = (0, first);
    loop {
        moved += result.max(0).cast_unsigned();
        let cut = result > 0 && moved < total || result == sys::error(EINTR);
        if !cut || !signals::is_called() || signals::must_interrupt(kernel) {
            break;
        }
        args[len] = total - moved;
        if let Some((flags, bit)) = at_once {
            args[flags] |= bit;
        }
        result = in_host(kernel, call, |kernel| {
            agreed::altered(kernel, call, |kernel| now(kernel, call, &args))
        });
    }
    if moved > 0 {
        result = moved.cast_signed();
    }
    kernel.made.note(result);
    result
}

/// Arguments as the host must see them: in their true width, without the virtual signal mask.
fn host_arguments(call: &Call) -> [u64; 6] {
    use rcoe_linux_syscalls::Special;
    let mut args = call.raw;
    match call.what.special {
        Special::Ppoll => args[3] = 0,
        Special::Pselect6 => args[5] = 0,
        Special::EpollPwait => args[4] = 0,
        _ => {}
    }
    args
}

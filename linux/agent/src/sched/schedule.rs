//! When a thread gives way, and what goes on until the next one runs.
//!
//! A thread gives way when its call cannot go on or its slice is over. Then the outside is looked
//! at: the primary polls what the waiting threads wait for, and all replicas wake the same ones
//! from what it publishes. While somebody is ready that look does not wait, and is taken only now
//! and then; when nobody is, it lasts until something happens.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general::{FUTEX_LOCK_PI, FUTEX_LOCK_PI2};
use rcoe_linux_syscalls::{Special, Waits};

use crate::arch::context;
use crate::arch::entry::{NOT_BEGUN, TrapFrame};
use crate::calls::{Call, PARKED, outgoing, perform, points, signals, targets};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::protocol::transfer::{Outcome, agree_all};
use crate::recover::reintegration;
use crate::sched::blocking;
use crate::sched::polled::Polled;
use crate::sched::threads::{NEVER, Next, SET_WORDS, Wait};
use crate::sched::turns;
use crate::sys;
use crate::sys::polling::PPOLL;

/// Longest wait for the outside before the primary looks again.
const LONGEST_NS: u64 = 5_000_000_000;

/// `sched_yield`.
pub(crate) fn give_way(kernel: &mut Kernel) -> i64 {
    kernel.threads.give_way();
    kernel.turns.give_way();
    0
}

/// The running thread gives way after `call`, which had this result. Returns once a thread goes on,
/// and whether all its registers changed.
pub(crate) fn leave(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call, result: i64) -> bool {
    if kernel.threads.is_running() {
        kernel.threads.current_mut().call = (call.nr, call.raw);
    }
    if result != PARKED {
        kernel.threads.step_back(Next::Return(result));
    }
    next(kernel, frame)
}

/// The running thread gives way between calls, if another one is ready; or it goes on.
pub(crate) fn preempt(kernel: &mut Kernel, frame: &mut TrapFrame) {
    kernel.threads.step_back(Next::Resume);
    next(kernel, frame);
}

/// Returns once a thread goes on, and whether all its registers changed.
fn next(kernel: &mut Kernel, frame: &mut TrapFrame) -> bool {
    loop {
        look_outside(kernel);
        kernel.threads.dispatch();
        tell_held_up(kernel);
        context::switch(kernel, frame);
        if let Some(all_registers) = go_on(kernel, frame) {
            return all_registers;
        }
    }
}

/// For the supervisor, which notices when nobody gives way. Other processes that share memory may
/// begin to wait at any time, so each turn has slices.
pub(crate) fn tell_held_up(kernel: &mut Kernel) {
    let held_up = kernel.threads.held_up();
    kernel.report.held_up.store(held_up, Ordering::Relaxed);
    let sliced = held_up > 0 || kernel.turns.is_member();
    if sliced {
        points::review(kernel);
    }
    kernel.replica.env_mut().meeting.set_slices(sliced);
}

/// The running thread goes on with its call; `None` if it has to wait again.
fn go_on(kernel: &mut Kernel, frame: &mut TrapFrame) -> Option<bool> {
    let thread = kernel.threads.current();
    if thread.next == Next::Resume {
        signals::deliver_at_point(kernel, frame);
        return Some(true);
    }
    let (nr, raw) = thread.call;
    let call = Call::new(nr, raw).expect("the call has been made before");
    let result = match thread.next {
        Next::Return(result) => result,
        Next::Again => perform(kernel, frame, &call),
        Next::Interrupted => interrupted(kernel, frame, &call),
        Next::Resume => unreachable!("it is in no call"),
    };
    if result == PARKED {
        return None;
    }
    let thread = kernel.threads.current_mut();
    thread.wait = Wait::NOTHING;
    let full = core::mem::take(&mut thread.full);
    frame.cpu.regs.rax = result.cast_unsigned();
    Some(signals::deliver(kernel, frame, &call) || full)
}

/// Result of a call that a signal has interrupted while its thread waited.
fn interrupted(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call) -> i64 {
    if blocking::manner(call) == Waits::Child {
        // The child may have ended that the signal tells of: it is looked for once more.
        kernel.threads.current_mut().wait.expired = true;
        return perform(kernel, frame, call);
    }
    let wait = kernel.threads.current().wait;
    if wait.progress > 0 {
        return wait.progress.cast_signed();
    }
    match call.what.special {
        Special::Futex if matches!(low32(call.arg(1)) & 0x7f, FUTEX_LOCK_PI | FUTEX_LOCK_PI2) => {
            NOT_BEGUN
        }
        Special::Nanosleep => write_rest(kernel, call.arg(1), wait.deadline),
        // An absolute time needs no rest.
        Special::ClockNanosleep if call.arg(1) & 1 == 0 => {
            write_rest(kernel, call.arg(3), wait.deadline)
        }
        _ => {
            blocking::tell_rest(kernel, call);
            sys::error(EINTR)
        }
    }
}

/// How long the interrupted sleep would still have lasted.
fn write_rest(kernel: &mut Kernel, pointer: u64, deadline: u64) -> i64 {
    const SECOND: u64 = 1_000_000_000;
    if pointer != 0 {
        let now = crate::protocol::transfer::agree(kernel, sys::monotonic);
        let left = deadline.saturating_sub(now);
        if guest::write(pointer, &[left / SECOND, left % SECOND]).is_err() {
            return guest::Fault::RESULT;
        }
    }
    sys::error(EINTR)
}

/// Words of a look: time, what has arrived (two), the next turn, an order, what has become of
/// effects that waited, and the set of threads with news.
const WORDS: usize = 6 + SET_WORDS;
/// Effects that waited are out.
const OUT: u64 = 1;
/// They are not, so all are to meet before the wait.
const NOT_OUT: u64 = 2;

/// Wakes whoever the outside has something for; returns with somebody ready. While nobody is, other
/// processes that share memory have their turns.
fn look_outside(kernel: &mut Kernel) {
    loop {
        let idle = !kernel.threads.someone_ready();
        let due = idle
            || kernel.threads.someone_waits_outside() && kernel.threads.look_is_due()
            || signals::is_due(kernel);
        if !due {
            return;
        }
        let away = idle && kernel.turns.is_member();
        if away {
            turns::release(kernel);
        }
        kernel.enter(PPOLL);
        let words = agree_all::<WORDS>(kernel, true, |kernel| look(kernel, idle));
        let [now, due, taken, turn, order, effects, ref set @ ..] = words;
        match effects {
            OUT => outgoing::went_out(kernel),
            NOT_OUT => kernel.rendezvous(),
            _ => {}
        }
        kernel.orders.take(order);
        if away {
            turns::begin(kernel, turn);
        }
        kernel.threads.wake_set(set);
        kernel.threads.expire(now);
        signals::take(
            kernel,
            Outcome {
                result: 0,
                due,
                taken,
                order: 0,
            },
        );
        reintegration::carry_out(kernel);
    }
}

/// Primary: what has happened outside; if `idle`, waits until something has.
fn look(kernel: &mut Kernel, idle: bool) -> [u64; WORDS] {
    let mut polled = Polled::gather(&kernel.threads);
    let mut words = [0; WORDS];
    if idle && kernel.outgoing.is_open() {
        words[5] = if outgoing::before_wait(kernel) {
            OUT
        } else {
            NOT_OUT
        };
    }
    if idle && words[5] != NOT_OUT {
        kernel.report.in_call.store(PPOLL + 1, Ordering::Relaxed);
        wait(kernel, &mut polled);
        kernel.report.in_call.store(0, Ordering::Relaxed);
    } else {
        polled.now();
    }
    words[0] = sys::monotonic();
    [words[1], words[2]] = signals::collect(kernel);
    words[4] = kernel.orders.next(kernel.control);
    if idle && kernel.turns.is_member() {
        words[3] = turns::claim(kernel);
        words[4] = reintegration::next_at_turn(kernel, words[3]);
    }
    polled.ready(&kernel.threads, &mut words[6..]);
    words
}

/// Waits until something has happened outside, or somebody waits for this group's turn. After a
/// while it returns all the same: with a flip in a register it may have asked the host for
/// something else, and asks anew then.
fn wait(kernel: &mut Kernel, polled: &mut Polled) {
    kernel.settle_debt();
    loop {
        if targets::must_wake(kernel) || turns::is_owed(kernel) {
            return;
        }
        let earliest = kernel.threads.earliest();
        let earliest = (earliest != NEVER).then(|| earliest.saturating_sub(sys::monotonic()));
        let timeout = Some(earliest.unwrap_or(LONGEST_NS).min(LONGEST_NS));
        let interrupted = if !kernel.turns.is_member() {
            polled.wait(timeout)
        } else if polled.is_empty() {
            turns::idle(kernel, timeout, None::<fn() -> bool>)
        } else {
            turns::idle(kernel, timeout, Some(|| polled.wait(timeout)))
        };
        // What the program does not act upon is taken, too: the supervisor's queue has an end.
        if !interrupted || signals::has_arrived(kernel) {
            return;
        }
    }
}

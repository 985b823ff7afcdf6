//! How the program is scheduled, as it sees it: affinity, policy, priority, clocks of CPU time.
//!
//! Where replicas run is the supervisor's business. The mask that a thread sets is kept and shown,
//! and does nothing. Threads are the agent's own, so the host does not know their ids: what
//! concerns one of them is asked of the replica's only kernel thread.
//!
//! Not covered: changing the scheduling of other processes, groups and users, and CPU time of a
//! single thread, which reads as that of all.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EINVAL, ESRCH};
use linux_raw_sys::general::{PRIO_PGRP, PRIO_PROCESS, PRIO_USER};
use rcoe_linux_syscalls::Special;

use crate::calls::memory::local;
use crate::calls::{Call, io};
use crate::convert;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sched::threads::MASK_WORDS;
use crate::sys;

/// CPUs, one bit each.
type Mask = [u64; MASK_WORDS];

/// The thread that argument `index` names; `None` if it is not one of this process.
fn named(kernel: &Kernel, call: &Call, index: usize) -> Option<usize> {
    match convert::low32(call.arg(index)) {
        0 => Some(kernel.threads.current_slot()),
        id => kernel.threads.find(id),
    }
}

/// A question about the program itself is for each replica, one about another process for the
/// primary. `index`: the argument that tells.
pub(super) fn ask(kernel: &mut Kernel, call: &Call, index: usize) -> i64 {
    match named(kernel, call, index) {
        Some(_) => local(call.nr, of_self(call, index).raw),
        None => io::input(kernel, call),
    }
}

/// What changes the scheduling of the program itself; that of other processes it cannot.
pub(super) fn change(kernel: &Kernel, call: &Call, index: usize) -> i64 {
    match named(kernel, call, index) {
        Some(_) => local(call.nr, of_self(call, index).raw),
        None => sys::error(ESRCH),
    }
}

/// `sched_setparam` and `sched_setscheduler`: no process has a number below zero.
pub(super) fn change_policy(kernel: &Kernel, call: &Call) -> i64 {
    match convert::low32(call.arg(0)).cast_signed() {
        ..0 => sys::error(EINVAL),
        0.. => change(kernel, call, 0),
    }
}

/// `getpriority`. Of a group or a user the primary asks: replicas that ask one after the other may
/// be told of what one of them has changed meanwhile.
pub(super) fn ask_priority(kernel: &mut Kernel, call: &Call) -> i64 {
    match convert::low32(call.arg(0)) {
        PRIO_PROCESS => ask(kernel, call, 1),
        _ => io::input(kernel, call),
    }
}

/// `setpriority`: each replica has the one that it would have without the others. Groups and users
/// have processes that are not this one, among them those of rcoe.
pub(super) fn change_priority(kernel: &Kernel, call: &Call) -> i64 {
    match convert::low32(call.arg(0)) {
        PRIO_PROCESS => change(kernel, call, 1),
        PRIO_PGRP | PRIO_USER => sys::error(ESRCH),
        _ => sys::error(EINVAL),
    }
}

/// `ioprio_get`.
pub(super) fn ask_io(kernel: &mut Kernel, call: &Call) -> i64 {
    match call.arg(0) {
        OF_PROCESS => ask(kernel, call, 1),
        _ => io::input(kernel, call),
    }
}

/// `ioprio_set`: each replica has the priority that it would have without the others.
pub(super) fn change_io(kernel: &Kernel, call: &Call) -> i64 {
    match call.arg(0) {
        OF_PROCESS => change(kernel, call, 1),
        _ => sys::error(ESRCH),
    }
}

/// Priorities of input and output are asked for, or set, of one process.
const OF_PROCESS: u64 = 1;

/// The same call for whoever makes it.
fn of_self(call: &Call, index: usize) -> Call {
    let mut call = *call;
    call.raw[index] = 0;
    call
}

/// The program runs on one CPU, the lowest that the thread may use.
pub(super) fn getcpu(kernel: &Kernel, call: &Call) -> i64 {
    let mask = mask(kernel, kernel.threads.current_slot());
    let word = mask.iter().position(|word| *word != 0).unwrap_or(0);
    let cpu = convert::low32(word as u64) * 64 + mask[word].trailing_zeros() % 64;
    for (pointer, value) in [(call.arg(0), cpu), (call.arg(1), 0)] {
        if pointer != 0 && guest::write(pointer, &value).is_err() {
            return Fault::RESULT;
        }
    }
    0
}

/// The mask rcoe was started with, not the replica's own core.
fn given(kernel: &Kernel) -> Mask {
    core::array::from_fn(|i| kernel.control.affinity[i].load(Ordering::Relaxed))
}

/// The mask that the thread in this slot sees.
pub(super) fn mask(kernel: &Kernel, slot: usize) -> Mask {
    let own = kernel.threads.at(slot).affinity;
    if own == [0; MASK_WORDS] {
        given(kernel)
    } else {
        own
    }
}

/// `sched_getaffinity`.
pub(super) fn get_affinity(kernel: &mut Kernel, call: &Call) -> i64 {
    let Some(slot) = named(kernel, call, 0) else {
        return io::input(kernel, call);
    };
    // The kernel gives as many words as it supports CPUs; a mask without them is too short.
    let last = given(kernel).iter().rposition(|word| *word != 0);
    let used = last.map_or(1, |last| last + 1);
    let room = convert::size(call.arg(1) / 8);
    if !call.arg(1).is_multiple_of(8) || room < used {
        return sys::error(EINVAL);
    }
    for (i, word) in mask(kernel, slot)[..used].iter().enumerate() {
        if guest::write(call.arg(2) + 8 * i as u64, word).is_err() {
            return Fault::RESULT;
        }
    }
    i64::try_from(used * 8).expect("at most 128")
}

/// `sched_setaffinity`.
pub(super) fn set_affinity(kernel: &mut Kernel, call: &Call) -> i64 {
    let Some(slot) = named(kernel, call, 0) else {
        return sys::error(ESRCH);
    };
    let mut mask = [0; MASK_WORDS];
    for (i, word) in mask.iter_mut().enumerate() {
        let bytes = call.arg(1).saturating_sub(8 * i as u64).min(8);
        let mut wanted = [0; 8];
        let wanted = &mut wanted[..convert::size(bytes)];
        if guest::copy_in(wanted, call.arg(2).wrapping_add(8 * i as u64)).is_err() {
            return Fault::RESULT;
        }
        *word = wanted
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    for (word, given) in mask.iter_mut().zip(given(kernel)) {
        *word &= given;
    }
    if mask == [0; MASK_WORDS] {
        return sys::error(EINVAL);
    }
    kernel.threads.get(slot).affinity = mask;
    0
}

/// Input calls that name the program by an id, as the host would have to know them; `None` if the
/// call is right as it is.
pub(super) fn translate(kernel: &Kernel, call: &Call) -> Option<Call> {
    match call.what.special {
        Special::SchedRrGetInterval => named(kernel, call, 0).map(|_| of_self(call, 0)),
        Special::CpuClock => {
            let clock = own_clock(kernel, convert::low32(call.arg(0)).cast_signed())?;
            let mut call = *call;
            call.raw[0] = clock;
            Some(call)
        }
        _ => None,
    }
}

/// The clock of the caller's own CPU time, if this one is that of the program or of its threads.
fn own_clock(kernel: &Kernel, clock: i32) -> Option<u64> {
    /// The clock is an open file.
    const OF_FILE: i32 = 3;
    const OF_THREAD: i32 = 4;
    const PROCESS_TIME: u64 = 2;
    const THREAD_TIME: u64 = 3;
    if clock >= 0 || clock & 3 == OF_FILE {
        return None;
    }
    let id = (!(clock >> 3)).cast_unsigned();
    if clock & OF_THREAD != 0 {
        let own = id == 0 || kernel.threads.find(id).is_some();
        return own.then_some(THREAD_TIME);
    }
    (id == 0 || id == kernel.processes.pid).then_some(PROCESS_TIME)
}

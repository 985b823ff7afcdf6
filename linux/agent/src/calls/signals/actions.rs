//! What the program asks for beforehand: actions, masks and alternate stacks.

use linux_raw_sys::errno::{EINVAL, ENOMEM};

use crate::arch::faults::bit;
use crate::calls::signals::targets::{own_of_mut, publish, rouse};
use crate::calls::signals::{Action, Effect, SS_DISABLE, UNSTOPPABLE, valid_signal};
use crate::calls::{Call, points};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sys;

/// `rt_sigaction`.
pub(in crate::calls) fn sigaction(kernel: &mut Kernel, call: &Call) -> i64 {
    let Some(signal) = valid_signal(call.arg(0)) else {
        return sys::error(EINVAL);
    };
    if call.arg(3) != 8 || (call.arg(1) != 0 && bit(signal) & UNSTOPPABLE != 0) {
        return sys::error(EINVAL);
    }
    let new = if call.arg(1) == 0 {
        None
    } else {
        Some(guest::read::<Action>(call.arg(1)))
    };
    let old = kernel.signals.actions[signal as usize];
    if call.arg(2) != 0 && guest::write(call.arg(2), &old).is_err() {
        return Fault::RESULT;
    }
    match new {
        Some(Ok(action)) => {
            kernel.signals.actions[signal as usize] = action;
            if kernel.signals.effect(signal) == Effect::Nothing {
                discard(kernel, bit(signal));
            }
            publish(kernel);
            points::review(kernel);
            0
        }
        Some(Err(Fault)) => Fault::RESULT,
        None => 0,
    }
}

/// These signals are pending for nobody any more.
pub(super) fn discard(kernel: &mut Kernel, set: u64) {
    kernel.signals.shared &= !set;
    for slot in 0..kernel.threads.used() {
        own_of_mut(kernel, slot).pending &= !set;
    }
    kernel.signals.pending.discard(set);
}

/// `rt_sigprocmask`.
pub(in crate::calls) fn sigprocmask(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(3) != 8 {
        return sys::error(EINVAL);
    }
    let old = kernel.signals.own.mask;
    if call.arg(1) != 0 {
        let Ok(set) = guest::read::<u64>(call.arg(1)) else {
            return Fault::RESULT;
        };
        let new = match call.arg(0) {
            0 => old | set,
            1 => old & !set,
            2 => set,
            _ => return sys::error(EINVAL),
        };
        kernel.signals.own.mask = new & !UNSTOPPABLE;
        publish(kernel);
        if kernel.signals.shared != 0 {
            rouse(kernel);
        }
    }
    if call.arg(2) != 0 && guest::write(call.arg(2), &old).is_err() {
        return Fault::RESULT;
    }
    0
}

/// `rt_sigpending`.
pub(in crate::calls) fn sigpending(kernel: &mut Kernel, call: &Call) -> i64 {
    crate::calls::signals::look_outside(kernel);
    let signals = &kernel.signals;
    let set = (signals.shared | signals.own.pending) & signals.own.mask;
    match guest::write(call.arg(0), &set) {
        Ok(()) => 0,
        Err(Fault) => Fault::RESULT,
    }
}

/// `sigaltstack`.
pub(in crate::calls) fn sigaltstack(kernel: &mut Kernel, call: &Call, pointer: u64) -> i64 {
    /// The smallest stack the kernel accepts.
    const MINSIGSTKSZ: u64 = 2048;
    const SS_ONSTACK: u64 = 1;
    const SS_AUTODISARM: u64 = 1 << 31;
    let mut old = kernel.signals.own.stack;
    let [base, flags, size] = old;
    let on_stack =
        flags & SS_AUTODISARM == 0 && pointer > base && pointer <= base.saturating_add(size);
    if on_stack {
        old[1] |= SS_ONSTACK;
    }
    if call.arg(0) != 0 {
        let Ok(new) = guest::read::<[u64; 3]>(call.arg(0)) else {
            return Fault::RESULT;
        };
        let flags = new[1] & 0xffff_ffff;
        if on_stack {
            return sys::error(linux_raw_sys::errno::EPERM);
        }
        let mode = flags & !SS_AUTODISARM;
        if ![0, SS_ONSTACK, SS_DISABLE].contains(&mode) {
            return sys::error(EINVAL);
        }
        if mode != SS_DISABLE && new[2] < MINSIGSTKSZ {
            return sys::error(ENOMEM);
        }
        if mode != SS_DISABLE && guest::meets_reserved(new[0], new[2]) {
            return sys::error(ENOMEM);
        }
        kernel.signals.own.stack = if mode == SS_DISABLE {
            [0, SS_DISABLE, 0]
        } else {
            [new[0], flags & SS_AUTODISARM, new[2]]
        };
    }
    if call.arg(1) != 0 && guest::write(call.arg(1), &old).is_err() {
        return Fault::RESULT;
    }
    0
}

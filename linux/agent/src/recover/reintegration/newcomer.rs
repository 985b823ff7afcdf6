//! Where a newcomer is waited for after all.
//!
//! A newcomer follows the group at its own pace. That is not enough where each replica does
//! something with an open file by itself, maps it or reads it: the primary may change or close the
//! file next, and members are in step there by a vote, of which a newcomer has no part. So it tells
//! how far it is, and the primary waits for that, for a while; whether it has come is published,
//! and one that has not gives up.
//!
//! Contract: called by all replicas alike, at a point of the trace.

use core::sync::atomic::Ordering;

use rcoe_linux_abi::Report;

use crate::kernel::Kernel;
use crate::memory::regions;
use crate::protocol::meeting::is_over;
use crate::protocol::transfer::agree;
use crate::{convert, sys};

/// Longest wait.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Rounds of yielding before a sleep.
const YIELDS: u32 = 200;
/// Longest sleep before looking whether it still lives.
const LOOK_NS: u64 = 2_000_000;

/// All replicas, after each has done something that the primary's next effect could change: no
/// member goes on before the newcomer, if there is one, has done it too.
pub(crate) fn wait_for(kernel: &mut Kernel) {
    let Some(newcomer) = kernel.replica.newcomer() else {
        return;
    };
    let step = kernel.replica.records() + 1;
    if kernel.replica.is_newcomer() {
        kernel.report.step.store(step, Ordering::Release);
        sys::futex_wake(kernel.report.step.as_ptr().cast());
    }
    let report = regions::report(regions::own_group(), newcomer.index());
    let timeout = kernel.control.timeout_ns.load(Ordering::Relaxed);
    let patience = timeout.min(PATIENCE_NS);
    let serial = kernel.orders.copied;
    let came = agree(kernel, || u64::from(comes(report, serial, step, patience)));
    if came == 0 {
        give_up(kernel);
    }
}

/// Primary: waits until the newcomer has come so far; false if it does not.
fn comes(report: &Report, serial: u32, step: u64, patience: u64) -> bool {
    let end = sys::monotonic() + patience;
    for round in 0_u32.. {
        let seen = report.step.load(Ordering::Acquire);
        if seen == step {
            return true;
        }
        if round < YIELDS {
            sys::sched_yield();
            continue;
        }
        if is_over(report, serial) || sys::monotonic() > end {
            return false;
        }
        let word = report.step.as_ptr().cast::<u32>().cast_const();
        sys::futex_wait(word, convert::low32(seen), LOOK_NS);
    }
    false
}

/// Before something for which a newcomer cannot be waited for: it ends here, members go on.
pub(crate) fn give_up(kernel: &mut Kernel) {
    if kernel.replica.is_newcomer() {
        let halt = kernel.replica.give_up();
        kernel.park(halt);
    }
}

//! Asking the supervisor.
//!
//! A request is a [`Letter`] in this replica's own region and a call of the one doorbell: two words
//! of memory and a wake-up, which no change of what this process is, or may do, can prevent.
//!
//! Contract: whoever waits for an answer calls again after every vain look, so that a call that
//! gets lost costs time only; and it ends if the supervisor is gone.

use core::sync::atomic::Ordering;

use rcoe_linux_abi::arena::{CLAIMS_ADDR, DOORBELL_OFFSET};
use rcoe_linux_abi::{Ask, Control, Doorbell, Letter, Request};

use crate::kernel::Kernel;
use crate::sys;

/// Longest sleep before looking again whether an answer has come.
pub(crate) const LOOK_NS: u64 = 100_000_000;

/// Asks for the supervisor's attention: something in this replica's region is to be looked at.
pub(crate) fn call() {
    // SAFETY: mapped for good before anything else runs; an atomic word.
    let bell = unsafe { &*((CLAIMS_ADDR + DOORBELL_OFFSET) as *const Doorbell) };
    bell.0.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(bell.0.as_ptr());
}

/// Asks for something that is not numbered among the group's requests.
pub(crate) fn tell(letter: &Letter, ask: Ask) {
    letter.post(Request {
        number: letter.number().wrapping_add(1).max(1),
        attempt: 0,
        ask,
        enclosed: [0; 3],
    });
    call();
}

/// Asks, and waits until the supervisor has answered this process.
pub(crate) fn answer(kernel: &Kernel, request: Request) -> i64 {
    let control = kernel.control;
    let own = sys::getpid();
    loop {
        kernel.report.wish.post(request);
        call();
        loop {
            let bell = control.bell.load(Ordering::Acquire);
            if let Some(answer) = answered(control, own, request) {
                return answer;
            }
            if !wait(control, bell) {
                break;
            }
        }
    }
}

/// The answer to this request, if there is one. An answer to a lost primary is none: what it was
/// given may be gone.
fn answered(control: &Control, own: u32, request: Request) -> Option<i64> {
    let is_it = control.answered_to.load(Ordering::Acquire) == own
        && control.answered_attempt.load(Ordering::Acquire) == u32::from(request.attempt)
        && control.answered.load(Ordering::Acquire) == request.number;
    is_it.then(|| control.answer.load(Ordering::Relaxed).cast_signed())
}

/// Waits until the supervisor rings, or for a while; returns whether it has rung.
pub(crate) fn wait(control: &Control, bell: u32) -> bool {
    sys::futex_wait_any(&[(control.bell.as_ptr().cast_const(), bell)], LOOK_NS);
    let rung = control.bell.load(Ordering::Acquire) != bell;
    if !rung {
        sys::leave_if_orphaned(control.supervisor.load(Ordering::Relaxed));
    }
    rung
}

//! Asking the supervisor.
//!
//! A request is a [`Letter`] in this replica's own region and a call of the one doorbell: two words
//! of memory and a wake-up, which no change of what this process is, or may do, can prevent.
//!
//! Contract: whoever waits for an answer calls again after every vain look, so that a call that
//! gets lost costs time only; and it ends if the supervisor is gone. An answer that does not come
//! is waited for a bounded number of looks ([`Looks`]), and where it is looked for is found anew
//! each time: a register that was hit is no reason to wait for ever.

use core::sync::atomic::Ordering;

use rcoe_linux_abi::arena::{CLAIMS_ADDR, DOORBELL_OFFSET};
use rcoe_linux_abi::{Ask, Control, Doorbell, Letter, Request};

use crate::memory::regions;
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

/// How long it is waited at least before a wait has failed, in ns.
const LEAST_NS: u64 = 10_000_000_000;

/// Looks at something that is about to come: a bounded number of them may be in vain. They are
/// counted, and not the time, since this process may be stopped meanwhile.
pub(crate) struct Looks {
    each_ns: u64,
    left: u64,
    /// When the last one was counted.
    last_ns: u64,
}

impl Looks {
    /// As many as take the cap on the wall clock, if each takes so many ns.
    pub(crate) fn new(each_ns: u64) -> Self {
        let control = regions::control(regions::own_group());
        let cap = control.wall_cap_ns.load(Ordering::Relaxed);
        Self {
            each_ns,
            left: cap.max(LEAST_NS) / each_ns,
            last_ns: sys::monotonic(),
        }
    }

    /// One was in vain. One that a signal cut short does not count.
    ///
    /// # Panics
    /// If it was the last: `what` has not come.
    pub(crate) fn count(&mut self, what: &str) {
        let now = sys::monotonic();
        if now.saturating_sub(self.last_ns) < self.each_ns {
            return;
        }
        assert!(self.left > 0, "{what} did not come");
        self.left -= 1;
        self.last_ns = now;
    }
}

/// Asks, and waits until the supervisor has answered this process.
///
/// # Panics
/// If it does not answer. A program that is to stop is answered when it is to go on, whenever that
/// is.
pub(crate) fn answer(request: Request) -> i64 {
    let mut looks = Looks::new(LOOK_NS);
    loop {
        if let Some(answer) = look(request) {
            return answer;
        }
        if let Some(report) = regions::own_report() {
            report.asked_again.fetch_add(1, Ordering::Relaxed);
        }
        if !matches!(request.ask, Ask::Stop { .. }) {
            looks.count("the supervisor's answer");
        }
    }
}

/// Asks, and looks for the answer until the supervisor rings no more.
#[inline(never)]
fn look(request: Request) -> Option<i64> {
    let own = sys::getpid();
    regions::own_report()?.wish.post(request);
    call();
    loop {
        let control = regions::control(regions::own_group());
        let bell = control.bell.load(Ordering::Acquire);
        let answer = answered(control, own, request);
        if answer.is_some() || !wait(control, bell) {
            return answer;
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

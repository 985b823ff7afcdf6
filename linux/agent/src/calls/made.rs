//! What the host has come to, noted where it comes out.
//!
//! Intuition: all replicas take the primary's word for what came of a call. On its way from the
//! host to them it lies in one register for some hundred instructions, and so does the answer to
//! the question whether the call was made at all. A flip there would be agreed on by everyone: a
//! length that is none, an effect made twice, input taken out twice and lost once. So the result
//! stands in memory, too, right after the call, and both must be the same when it is published; and
//! nothing is made while that memory says that it was.
//!
//! Contract: [`Made::begin`] at the start of each call, [`Made::note`] where a result comes out or
//! is deliberately turned into another, [`Made::assert_nothing_done`] before the host is asked. A
//! primary that meets a difference gives itself up, and the call counts as begun: a successor finds
//! out what came of it, two replicas stop.
//!
//! Of a voted call the result comes out twice ([`crate::arch::rseq::Twice`]): one is noted, the
//! other one goes its way.
//!
//! Not covered: the moment before the result is copied, except by results that are impossible
//! ([`assert_possible`]); of calls that are not voted, the few instructions until it is noted;
//! replicas without siblings.

use core::sync::atomic::{AtomicI64, Ordering};

use rcoe_linux_syscalls::{Arg, Content, Resolved, Valid, Waits};

use crate::calls::Call;
use crate::sys::numbers::MSG_TRUNC;

/// The noted result of the present call. Atomic only so that it is read from where it stands.
pub(crate) struct Made(AtomicI64);

impl Made {
    /// Nothing came out yet. Far from every result by more than a bit, and short: one instruction
    /// stores it.
    const NOTHING: i64 = -0x5555_5556;

    pub(crate) const fn new() -> Self {
        Self(AtomicI64::new(Self::NOTHING))
    }

    /// A call begins.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        self.0.store(Self::NOTHING, Ordering::Relaxed);
    }

    /// This came out.
    #[inline(always)]
    pub(crate) fn note(&self, result: i64) {
        self.0.store(result, Ordering::Relaxed);
    }

    /// Is this what came out?
    #[inline]
    pub(crate) fn is(&self, result: i64) -> bool {
        self.noted() == result
    }

    /// What came out.
    #[inline(always)]
    pub(crate) fn noted(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// # Panics
    /// Something else came out.
    #[inline(always)]
    pub(crate) fn assert_is(&self, result: i64) {
        assert!(self.is(result), "a result is what the host gave");
    }

    /// # Panics
    /// The host has made the present call.
    #[inline]
    pub(crate) fn assert_nothing_done(&self) {
        assert!(self.noted() < 0, "a call is made once");
    }
}

/// # Panics
/// The host never tells of more bytes than it was given room or content for.
#[inline(always)]
pub(crate) fn assert_possible(call: &Call, what: &Resolved, result: i64) {
    let (Arg::InBuf { len_arg }
    | Arg::OutBuf {
        len_arg,
        valid: Valid::Ret,
    }) = what.args[1]
    else {
        return;
    };
    let length = what.canonical(usize::from(len_arg), &call.raw);
    let within = result < 0 || result.cast_unsigned() <= length;
    assert!(
        within || !counts(call),
        "no more than the whole buffer is moved"
    );
}

/// Does the result count the bytes of the buffer that the second argument names?
#[cold]
fn counts(call: &Call) -> bool {
    match call.what.facts.waits {
        Waits::Read | Waits::Write | Waits::Send(_) => true,
        Waits::Receive(flags) => call.arg(usize::from(flags)) & MSG_TRUNC == 0,
        _ => call.what.facts.content != Content::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = 0;
    const RECVFROM: u64 = 45;
    const GETXATTR: u64 = 191;

    fn possible(nr: u64, raw: [u64; 6], result: i64) -> bool {
        let call = Call::new(nr, raw).expect("known");
        std::panic::catch_unwind(|| assert_possible(&call, call.what, result)).is_ok()
    }

    #[test]
    fn no_more_is_read_than_there_is_room() {
        let read = [3, 0x1000, 64, 0, 0, 0];
        assert!(
            [-11, 0, 64]
                .iter()
                .all(|result| possible(READ, read, *result))
        );
        assert!(!possible(READ, read, 65));
    }

    #[test]
    fn some_calls_tell_of_more_than_they_fill() {
        let [mut whole, cut] = [[3, 0x1000, 64, MSG_TRUNC, 0, 0]; 2];
        whole[3] = 0;
        assert!(possible(RECVFROM, cut, 100) && !possible(RECVFROM, whole, 100));
        assert!(possible(GETXATTR, [1, 2, 3, 0, 0, 0], 10));
    }

    #[test]
    fn a_call_is_made_once() {
        let made = Made::new();
        made.assert_nothing_done();
        made.note(-4);
        made.assert_nothing_done();
        made.note(0);
        assert!(made.is(0) && !made.is(1));
        assert!(std::panic::catch_unwind(|| made.assert_nothing_done()).is_err());
        made.begin();
        made.assert_nothing_done();
    }
}

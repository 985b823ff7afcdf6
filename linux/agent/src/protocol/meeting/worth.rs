//! When a point is worth what it costs: slices that are as long as need be.
//!
//! Intuition: while replicas agree on a point all of them stand still or search, and a program
//! whose threads compute gets nothing for that. So where no length is asked for, a slice lasts so
//! long that agreeing takes a small part of it ([`SHARE`]), by what agreeing took lately, but never
//! longer than what others can wait for ([`Share::soon`]). Who waits in a loop for another thread
//! loses nothing by a point, however, and gains what it waits for. It is known by its registers:
//! twice the same ones, with no call in between.
//!
//! What a replica that is behind has to catch up with is no price of a point: without one all would
//! wait for it later. Were it counted, the slice after a long one would be longer still, as the
//! slower replica is further behind at its end, and so on without end.
//!
//! Contract: only the primary asks, before it begins. All that follows from an answer is how soon
//! others have their turn.
//!
//! Not covered: loops that count how long they wait; they are taken for work.

use core::sync::atomic::Ordering;

use rcoe_linux_abi::Control;

/// A slice takes so many times as long as to agree on its end.
const SHARE: Share = Share {
    usual: 32,
    soon: 100,
    part: 1,
};
/// Less if a signal has come, which the program has a handler for because it cannot wait.
const SHARE_OF_SIGNALS: Share = Share {
    usual: 2,
    soon: 2,
    part: 4,
};
/// A replica that is behind goes on by so much in that many times as long, at worst, as others
/// compute on its CPU as well.
const CONTENDED: u64 = 2;
/// What to agree takes as long as that is not known, in ns; and where replicas share CPUs, so that
/// each waits while others search.
const GUESS_NS: u64 = 10_000_000;
const CROWDED_NS: u64 = 10 * GUESS_NS;
/// Looks are not closer to each other, in ns.
const SOON_NS: u64 = 1_000_000;

/// What is there to be done between calls, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Nothing.
    None,
    /// Something that can wait; it is to be looked at again after so many ns.
    Later(u64),
    /// A point is worth it.
    Now,
}

/// How much longer than agreeing something waits for it.
#[derive(Clone, Copy)]
struct Share {
    /// So many times as long as agreeing takes,
    usual: u64,
    /// but no longer than so many of the shortest slices,
    soon: u64,
    /// or than this part of what agreeing takes, if that is more.
    part: u64,
}

impl Share {
    const NOTHING: Self = Self {
        usual: 0,
        soon: 0,
        part: 1,
    };

    /// How long that is where agreeing takes `cost`, in ns.
    fn wait(self, cost: u64, shortest: u64) -> u64 {
        let usual = cost.saturating_mul(self.usual);
        let most = shortest.saturating_mul(self.soon);
        usual.min(most.max(cost / self.part))
    }
}

/// Why a point would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There is nobody to agree with.
    Alone,
    /// A signal has come, or a timer of the program's is over.
    Signal,
    /// Others want their turn, or there is an order.
    Others,
}

/// What is known of that in one process.
pub(super) struct Worth {
    /// CPU time of the shortest slice in ns, where others are as long as need be; else 0.
    least: u64,
    /// Wall-clock time that an attempt took lately, in ns, without what somebody was behind.
    cost: u64,
    /// When the attempt began that is under way, or 0.
    began: u64,
    /// CPU time when the last one was over.
    over: u64,
    /// Where the program was at the last look: calls until then, and a digest of its registers; and
    /// the CPU time then.
    seen: (u64, u64),
    seen_at: u64,
}

impl Worth {
    pub(super) fn of(control: &Control) -> Self {
        let least = match control.slice_auto.load(Ordering::Relaxed) {
            0 => 0,
            _ => control.slice_ns.load(Ordering::Relaxed),
        };
        Self {
            least,
            cost: match control.crowded.load(Ordering::Relaxed) {
                0 => GUESS_NS,
                _ => CROWDED_NS,
            },
            began: 0,
            over: 0,
            seen: (0, 0),
            seen_at: 0,
        }
    }

    /// Are slices as long as need be?
    pub(super) const fn is_asked(&self) -> bool {
        self.least != 0
    }

    /// An attempt begins at this time.
    pub(super) const fn begin(&mut self, now: u64) {
        self.began = now;
    }

    /// Is one under way that this replica has begun?
    pub(super) const fn has_begun(&self) -> bool {
        self.began != 0
    }

    /// It is over at this time, and at this CPU time. The last one was behind the first by `lag`
    /// when it began.
    pub(super) fn end(&mut self, now: u64, cpu: u64, lag: u64) {
        let took = now.saturating_sub(self.began);
        let took = took.saturating_sub(lag.saturating_mul(CONTENDED));
        self.cost = took.max(u64::midpoint(self.cost, took));
        (self.began, self.over) = (0, cpu);
    }

    /// Is the program where it was at the last look, although it has run since?
    fn is_seen_again(&mut self, cpu: u64, place: (u64, u64)) -> bool {
        // Two timers may call at once.
        if cpu.saturating_sub(self.seen_at) < SOON_NS {
            return false;
        }
        self.seen_at = cpu;
        core::mem::replace(&mut self.seen, place) == place
    }

    /// There is something to be done. Is a point worth it, after so much work without a call?
    /// `place`: calls so far, and a digest of the registers.
    pub(super) fn is_it(&mut self, worked: u64, cpu: u64, why: Why, place: (u64, u64)) -> Wish {
        if !self.is_asked() {
            return Wish::Now;
        }
        let waits = self.is_seen_again(cpu, place);
        let worked = worked.min(cpu.saturating_sub(self.over));
        let share = match why {
            Why::Alone => Share::NOTHING,
            _ if waits => Share::NOTHING,
            Why::Signal => SHARE_OF_SIGNALS,
            Why::Others => SHARE,
        };
        let wanted = self.least.max(share.wait(self.cost, self.least));
        match wanted.saturating_sub(worked) {
            0 => Wish::Now,
            // Soon enough to find one that waits.
            left => Wish::Later(left.clamp(SOON_NS, self.least)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn worth() -> Worth {
        Worth {
            least: 10 * MS,
            cost: 10 * MS,
            began: 0,
            over: 0,
            seen: (0, 0),
            seen_at: 0,
        }
    }

    /// Computing, after so many ms.
    fn asked(worth: &mut Worth, ms: u64) -> Wish {
        worth.is_it(ms * MS, ms * MS, Why::Others, (1, ms))
    }

    #[test]
    fn a_slice_is_as_long_as_agreeing_needs() {
        let mut worth = worth();
        assert_eq!(asked(&mut worth, 319), Wish::Later(MS));
        assert_eq!(asked(&mut worth, 320), Wish::Now);
        worth.begin(1_000 * MS);
        assert!(worth.has_begun());
        worth.end(1_020 * MS, 400 * MS, 0);
        assert!(!worth.has_begun());
        // 20 ms, and the time before does not count.
        assert_eq!(asked(&mut worth, 1_039), Wish::Later(MS));
        assert_eq!(asked(&mut worth, 1_040), Wish::Now);
        worth.begin(5_000 * MS);
        worth.end(5_010 * MS, 2_100 * MS, 0);
        assert_eq!(
            asked(&mut worth, 2_580),
            Wish::Now,
            "what it took before counts half"
        );
    }

    #[test]
    fn however_long_agreeing_takes_others_have_their_turn() {
        let mut worth = worth();
        let mut wait = |took: u64, why| {
            worth.cost = took * MS;
            let wish = |ms: &u64| worth.is_it(ms * MS, ms * MS, why, (1, *ms)) == Wish::Now;
            (1..10_000).find(wish)
        };
        let waits = [1, 5, 20, 200, 500].map(|took| wait(took, Why::Others));
        assert_eq!(waits, [32, 160, 640, 1_000, 1_000].map(Some));
        let waits = [1, 8, 20, 40, 400].map(|took| wait(took, Why::Signal));
        assert_eq!(waits, [10, 16, 20, 20, 100].map(Some));
    }

    /// One of two has a part of its CPU only, and is behind by the more the longer both compute.
    #[test]
    fn a_slower_replica_makes_slices_no_longer() {
        let mut worth = worth();
        let (mut now, mut cpu) = (0, 0);
        for _ in 0..100 {
            let mut slice = 0;
            while worth.is_it(slice, cpu + slice, Why::Others, (1, cpu + slice)) != Wish::Now {
                slice += MS;
            }
            cpu += slice;
            now += slice;
            worth.begin(now);
            let lag = slice / 2;
            now += 2 * lag + 5 * MS;
            worth.end(now, cpu, lag);
            assert!(slice <= 320 * MS, "{slice}");
        }
    }

    #[test]
    fn who_waits_in_a_loop_or_is_alone_has_short_slices() {
        let mut worth = worth();
        let mut look = |ms: u64, why, place| worth.is_it(ms * MS, ms * MS, why, place);
        assert_eq!(look(9, Why::Alone, (1, 1)), Wish::Later(MS));
        assert_eq!(look(10, Why::Alone, (1, 2)), Wish::Now);
        assert_eq!(look(20, Why::Others, (1, 3)), Wish::Later(10 * MS));
        assert_eq!(look(30, Why::Others, (1, 3)), Wish::Now);
        let later = Wish::Later(10 * MS);
        assert_eq!(look(40, Why::Others, (2, 3)), later, "a call came");
        assert_eq!(look(40, Why::Others, (2, 3)), later, "it has not run since");
    }

    #[test]
    fn a_signal_is_waited_for_less() {
        let mut worth = worth();
        let mut look = |ms: u64| worth.is_it(ms * MS, ms * MS, Why::Signal, (1, ms));
        assert_eq!(look(19), Wish::Later(MS));
        assert_eq!(look(20), Wish::Now);
    }

    #[test]
    fn a_length_that_was_asked_for_counts_alone() {
        let mut worth = Worth {
            least: 0,
            ..worth()
        };
        assert_eq!(asked(&mut worth, 0), Wish::Now);
    }
}

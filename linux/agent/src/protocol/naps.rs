//! How a slow wait sleeps, and which sleepers may be woken later.
//!
//! Waking a sleeper costs as much as several calls, and a follower that keeps up with its primary
//! would fall asleep at every one of them. So who waits for a record *dozes* first: for a moment,
//! after which it looks by itself. Whoever rings for one that dozes may put off waking it, until it
//! has rung often or has to wait itself ([`Debt`]); the follower then finds many records at once.
//! The first record after a wait for the outside wakes it, so that both work at the same time; so
//! do a few records with which comes long work.
//!
//! A slow wait that is soon over needs no clock: how long it has taken is asked only once a nap has
//! lasted its time.
//!
//! Not covered: when a wait becomes a slow one (`waiting`), and when it is given up (`patience`).

/// How long a replica dozes: so much later at most it finds what nobody woke it for.
const DOZE_NS: u64 = 1_000_000;
/// Longest nap before the clocks of the wait run.
const NAP_NS: u64 = 5_000_000;
/// Longest sleep before looking at the clocks again.
const SLEEP_NS: u64 = 100_000_000;
/// Most naps without clocks, where each was ended by somebody who rang for something else.
const MOST_NAPS: u32 = 32;
/// Most rings for which waking is put off.
const MOST_RINGS: u32 = 64;
/// What a ring counts for that tells of long work: waking takes less than that.
const LONG_WORK: u32 = 16;

/// How the wait goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nap {
    /// For a moment, in which nobody need wake it.
    Doze,
    /// Until woken, not for long.
    Brief,
    /// Until woken, while the clocks of the wait run.
    Long,
}

impl Nap {
    /// How long it lasts if nobody ends it.
    pub(crate) const fn nanoseconds(self) -> u64 {
        match self {
            Self::Doze => DOZE_NS,
            Self::Brief => NAP_NS,
            Self::Long => SLEEP_NS,
        }
    }
}

/// The naps of the present wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Naps {
    taken: u32,
    /// A nap has lasted its time, so this wait may be a long one.
    lasting: bool,
}

impl Naps {
    /// A wait begins.
    pub(crate) const fn begin(&mut self) {
        self.taken = 0;
        self.lasting = false;
    }

    /// The next one; `record`: a record is awaited.
    pub(crate) const fn next(&self, record: bool) -> Nap {
        if self.lasting || self.taken >= MOST_NAPS {
            Nap::Long
        } else if record && self.taken == 0 {
            Nap::Doze
        } else {
            Nap::Brief
        }
    }

    /// It is over; `lasted`: nobody has ended it.
    pub(crate) fn over(&mut self, nap: Nap, lasted: bool) {
        self.taken = self.taken.saturating_add(1);
        self.lasting |= lasted && nap != Nap::Doze;
    }
}

/// Wakes that are owed to those who doze.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt {
    rings: u32,
    /// The outside was waited for: what comes next is the beginning of something.
    anew: bool,
}

impl Debt {
    /// It was rung for somebody who sleeps: is it to be woken now? `dozes`: all of them doze.
    pub(crate) fn ring(&mut self, dozes: bool) -> bool {
        self.rings += 1;
        let anew = core::mem::take(&mut self.anew);
        let now = !dozes || anew || self.rings >= MOST_RINGS;
        if now {
            self.rings = 0;
        }
        now
    }

    /// The last ring told of work that takes longer than waking does. Whoever dozes is woken soon
    /// then, before it is so far behind that this replica has to wait for it.
    pub(crate) const fn add_work(&mut self) {
        if self.rings != 0 {
            self.rings += LONG_WORK - 1;
        }
    }

    /// This replica is about to wait for the outside. Whoever dozes is woken with what comes next,
    /// so that it works while this replica does.
    pub(crate) const fn begin_anew(&mut self) {
        self.anew = true;
    }

    /// Is somebody to be woken before this replica waits?
    pub(crate) const fn settle(&mut self) -> bool {
        core::mem::replace(&mut self.rings, 0) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_once_a_nap_has_lasted_its_time() {
        let mut naps = Naps::default();
        naps.begin();
        assert_eq!(naps.next(true), Nap::Doze);
        naps.over(Nap::Doze, true);
        assert_eq!(naps.next(true), Nap::Brief, "a moment says nothing");
        naps.over(Nap::Brief, false);
        assert_eq!(naps.next(true), Nap::Brief);
        naps.over(Nap::Brief, true);
        assert_eq!(naps.next(true), Nap::Long);
        naps.begin();
        assert_eq!(naps.next(false), Nap::Brief, "a vote is woken for");
    }

    #[test]
    fn rings_for_something_else_do_not_keep_the_clocks_from_running() {
        let mut naps = Naps::default();
        for _ in 0..MOST_NAPS {
            assert_ne!(naps.next(true), Nap::Long);
            naps.over(Nap::Brief, false);
        }
        assert_eq!(naps.next(true), Nap::Long);
    }

    #[test]
    fn who_sleeps_is_woken_at_once_and_who_dozes_after_many_rings_or_before_a_wait() {
        let mut debt = Debt::default();
        assert!(debt.ring(false));
        assert!(!debt.settle(), "it was woken");
        let put_off = (0..100).take_while(|_| !debt.ring(true)).count();
        assert_eq!(put_off, 63);
        assert!(!debt.settle());
        assert!(!debt.ring(true));
        assert!(debt.settle());
        assert!(!debt.settle(), "once is enough");
        let work = |debt: &mut Debt| {
            let wakes = debt.ring(true);
            debt.add_work();
            wakes
        };
        let put_off = (0..100).take_while(|_| !work(&mut debt)).count();
        assert_eq!(put_off, 4, "long work each");
        assert!(!debt.settle());
        debt.begin_anew();
        assert!(debt.ring(true), "after a wait for the outside");
        assert!(!debt.ring(true));
    }
}

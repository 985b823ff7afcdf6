//! How far a replica has come since the last point, by visits to the place of that.
//!
//! Intuition: where replicas have met they mostly are in an outer loop, to the same place of which
//! they come again and again. So a stub stays there and counts ([`Stops::Never`]). Two that have
//! counted from the same point know who is ahead, and by how much, as exactly as from a counter of
//! the processor ([`rcoe_core::coupling::Counted`]); CPU time is a guess. The owner of the next
//! target goes to that place, too, so that it is known of each visit whether it is before the
//! target, or behind it.
//!
//! A visit is made when the replica has left the place: whoever stands there has still to make it.
//! A program may come to the same state again; replicas may then meet after different numbers of
//! visits, and count from there anew.
//!
//! Contract: as long as the program runs on without that stub nothing is told; so nothing is from
//! the next call on, or when it reads the code. A place in a tight loop is left at the first look.
//!
//! Not covered: code that was made at run time, which the program may change or look into.

use rcoe_core::coupling::Counted;

use crate::coupling::site::{Site, Spot};
use crate::coupling::stub::{Stop, Stops};
use crate::protocol::meeting::timers::{LOOK_NS, look_after};
use crate::protocol::meeting::{Doing, Meeting, cpu_now};

/// Visits that are further apart cost far less than a hundredth of a program's time, in ns of that.
const RARE_NS: u64 = 1_000;
/// A place that was visited more often is left out for so many points.
const PAUSE: u8 = 8;
/// Visits that tell that the program is in that loop.
const SOME: u64 = 3;
/// A count is told as so many less and more, though it is exact, so that replicas that are where
/// they meet are ordered only if there are visits between them.
const SLACK: u64 = 1;
/// The owner of a target waits for so many rounds, but for no longer than that, in ns.
const ROUNDS: u64 = 3;
const MOST_NS: u64 = 100_000_000;

/// What is counted since a point.
#[derive(Debug)]
pub(super) struct Milestone {
    /// The attempt that has found the point; 0 if nothing is counted.
    since: u32,
    /// The place.
    at: u64,
    /// Visits that stubs which are gone have counted, less those that were not made.
    visits: u64,
    /// CPU time when it began.
    began: u64,
    /// CPU time and visits at the last look.
    looked: (u64, u64),
    /// A place that was visited too often, and for how many points it is left out.
    often: u64,
    pause: u8,
}

impl Milestone {
    pub(super) const NONE: Self = Self {
        since: 0,
        at: 0,
        visits: 0,
        began: 0,
        looked: (0, 0),
        often: 0,
        pause: 0,
    };

    /// Is anything counted?
    pub(super) const fn is_on(&self) -> bool {
        self.since != 0
    }

    /// Nothing is, up to the next point.
    pub(super) const fn forget(&mut self) {
        self.since = 0;
    }

    /// Counts from here on, at this CPU time.
    const fn begin(&mut self, since: u32, at: u64, now: u64) {
        (self.since, self.at, self.visits) = (since, at, 0);
        (self.began, self.looked) = (now, (now, 0));
    }

    /// May visits to this place be counted? Not if there were too many of late.
    const fn may_be(&mut self, at: u64) -> bool {
        if self.often != at || self.pause == 0 {
            return true;
        }
        self.pause -= 1;
        false
    }

    /// Does this stub count?
    fn is_of(&self, site: &Site) -> bool {
        self.is_on() && site.is_certain() && site.place() == Some(self.at)
    }

    /// Visits so far.
    fn visits(&self, site: &Site) -> u64 {
        match self.is_of(site) {
            true => self.visits.wrapping_add(site.visits()),
            false => self.visits,
        }
    }

    /// The stub's own count is about to begin anew.
    pub(super) fn add_visits(&mut self, site: &Site) {
        self.visits = self.visits(site);
    }

    /// The place, if the program comes there.
    pub(super) const fn place(&self) -> Option<u64> {
        match self.is_on() && self.visits >= SOME {
            true => Some(self.at),
            false => None,
        }
    }

    /// How long it may be to there, in ns of CPU time.
    pub(super) fn way(&self) -> u64 {
        let round = (self.looked.0 - self.began) / self.visits.max(1);
        MOST_NS.min(round.saturating_mul(ROUNDS))
    }

    /// It is looked at at this CPU time, after so many visits. Are they rare?
    const fn is_rare(&mut self, now: u64, visits: u64) -> bool {
        let (since, before) = self.looked;
        self.looked = (now, visits);
        let rare = visits.saturating_sub(before).saturating_mul(RARE_NS) <= now - since;
        if !rare {
            (self.often, self.pause) = (self.at, PAUSE);
        }
        rare
    }
}

impl Meeting {
    /// What is counted, if anything is.
    pub(super) fn visits_since_point(&self) -> Option<Counted> {
        let visits = self.milestone.visits(&self.site);
        self.milestone.is_on().then_some(Counted {
            since: self.milestone.since,
            least: visits.saturating_sub(SLACK),
            most: visits.saturating_add(SLACK),
        })
    }

    /// The program was stopped at the place, by the stub, which has counted that.
    pub(super) fn note_landed(&mut self) {
        if self.milestone.is_of(&self.site) {
            self.milestone.visits = self.milestone.visits.wrapping_sub(1);
        }
    }

    /// It stands at the place, and goes on behind it without the stub.
    pub(super) fn note_passed(&mut self) {
        if self.milestone.is_of(&self.site) {
            self.milestone.visits = self.milestone.visits.wrapping_add(1);
        }
    }

    /// It was stopped there in the stub, and stands where it would without that: at `rip`.
    pub(super) fn note_stop(&mut self, stop: Stop, rip: u64) {
        let is_counted = match stop {
            Stop::AtWindow { counted } => counted,
            Stop::Within => rip == self.milestone.at,
            Stop::Elsewhere => false,
        };
        if is_counted {
            self.note_landed();
        }
    }

    /// The program goes on: from now on nothing is counted if the stub does not stand.
    pub(super) fn check_milestone(&mut self) {
        if !self.milestone.is_of(&self.site) {
            self.milestone.forget();
        }
    }

    /// A point is over, which this attempt has found: visits to its place are counted from here on,
    /// if that may be. False if they are not.
    pub(super) fn count_visits(&mut self, spot: &Spot, since: u32) -> bool {
        if !self.milestone.may_be(spot.at()) || !self.plant(spot, Stops::Never) {
            return false;
        }
        self.milestone.begin(since, spot.at(), cpu_now());
        look_after(LOOK_NS);
        true
    }

    /// The program was interrupted, and there is nothing to be done. Is it too often at the place
    /// for that to be counted?
    pub(super) fn is_there_often(&mut self) -> bool {
        let visits = self.milestone.visits(&self.site);
        self.milestone.is_on() && !self.milestone.is_rare(cpu_now(), visits)
    }

    /// A call comes, or something else after which nothing counts.
    #[inline]
    pub(super) fn end_milestone(&mut self) {
        if self.doing == Doing::Nothing && self.site.is_planted() {
            self.take_out();
        }
        self.milestone.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted from the point of attempt 4, at CPU time 1000.
    fn counting() -> Milestone {
        let mut milestone = Milestone::NONE;
        milestone.begin(4, 0x40, 1000);
        milestone
    }

    #[test]
    fn a_place_that_is_visited_often_is_left_out_for_a_while() {
        let mut milestone = counting();
        assert!(milestone.is_rare(1000 + 10 * RARE_NS, 10));
        assert!(
            !milestone.is_rare(1000 + 20 * RARE_NS, 21),
            "since the look before"
        );
        assert!(milestone.may_be(0x50), "another place");
        let left_out = (0..=PAUSE).filter(|_| !milestone.may_be(0x40)).count();
        assert_eq!(left_out, usize::from(PAUSE));
        assert!(milestone.may_be(0x40));
    }

    #[test]
    fn the_owner_goes_to_where_the_program_comes_by() {
        let mut milestone = counting();
        milestone.visits = SOME - 1;
        assert_eq!(milestone.place(), None);
        milestone.visits = SOME;
        assert_eq!(milestone.place(), Some(0x40));
        milestone.is_rare(1000 + 600, SOME);
        assert_eq!(milestone.way(), ROUNDS * 600 / SOME);
        milestone.is_rare(u64::MAX, SOME);
        assert_eq!(milestone.way(), MOST_NS);
        milestone.forget();
        assert_eq!(milestone.place(), None);
    }

    #[test]
    fn nothing_is_counted_where_no_stub_stands() {
        let mut milestone = counting();
        milestone.visits = 7;
        assert_eq!(milestone.visits(&Site::EMPTY), 7, "of those that are gone");
        assert!(!milestone.is_of(&Site::EMPTY));
    }
}

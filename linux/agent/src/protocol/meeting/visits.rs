//! What a replica on its way to a target learns from its first visits to the place of that.
//!
//! It is stopped at the first few, and its registers tell how many more there are to the target
//! ([`rcoe_core::coupling::rounds`]): then it knows how long it has to run, or that it is beyond,
//! which else only a run for all of its time would show. How long it is from one visit to the next
//! is measured if they are rare; in a tight loop, stops would be all that is measured.
//!
//! Contract: a hint, as those of [`crate::protocol::meeting::hints`], and taken in the same phases.

use rcoe_core::coupling::{MOVING, Stamp, Stop, VISITS, rounds};

use crate::arch::context;
use crate::arch::frames::UContext;
use crate::coupling::machine::general_of;
use crate::coupling::state::General;
use crate::kernel::Kernel;
use crate::protocol::meeting::going::{Sought, drive, plant};
use crate::protocol::meeting::hints::does_without;
use crate::protocol::meeting::placing::RARE_NS;
use crate::protocol::meeting::{Doing, Meeting, Outcome, cpu_now};

/// What is longer from one visit to the next is not mostly the stop; else a round takes so long.
const MEASURED_NS: u64 = 2 * RARE_NS;
const TIGHT_NS: u64 = 1;
/// A run gets no longer by what was learnt than that many ns.
const MOST_NS: u64 = 1_000_000_000;

/// The first visits of a run.
pub(super) struct Visits {
    /// The phase for which they tell how far the target is.
    told: Option<Stamp>,
    /// It is stopped at each visit.
    on: bool,
    count: usize,
    registers: [[u64; MOVING]; VISITS],
    times: [u64; VISITS],
}

impl Visits {
    pub(super) const NONE: Self = Self {
        told: None,
        on: false,
        count: 0,
        registers: [[0; MOVING]; VISITS],
        times: [0; VISITS],
    };

    /// Is this replica stopped at each visit?
    pub(super) const fn are_on(&self) -> bool {
        self.on
    }

    /// Was it learnt in this phase how far the target is?
    pub(super) fn have_told(&self, phase: Stamp) -> bool {
        self.told == Some(phase)
    }

    /// One more visit, at this CPU time. Have there been enough?
    fn note(&mut self, registers: [u64; MOVING], now: u64) -> bool {
        (self.registers[self.count], self.times[self.count]) = (registers, now);
        self.count += 1;
        self.on = self.count < VISITS;
        !self.on
    }

    /// How far the target is after the last visit, in ns of CPU time; less than 0 if that is
    /// beyond. `None` if that is not known, or further than anybody can have come: what looks like
    /// a counter may be none.
    fn way(&self, target: &[u64; MOVING], most: u64) -> Option<i64> {
        if self.count < VISITS {
            return None;
        }
        // Whoever is at the target by its counters has other values elsewhere: it is another one.
        let rounds = rounds(&self.registers, target).filter(|&rounds| rounds != 0)?;
        let every = self.times[VISITS - 1].saturating_sub(self.times[0]) / (VISITS as u64 - 1);
        let every = if every < MEASURED_NS { TIGHT_NS } else { every };
        let way = rounds.checked_mul(i64::try_from(every).ok()?);
        way.filter(|way| way.unsigned_abs() <= most)
    }
}

impl Meeting {
    /// A run to the target begins, or goes on: its first visits are looked at in phases that heed
    /// hints.
    pub(super) fn begin_visits(&mut self, again: bool) {
        let told = self.visits.told.filter(|_| again);
        let on = !again && !does_without(self.coupler.stamp().phase);
        self.visits = Visits {
            told,
            on,
            ..Visits::NONE
        };
    }

    /// It was learnt how far the target is.
    fn learn(&mut self, way: i64, now: u64, worked: u64) {
        self.visits.told = Some(self.coupler.stamp());
        let target = self.coupler.target().progress;
        let own = target.saturating_add_signed(way.saturating_neg());
        self.hints.shift_to(own, worked);
        if let Doing::Running { since, left, .. } = &mut self.doing {
            let needed = way.unsigned_abs().saturating_mul(3) / 2;
            let spent = now.saturating_sub(*since);
            *left = (*left).max(spent + needed.min(MOST_NS));
        }
    }
}

/// This replica was stopped at a visit. `None` if it has the target's registers there.
pub(super) fn visited(kernel: &mut Kernel, context: &mut UContext) -> Option<Outcome> {
    let general = General::new(&context.machine.cpu(), context::bases());
    let (now, clock) = (cpu_now(), kernel.clock.now());
    let meeting = &mut kernel.replica.env_mut().meeting;
    if general == general_of(meeting.coupler.stub()) {
        return None;
    }
    if !meeting.visits.note(general.registers, now) {
        meeting.pass(context);
        return Some(Outcome::GoOn);
    }
    let mut target = [0; MOVING];
    target.copy_from_slice(&meeting.coupler.stub().registers[..MOVING]);
    let worked = meeting.worked(clock);
    let most = worked.max(meeting.coupler.target().progress);
    let way = meeting.visits.way(&target, most);
    if let Some(way) = way {
        meeting.learn(way, now, worked);
        if way < 0 {
            meeting.take_out();
            meeting.ran(Stop::Overran, now);
            return Some(drive(kernel, context));
        }
    }
    search(kernel, context);
    Some(Outcome::GoOn)
}

/// This replica goes on from a visit, and is stopped at the target's state only.
fn search(kernel: &mut Kernel, context: &mut UContext) {
    let meeting = &mut kernel.replica.env_mut().meeting;
    let sought = Sought::of(meeting);
    match meeting.want(&sought.wanted()) {
        true => meeting.search_from_here(),
        false => {
            meeting.take_out();
            let began = cpu_now();
            plant(kernel);
            kernel.replica.env_mut().meeting.stood_still(began);
        }
    }
    let meeting = &mut kernel.replica.env_mut().meeting;
    if meeting.site.is_planted() {
        meeting.pass(context);
    }
    meeting.check_milestone();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three visits, so far apart, of a loop that counts in one register.
    fn visits(apart: u64) -> Visits {
        let mut visits = Visits {
            on: true,
            ..Visits::NONE
        };
        for visit in 0..3 {
            let mut registers = [5; MOVING];
            registers[2] = 40 + visit;
            assert_eq!(visits.note(registers, 1000 + visit * apart), visit == 2);
        }
        visits
    }

    fn target(count: u64) -> [u64; MOVING] {
        let mut registers = [5; MOVING];
        registers[2] = count;
        registers
    }

    #[test]
    fn rare_visits_tell_how_long_it_is_to_the_target() {
        let visits = visits(MEASURED_NS);
        assert!(!visits.are_on(), "there were enough");
        let way = MEASURED_NS.cast_signed();
        let most = 10 * MEASURED_NS;
        assert_eq!(visits.way(&target(52), most), Some(10 * way));
        assert_eq!(visits.way(&target(32), most), Some(-10 * way));
        assert_eq!(visits.way(&target(42), most), None, "another one than this");
    }

    #[test]
    fn what_is_further_than_anybody_has_come_is_no_counter() {
        let visits = visits(MEASURED_NS);
        let most = 10 * MEASURED_NS;
        assert_eq!(visits.way(&target(53), most), None);
        assert_eq!(visits.way(&target(31), most), None);
        assert_eq!(visits.way(&target(1 << 60), most), None);
    }

    #[test]
    fn of_a_tight_loop_it_is_the_direction_that_counts() {
        let visits = visits(MEASURED_NS - 1);
        assert_eq!(visits.way(&target(52), 10), Some(10));
        assert_eq!(visits.way(&target(32), 10), Some(-10));
    }
}

//! How long a wait spins and yields before it sleeps.
//!
//! Falling asleep and being woken costs more than most waits last, above all where the CPU goes
//! idle meanwhile. Looking again costs nothing as long as nobody else wants the CPU, and yielding
//! between looks lets those run who do: a client of the program, say, that the awaited sibling
//! waits for in turn. So a wait yields for about as long as sleeping would cost. How long it spins
//! first, without yielding, follows from whether waits of its kind were over by then.
//!
//! Yielding is wrong next to neighbours that compute: one yield then lasts as long as they are let
//! run, while a sleeper is woken ahead of them. A long yield is therefore followed by waits without
//! any, more of them each time.
//!
//! Not covered: when a sibling is given up (`env`).

/// Most rounds of pure spinning where every replica has a CPU of its own: less than it takes to
/// fall asleep and be woken, since others may need that CPU.
const MOST_SPINS: u32 = 128;
/// Fewest rounds, and all of them where replicas share CPUs.
const LEAST_SPINS: u32 = 16;
/// Rounds of yielding after spinning, in a vote. Together they take about as long as falling asleep
/// and being woken on an idle CPU, so that a wait costs at most twice of what the better choice
/// would have.
pub(super) const YIELDS: u32 = 100;
/// The same where a record is awaited: who dozes then finds many at once.
pub(super) const FEW_YIELDS: u32 = 20;
/// The same at calls that make, replace, await or end processes: what siblings do there takes
/// several times as long as falling asleep and being woken.
pub(super) const FEWEST_YIELDS: u32 = 6;
/// A yield that takes longer, in nanoseconds, went to somebody who computes.
const LONG_YIELD_NS: u64 = 1_000_000;
/// Waits without a yield after such a one, at first.
const LEAST_PENALTY: u32 = 8;
/// The same after many in a row: a probe of a few milliseconds in so many waits does not matter.
const MOST_PENALTY: u32 = 4096;

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Look again at once.
    Spin,
    /// Let others run first.
    Yield,
    /// Sleep until woken.
    Sleep,
}

/// What is learned from waits of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habit {
    spins: u32,
    most_spins: u32,
    /// The wait before this one was longer than spinning lasted.
    vain: bool,
}

impl Habit {
    /// `crowded`: replicas share CPUs.
    pub(crate) const fn new(crowded: bool) -> Self {
        let most_spins = if crowded { LEAST_SPINS } else { MOST_SPINS };
        Self {
            spins: most_spins,
            most_spins,
            vain: false,
        }
    }

    /// A wait begins: half as much spinning as before if that was in vain, else twice as much.
    pub(crate) fn begin(&mut self) {
        self.spins = if core::mem::take(&mut self.vain) {
            (self.spins / 2).max(LEAST_SPINS)
        } else {
            (self.spins * 2).min(self.most_spins)
        };
    }

    /// What to do in this round of the wait, in which it is yielded so often.
    pub(crate) fn pass(&mut self, round: u32, yields: u32) -> Pass {
        if round < self.spins {
            return Pass::Spin;
        }
        self.vain = true;
        if round < self.spins + yields {
            Pass::Yield
        } else {
            Pass::Sleep
        }
    }
}

/// Whether others who compute want this CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbours {
    /// Waits to come without a yield.
    skip: u32,
    penalty: u32,
    /// A yield of the present wait was long.
    long: bool,
}

impl Neighbours {
    /// A wait begins.
    pub(crate) fn begin(&mut self) {
        self.long = false;
        self.skip = self.skip.saturating_sub(1);
    }

    /// Are yields out of place in this wait?
    pub(crate) const fn contested(&self) -> bool {
        self.long || self.skip > 0
    }

    /// A yield took so many nanoseconds.
    pub(crate) fn yielded(&mut self, took: u64) {
        if took > LONG_YIELD_NS {
            self.long = true;
            self.penalty = (self.penalty * 2).clamp(LEAST_PENALTY, MOST_PENALTY);
            self.skip = self.penalty;
        } else {
            self.penalty = self.penalty.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits once for so many rounds; how the last one passed.
    fn wait(habit: &mut Habit, rounds: u32) -> Pass {
        habit.begin();
        (0..rounds).fold(Pass::Spin, |_, round| habit.pass(round, YIELDS))
    }

    #[test]
    fn spinning_in_vain_gets_shorter_and_useful_spinning_longer() {
        let mut habit = Habit::new(false);
        for _ in 0..20 {
            assert_eq!(wait(&mut habit, 1000), Pass::Sleep);
        }
        assert_eq!(habit.spins, LEAST_SPINS);
        for _ in 0..20 {
            assert_eq!(wait(&mut habit, 3), Pass::Spin);
        }
        assert_eq!(habit.spins, MOST_SPINS);
    }

    #[test]
    fn a_wait_yields_before_it_sleeps_unless_the_cpu_is_contested() {
        let mut habit = Habit::new(true);
        habit.begin();
        assert_eq!(habit.pass(LEAST_SPINS, FEW_YIELDS), Pass::Yield);
        assert_eq!(habit.pass(LEAST_SPINS, 0), Pass::Sleep);
        assert_eq!(habit.pass(LEAST_SPINS + FEW_YIELDS, YIELDS), Pass::Yield);
        assert_eq!(
            habit.pass(LEAST_SPINS + FEW_YIELDS, FEW_YIELDS),
            Pass::Sleep
        );
        assert_eq!(habit.pass(LEAST_SPINS + YIELDS, YIELDS), Pass::Sleep);
    }

    #[test]
    fn replicas_that_share_a_cpu_hardly_spin() {
        let mut habit = Habit::new(true);
        habit.begin();
        assert_eq!(habit.spins, LEAST_SPINS);
    }

    #[test]
    fn neighbours_that_compute_stop_yields_for_longer_and_longer() {
        let mut neighbours = Neighbours::default();
        let mut without = 0;
        for _ in 0..20 {
            neighbours.begin();
            neighbours.yielded(4_000_000);
            assert!(neighbours.contested(), "the rest of that wait sleeps");
            without = 0;
            while neighbours.contested() {
                neighbours.begin();
                without += 1;
            }
        }
        assert_eq!(without, MOST_PENALTY);
        for _ in 0..MOST_PENALTY {
            neighbours.begin();
            neighbours.yielded(500);
        }
        neighbours.yielded(4_000_000);
        assert_eq!(neighbours.skip, LEAST_PENALTY);
    }
}

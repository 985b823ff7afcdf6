//! A count that interrupts nobody, such as one that a program's own code keeps: a timer interrupts
//! instead, and then it is looked at how far the program has come.
//!
//! How fast it counts is taken from how fast it did, and it is looked at again behind half of the
//! time that what is left would take. So a program that has far to go is interrupted a few times,
//! at ever shorter distances, and comes past its target only if it counts twice as fast all at once
//! or if the timer is late; then the place is missed ([`super::Run`]), as by a counter whose
//! interrupt is late.
//!
//! Where cores share one clock the timer goes on while others run, so the program seems slow, and
//! is not when it has the clock for itself. So what is faster is believed at once, and what is
//! slower little by little.
//!
//! Contract: a program gets on between two looks. What is said is at least what is given as the
//! shortest time, which the way back to the program should not take; and twice as much each time
//! that it did not count meanwhile, because others had the processor.

/// Counts that tell too little about how fast a program counts.
const FEW: u64 = 64;
/// Parts of a count in a rate.
const PARTS: u64 = 1 << 16;
/// Which part of a rate is forgotten with each slower one.
const FADES: u64 = 8;

/// When one core's count is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clocked {
    /// The shortest time until a look, in units of the timer.
    least: u64,
    /// The same, of a program that did not get on.
    patience: u64,
    /// Parts of a count in a unit of the timer; at least 1.
    rate: u64,
}

impl Clocked {
    /// Nothing is known yet: it may count in each unit.
    #[must_use]
    pub const fn new(least: u64) -> Self {
        Self {
            least,
            patience: least,
            rate: PARTS,
        }
    }

    /// The program counted so often in so many units of the timer.
    pub fn ran(&mut self, counts: u64, units: u64) {
        self.patience = match counts {
            0 => (self.patience * 2).min(self.least << 16),
            _ => self.least,
        };
        if counts >= FEW {
            let rate = counts.saturating_mul(PARTS) / units.max(1);
            self.rate = rate.max(self.rate - self.rate / FADES).max(1);
        }
    }

    /// Units until the next look at a program that may count so often yet.
    #[must_use]
    pub fn look_behind(&self, counts: u64) -> u64 {
        let whole = u128::from(counts) * u128::from(PARTS) / u128::from(self.rate);
        u64::try_from(whole / 2)
            .unwrap_or(u64::MAX)
            .max(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: u64 = 64;

    #[test]
    fn a_program_is_looked_at_behind_half_of_its_way() {
        let mut clocked = Clocked::new(LEAST);
        assert_eq!(clocked.look_behind(10_000), 5_000);
        // A count takes a quarter of a unit, and then four, again and again.
        clocked.ran(4_000, 1_000);
        assert_eq!(clocked.look_behind(10_000), 1_250);
        clocked.ran(1_000, 4_000);
        assert_eq!(clocked.look_behind(10_000), 10_000 / 7);
        for _ in 0..100 {
            clocked.ran(1_000, 4_000);
        }
        assert_eq!(clocked.look_behind(10_000), 20_000);
        assert_eq!(clocked.look_behind(0), LEAST);
        assert!(clocked.look_behind(u64::MAX) > 1 << 60);
    }

    /// The clock goes on while others have the processor.
    #[test]
    fn who_has_the_clock_for_itself_again_does_not_come_past() {
        for others in 1..8 {
            let mut clocked = Clocked::new(LEAST);
            clocked.ran(1_000, 1_000);
            clocked.ran(1_000, 1_000 * (1 + others));
            assert!(clocked.look_behind(100_000) < 100_000, "{others}");
        }
    }

    /// Otherwise two programs whose cores take turns could keep each other from ever getting on.
    #[test]
    fn who_did_not_get_on_gets_more_time() {
        let mut clocked = Clocked::new(LEAST);
        for times in 1..100 {
            clocked.ran(0, 10);
            let behind = clocked.look_behind(1);
            assert_eq!(behind, LEAST << times.min(16));
        }
        clocked.ran(1, 10);
        assert_eq!(clocked.look_behind(1), LEAST);
    }

    #[test]
    fn what_tells_too_little_changes_nothing() {
        let mut clocked = Clocked::new(LEAST);
        clocked.ran(FEW - 1, 1_000_000);
        assert_eq!(clocked, Clocked::new(LEAST));
        clocked.ran(u64::MAX, 0);
        assert_eq!(clocked.look_behind(u64::MAX), PARTS / 2);
    }

    /// Whoever counts as fast as before never comes past its target, and comes near soon.
    #[test]
    fn a_steady_program_comes_near_and_not_past() {
        for units in [1, 7, 100] {
            let (mut clocked, mut left, mut looks) = (Clocked::new(LEAST), 5_000_000_u64, 0);
            clocked.ran(1_000, 1_000 * units);
            while left > 1_024 {
                let ran = clocked.look_behind(left) / units;
                assert!(ran > 0 && ran <= left, "{units}: {ran} of {left}");
                left -= ran;
                clocked.ran(ran, ran * units);
                looks += 1;
            }
            assert!(looks <= 50, "{units}: {looks}");
        }
    }
}

//! How long the machine has been running, by a counter that the primary reads for all.
//!
//! *Idea: what a primary reads is what all replicas get*, so no comparison finds a wrong reading.
//! One that is far from the one before is therefore taken twice, and the earlier of the two counts:
//! a clock that once leapt ahead would have every time come at once, and then stand.
//!
//! It also answers for counters whose halves are not read at one moment.
//!
//! Contract: time never goes back. Not covered: readings that are wrong by less than a second, or
//! twice in a row, and the length of a tick, which is asked for once.

use rcoe_abi::Error;

use crate::arch::stamp;

/// Femtoseconds of a nanosecond, and of the longest tick.
const NANOSECOND: u64 = 1_000_000;
const LONGEST: u64 = 1000 * NANOSECOND;
/// Femtoseconds of a second.
const SECOND: u64 = 1_000_000_000 * NANOSECOND;

/// A clock of the machine.
#[derive(Debug)]
pub struct Clock {
    /// Where the counter's registers are: a capability's slot.
    device: u64,
    reckoning: Reckoning,
}

impl Clock {
    /// Has the counter of this device count, from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(device: u64) -> Result<Self, Error> {
        let period = stamp::start(device)?;
        // One that is too high would be ahead for ever.
        let first = stamp::read(device)?.min(stamp::read(device)?);
        let reckoning = Reckoning::new(period, first);
        Ok(Self { device, reckoning })
    }

    /// Nanoseconds since the start.
    ///
    /// # Errors
    /// The kernel's; the clock is as it was.
    pub fn nanoseconds(&mut self) -> Result<u64, Error> {
        let device = self.device;
        self.reckoning.advance(|| stamp::read(device))?;
        Ok(self.reckoning.nanoseconds())
    }

    /// What the counter showed last: another number in each run.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.reckoning.last
    }
}

/// Ticks that have passed, reckoned from readings.
#[derive(Debug)]
struct Reckoning {
    /// Femtoseconds of a tick.
    period: u64,
    /// The last reading, and ticks since the first.
    last: u64,
    ticks: u64,
}

impl Reckoning {
    fn new(period: u64, first: u64) -> Self {
        Self {
            period: period.clamp(1, LONGEST),
            last: first,
            ticks: 0,
        }
    }

    /// Takes in what the counter shows.
    fn advance(&mut self, read: impl Fn() -> Result<u64, Error>) -> Result<(), Error> {
        // A counter that seems to have gone back has leapt, too.
        let since = |reading: u64| reading.wrapping_sub(self.last);
        let mut passed = since(read()?);
        if passed > SECOND / self.period {
            passed = passed.min(since(read()?));
        }
        self.last = self.last.wrapping_add(passed);
        self.ticks = self.ticks.saturating_add(passed);
        Ok(())
    }

    fn nanoseconds(&self) -> u64 {
        // In parts, as no division of 128 bits is there where programs count their branches.
        let (whole, rest) = (self.ticks / NANOSECOND, self.ticks % NANOSECOND);
        whole
            .saturating_mul(self.period)
            .saturating_add(rest * self.period / NANOSECOND)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::vec::Vec;

    use super::*;

    /// Ten nanoseconds.
    const PERIOD: u64 = 10 * NANOSECOND;
    const A_SECOND: u64 = 100_000_000;

    /// What the clock shows after each of these readings, all of which it has to take.
    fn told(readings: &[&[u64]]) -> Vec<u64> {
        let mut clock = Reckoning::new(PERIOD, 1000);
        let after = |readings: &&[u64]| {
            let left = RefCell::new(readings.iter());
            clock
                .advance(|| Ok(*left.borrow_mut().next().expect("a reading too many")))
                .unwrap();
            assert_eq!(left.into_inner().len(), 0, "{readings:?}");
            clock.nanoseconds()
        };
        readings.iter().map(after).collect()
    }

    #[test]
    fn it_tells_what_has_passed() {
        assert_eq!(told(&[&[1001], &[1100], &[1100]]), [10, 1000, 1000]);
        // A long rest, which is read twice.
        let late = 1000 + 3600 * A_SECOND;
        assert_eq!(told(&[&[late, late + 1]]), [3_600_000_000_000]);
    }

    #[test]
    fn one_wrong_reading_moves_no_time() {
        for wrong in [0, 999, 1001 + 2 * A_SECOND, u64::MAX] {
            assert_eq!(told(&[&[1001], &[wrong, 1002], &[1003]]), [10, 20, 30]);
        }
    }

    #[test]
    fn nothing_overflows() {
        let mut clock = Reckoning::new(u64::MAX, 0);
        for _ in 0..3 {
            let far = clock.last.wrapping_add(u64::MAX);
            clock.advance(|| Ok(far)).unwrap();
        }
        assert_eq!(clock.nanoseconds(), u64::MAX);
    }

    #[test]
    fn a_reading_that_fails_leaves_it_as_it_was() {
        let mut clock = Reckoning::new(PERIOD, 7);
        let error = clock.advance(|| Err(Error::InvalidCapability));
        assert_eq!(error, Err(Error::InvalidCapability));
        assert_eq!((clock.last, clock.nanoseconds()), (7, 0));
    }
}

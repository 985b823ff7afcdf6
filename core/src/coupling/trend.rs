//! Who is ahead, by registers that move steadily.
//!
//! Intuition: most loops keep a counter or a pointer in a register. A replica that has seen such a
//! register move knows from the value in a target's state whether it has that value before it or
//! behind, and how far it is. CPU time tells that badly where cores share what they have.
//!
//! A register may begin anew between two looks, and seem to move steadily by chance. So several
//! looks have to agree, at intervals that differ, and nothing is told of a way longer than that on
//! which they did.
//!
//! Contract: a hint about progress only, on which no agreement rests. It can be wrong where a
//! register begins anew within what replicas are apart, so who relies on it tries without it, too.
//!
//! Not covered: loops whose counters stand in memory, recursion, interpreters.

/// Registers that are looked at.
pub const MOVING: usize = 16;

/// States that are remembered.
const SAMPLES: usize = 5;
/// Progress between two of them, at the least.
const APART: u64 = 50_000;
/// Rates are told in this part of a step a unit of progress: the counter of an outer loop makes few
/// steps.
const UNIT: i64 = 1 << 20;
/// The fastest that counts as steady motion.
const FASTEST: i64 = UNIT * 64;
/// Rates of one register differ by less: progress is a guess.
const SPREAD: i64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sample {
    progress: u64,
    registers: [u64; MOVING],
}

/// What a replica has seen of its own registers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trend {
    samples: [Option<Sample>; SAMPLES],
    /// Since which progress each register has moved steadily.
    steady: [Option<u64>; MOVING],
}

impl Trend {
    /// Nothing seen.
    pub const NONE: Self = Self {
        samples: [None; SAMPLES],
        steady: [None; MOVING],
    };

    /// After so much progress registers are these.
    pub fn note(&mut self, progress: u64, registers: &[u64; MOVING]) {
        let last = self.samples[SAMPLES - 1].map_or(0, |sample| sample.progress);
        if last != 0 && progress < last.saturating_add(APART) {
            return;
        }
        self.samples.rotate_left(1);
        self.samples[SAMPLES - 1] = Some(Sample {
            progress,
            registers: *registers,
        });
        let oldest = self.samples[0].map(|sample| sample.progress);
        for register in 0..MOVING {
            let is_steady = self.rates(register).is_some();
            let since = self.steady[register].or(oldest);
            self.steady[register] = since.filter(|_| is_steady);
        }
    }

    /// How far ahead a state with these registers is of the last that was noted, in units of
    /// progress; less than 0 if that is beyond it. `None` if no register tells.
    #[must_use]
    pub fn ahead(&self, target: &[u64; MOVING]) -> Option<i64> {
        let mut best: Option<(i64, i64)> = None;
        for (register, &wanted) in target.iter().enumerate() {
            let Some((slow, fast)) = self.rates(register) else {
                continue;
            };
            let last = self.samples[SAMPLES - 1]?;
            let way = wanted.wrapping_sub(last.registers[register]).cast_signed();
            let Some(way) = way.checked_mul(2 * UNIT) else {
                continue;
            };
            let ahead = way / (slow + fast);
            let seen = last.progress.saturating_sub(self.steady[register]?);
            if ahead.unsigned_abs() > seen {
                continue;
            }
            let spread = fast.abs().max(slow.abs()) * 16 / fast.abs().min(slow.abs());
            if best.is_none_or(|(least, _)| spread < least) {
                best = Some((spread, ahead));
            }
        }
        best.map(|(_, ahead)| ahead)
    }

    /// The least and the greatest rate at which this register moved, if that was steady.
    fn rates(&self, register: usize) -> Option<(i64, i64)> {
        let mut rates: Option<(i64, i64)> = None;
        for pair in self.samples.windows(2) {
            let (before, after) = (pair[0]?, pair[1]?);
            let way = after.registers[register].wrapping_sub(before.registers[register]);
            let took = i64::try_from(after.progress.checked_sub(before.progress)?).ok()?;
            let rate = way.cast_signed().checked_mul(UNIT)? / took.max(1);
            if !(1..=FASTEST).contains(&rate.abs()) {
                return None;
            }
            let (least, most) = rates.unwrap_or((rate, rate));
            rates = Some((least.min(rate), most.max(rate)));
        }
        let (least, most) = rates?;
        let one_way = least.signum() == most.signum();
        let slow = least.abs().min(most.abs());
        (one_way && least.abs().max(most.abs()) <= slow * SPREAD).then_some((least, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(counter: u64, noise: u64) -> [u64; MOVING] {
        let mut registers = [7; MOVING];
        (registers[3], registers[4]) = (counter, noise);
        registers
    }

    fn trend(counters: [u64; SAMPLES]) -> Trend {
        let mut trend = Trend::default();
        for (index, counter) in (1..).zip(counters) {
            let noise = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            trend.note(index * 1_000_000, &registers(counter, noise));
        }
        trend
    }

    #[test]
    fn a_counter_tells_how_far_it_is() {
        let counted = [0, 1, 2, 3, 4].map(|at| at * 1_000_000);
        let up = trend(counted);
        assert_eq!(up.ahead(&registers(4_500_000, 1)), Some(500_000));
        assert_eq!(up.ahead(&registers(3_500_000, 1)), Some(-500_000));
        let down = trend(counted.map(u64::wrapping_neg));
        assert_eq!(
            down.ahead(&registers(4_500_000_u64.wrapping_neg(), 1)),
            Some(500_000)
        );
    }

    #[test]
    fn what_does_not_move_steadily_tells_nothing() {
        for counters in [
            [5, 5, 5, 5, 5],
            [0, 1_000_000, 0, 1_000_000, 2_000_000],
            [0, 1_000_000, 20_000_000, 21_000_000, 22_000_000],
            [0, 9, 18, 27, 36],
        ] {
            let trend = trend(counters);
            assert_eq!(trend.ahead(&registers(23_000_000, 1)), None, "{counters:?}");
        }
    }

    #[test]
    fn a_longer_way_than_was_seen_is_not_told() {
        let mut trend = trend([0, 1, 2, 3, 4].map(|at| at * 1_000_000));
        let far = registers(10_000_000, 1);
        assert_eq!(trend.ahead(&far), None, "4 were seen, and it is 6 away");
        trend.note(6_000_000, &registers(5_000_000, 1));
        assert_eq!(trend.ahead(&far), Some(5_000_000));
        // It began anew: what was seen before counts no more.
        trend.note(7_000_000, &registers(0, 1));
        assert_eq!(trend.ahead(&registers(1, 1)), None);
    }

    #[test]
    fn registers_that_begin_anew_between_looks_are_no_counter() {
        // A loop of 1000 rounds of 23 ns, seen at intervals between 100 and 300 us.
        let mut trend = Trend::default();
        let (mut now, mut told) = (0, 0);
        for look in 1..=1000_u64 {
            now += 100_000 + look * 7919 % 200_000;
            trend.note(now, &registers(now / 23 % 1000 * 8, 1));
            told += u32::from(trend.ahead(&registers(0, 1)).is_some());
        }
        assert!(told < 20, "{told} times of 1000");
    }

    #[test]
    fn the_counter_of_an_outer_loop_tells_in_steps() {
        let mut trend = Trend::default();
        for look in 1..=5_u64 {
            let now = 150_000 * look + look % 2 * 60_000;
            trend.note(now, &registers(now / 25_000, 1));
        }
        let last = (150_000 * 5 + 60_000) / 25_000;
        let ahead = trend.ahead(&registers(last - 8, 1)).expect("it counts");
        assert!((-260_000..-140_000).contains(&ahead), "{ahead}");
    }

    #[test]
    fn nothing_is_told_before_enough_was_seen() {
        let mut trend = Trend::default();
        for look in 1..=3 {
            trend.note(look * 1_000_000, &registers((look - 1) * 1_000_000, 0));
        }
        trend.note(3_000_001, &registers(2_000_001, 0));
        assert_eq!(trend.ahead(&registers(2_500_000, 0)), None);
    }
}

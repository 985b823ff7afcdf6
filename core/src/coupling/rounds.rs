//! Who is ahead, by registers at visits to one place.
//!
//! Intuition: at a place in a loop the loop's counter moves by the same step from each visit to the
//! next. Three visits tell the step, and the value in a target's state how many visits it is away:
//! ahead, or behind. A register that stood still meanwhile and has another value in the target
//! belongs to a loop around this one, and the target to another round of that: then nothing is
//! known.
//!
//! Contract: a hint about progress only, on which no agreement rests. Who relies on it tries
//! without it, too.

use super::trend::MOVING;

/// Visits that are looked at.
pub const VISITS: usize = 3;

/// How many visits after the last one of these the target is; less than 0 if that is beyond it.
/// `None` if registers do not tell.
#[must_use]
pub fn rounds(visits: &[[u64; MOVING]; VISITS], target: &[u64; MOVING]) -> Option<i64> {
    let mut all = None;
    for (register, &wanted) in target.iter().enumerate() {
        let [first, second, last] = visits.map(|visit| visit[register]);
        let step = last.wrapping_sub(second);
        if second.wrapping_sub(first) != step {
            continue;
        }
        let way = wanted.wrapping_sub(last).cast_signed();
        if step == 0 {
            if way != 0 {
                return None;
            }
            continue;
        }
        let step = step.cast_signed();
        let rounds = way.checked_div(step)?;
        if way.checked_rem(step)? != 0 || all.is_some_and(|other| other != rounds) {
            return None;
        }
        all = Some(rounds);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of a round: a counter, a pointer that goes down, a sum that tells nothing, and one
    /// of the loop around.
    fn visit(round: u64, around: u64) -> [u64; MOVING] {
        let mut registers = [7; MOVING];
        registers[1] = round;
        registers[2] = 0x1000_u64.wrapping_sub(16 * round);
        registers[3] = (round + 1).wrapping_mul(round + around);
        registers[5] = around;
        registers
    }

    fn at(round: u64) -> [[u64; MOVING]; VISITS] {
        [0, 1, 2].map(|more| visit(round + more, 4))
    }

    #[test]
    fn counters_tell_how_many_rounds_the_target_is_away() {
        for round in [0_i64, 5, 97, 98, 99, 400] {
            let away = 100 - (round + 2);
            let told = rounds(&at(round.cast_unsigned()), &visit(100, 4));
            assert_eq!(told, Some(away), "from {round}");
        }
    }

    #[test]
    fn another_round_of_the_loop_around_is_not_told() {
        assert_eq!(rounds(&at(10), &visit(20, 5)), None);
    }

    #[test]
    fn counters_have_to_agree() {
        let mut target = visit(20, 4);
        target[2] -= 16;
        assert_eq!(rounds(&at(10), &target), None, "another number of rounds");
        target[2] -= 1;
        assert_eq!(rounds(&at(10), &target), None, "no whole number");
    }

    #[test]
    fn without_a_counter_nothing_is_told() {
        let chaos = [3, 900, 17].map(|value| [value; MOVING]);
        assert_eq!(rounds(&chaos, &[4; MOVING]), None);
        assert_eq!(rounds(&[[3; MOVING]; VISITS], &[3; MOVING]), None);
        let least = [[0; MOVING], [u64::MAX; MOVING], [u64::MAX - 1; MOVING]];
        let furthest = [i64::MIN.cast_unsigned().wrapping_sub(2); MOVING];
        assert_eq!(rounds(&least, &furthest), None, "too far for a number");
    }
}

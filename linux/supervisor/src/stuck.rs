//! Finds a replica that does not get on with its turn among the processes that share memory.
//!
//! Intuition: a turn comes in every slice, and ends in each when that replica has come so far. A
//! replica that sleeps where nobody will wake it, after a flip in a register with which it waits,
//! say, keeps its slice at its turn. Its own siblings need not notice, for they may wait for the
//! outside after theirs; replicas of other processes wait for that slice, and they are not at
//! fault. So who is to blame is found here: the one whose turn it is in a slice that is behind. And
//! where a turn is over nowhere because the primary that has claimed it, or its successor, does not
//! come to it, that primary: nothing is waited for between a claim and its turn.
//!
//! Contract: who is behind has all that it needs, since its siblings have had that turn, so it can
//! get on by itself. Counted is time in which it sleeps; a replica that runs, or could if it got a
//! CPU, is left to its siblings' patience. A gap between two looks counts for little.
//!
//! Not covered: a replica that sleeps in a turn that is over nowhere, where its program may wait
//! for something outside.

use std::time::{Duration, Instant};

/// Longest time between two looks that counts: whoever did not look meanwhile was stopped, and
/// perhaps so were the others.
const GAP: Duration = Duration::from_millis(200);
/// How often to look while a slice is behind.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// So many timeouts a replica may sleep in its turn.
const PATIENCE: u32 = 5;

/// What is known of every slice.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    slices: Vec<Slice>,
}

/// A slice that was behind at the last look, if it was.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    behind: Option<Behind>,
}

#[derive(Clone, Copy, Debug)]
struct Behind {
    turn: u32,
    slept: Duration,
    looked: Instant,
}

impl Stuck {
    /// Is some slice behind the others?
    pub(crate) fn is_watching(&self) -> bool {
        self.slices.iter().any(|slice| slice.behind.is_some())
    }

    /// A look at the present turns of slices that are used, each by its number, all of them. Tells
    /// of one whose turn has lasted too long. `sleeps`: whether who has the turn of this number in
    /// this slice neither runs nor could. `owes`: whether that one leads its group, which has
    /// claimed the turn, and has not come to it.
    pub(crate) fn look(
        &mut self,
        turns: &[(usize, u32)],
        now: Instant,
        timeout: Duration,
        sleeps: impl Fn(usize, u32) -> bool,
        owes: impl Fn(usize, u32) -> bool,
    ) -> Option<(usize, u32)> {
        let ahead = |turn: u32, other: u32| other.wrapping_sub(turn).cast_signed() > 0;
        let count = turns.iter().map(|&(slice, _)| slice + 1).max().unwrap_or(0);
        self.slices.resize(count, Slice::default());
        for (slice, state) in self.slices.iter_mut().enumerate() {
            let turn = turns.iter().find(|it| it.0 == slice).map(|it| it.1);
            let is_behind = |turn| turns.iter().any(|&(_, other)| ahead(turn, other));
            let turn = turn.filter(|&turn| is_behind(turn) || owes(slice, turn));
            state.behind = turn.map(|turn| {
                let same = state.behind.filter(|it| it.turn == turn);
                let since = same.map_or(Duration::ZERO, |it| now.duration_since(it.looked));
                let slept = if sleeps(slice, turn) {
                    since.min(GAP)
                } else {
                    Duration::ZERO
                };
                Behind {
                    turn,
                    slept: same.map_or(Duration::ZERO, |it| it.slept) + slept,
                    looked: now,
                }
            });
        }
        let behind = self.slices.iter().enumerate();
        let mut behind = behind.filter_map(|(slice, state)| Some((slice, state.behind?)));
        let late = behind.find(|(_, it)| it.slept >= timeout.saturating_mul(PATIENCE));
        late.map(|(slice, it)| (slice, it.turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    /// Looks every 100 ms for so long, and tells when one was late.
    fn watch(
        seconds: u64,
        turns: impl Fn(u32) -> [(usize, u32); 3],
        sleeps: bool,
    ) -> Option<(u32, (usize, u32))> {
        let mut stuck = Stuck::default();
        let start = Instant::now();
        (0..u32::try_from(seconds).expect("few") * 10).find_map(|step| {
            let now = start + LOOK * step;
            let late = stuck.look(&turns(step), now, TIMEOUT, |_, _| sleeps, |_, _| false);
            late.map(|late| (step, late))
        })
    }

    #[test]
    fn who_sleeps_in_a_turn_that_is_over_elsewhere_is_late() {
        let stuck = |_| [(0, 9), (1, 7), (2, 8)];
        let late = watch(60, stuck, true).expect("one is late");
        assert_eq!(late, (100, (1, 7)), "of both the first that is behind");
        assert_eq!(watch(60, stuck, false), None, "it waits for a CPU");
    }

    #[test]
    fn who_does_not_come_to_the_turn_that_it_has_claimed_is_late() {
        let mut stuck = Stuck::default();
        let (start, turns) = (Instant::now(), [(0, 9), (1, 9), (2, 9)]);
        let owes = |slice, turn| (slice, turn) == (2, 9);
        let late = (0..600).find_map(|step| {
            let now = start + LOOK * step;
            let late = stuck.look(&turns, now, TIMEOUT, |_, _| true, owes);
            late.map(|late| (step, late))
        });
        assert_eq!(late, Some((100, (2, 9))));
    }

    #[test]
    fn who_gets_on_is_not_late() {
        assert_eq!(watch(60, |_| [(0, 9), (1, 9), (2, 9)], true), None);
        let slow = |step| [(0, step + 9), (1, step / 50), (2, step + 9)];
        assert_eq!(watch(60, slow, true), None);
    }

    #[test]
    fn turns_come_after_the_last_number_too() {
        let stuck = |_| [(0, 3), (1, u32::MAX), (2, 3)];
        assert_eq!(watch(60, stuck, true).map(|it| it.1), Some((1, u32::MAX)));
    }

    #[test]
    fn a_gap_between_looks_counts_for_little() {
        let mut stuck = Stuck::default();
        let start = Instant::now();
        let turns = [(0, 9), (1, 7), (2, 9)];
        let mut look = |at: u64| {
            let now = start + Duration::from_secs(at);
            stuck.look(&turns, now, TIMEOUT, |_, _| true, |_, _| false)
        };
        assert_eq!([0, 3600, 7200].map(&mut look), [None; 3]);
        assert!(stuck.is_watching());
    }
}

//! Who is left of a machine's replicas, by what they tell.
//!
//! A replica that cannot go on while others do leaves the machine to them. If it is wrong in that,
//! or a broken one has stopped the others' cores before it was found, nobody is there to end the
//! machine: then the host does.
//!
//! Contract: a removal counts once, whoever tells it and however late. Whoever is told to be gone
//! is taken for gone, since any core can stop any other.

use std::collections::{BTreeMap, BTreeSet};

use crate::Entry;

/// The replicas of a machine.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    here: BTreeSet<u64>,
    /// By which vote each was removed last.
    votes: BTreeMap<u64, u64>,
    /// Were there ever several?
    several: bool,
}

impl Presence {
    /// What this replica has told.
    pub(crate) fn note(&mut self, teller: usize, entry: &Entry) {
        match entry {
            Entry::Start(count) if !self.several => {
                self.here = (0..*count).collect();
                self.several = *count > 1;
            }
            Entry::Removed(gone, _, vote)
                if self.votes.get(gone).is_none_or(|last| last < vote) =>
            {
                self.votes.insert(*gone, *vote);
                self.here.remove(gone);
            }
            Entry::Joined(who) => drop(self.here.insert(*who)),
            Entry::Convicted | Entry::Broken(_) => drop(self.here.remove(&(teller as u64))),
            _ => {}
        }
    }

    /// There were several, and nobody is left. One that is alone ends the machine itself.
    pub(crate) fn nobody_is_left(&self) -> bool {
        self.several && self.here.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(told: &[(usize, &str)]) -> bool {
        let mut presence = Presence::default();
        for (teller, line) in told {
            presence.note(*teller, &Entry::parse(line));
        }
        presence.nobody_is_left()
    }

    #[test]
    fn nobody_is_left_when_the_last_one_withdraws() {
        let mut told = vec![
            (0, "start 3"),
            (1, "removed 0 mismatch 9"),
            (2, "removed 1 mismatch 9"),
        ];
        assert!(!after(&told));
        told.push((2, "withdraws no-majority"));
        assert!(after(&told));
        told.push((1, "joined 2"));
        assert!(!after(&told));
    }

    #[test]
    fn a_removal_that_is_told_late_counts_once() {
        let told = [
            (0, "start 3"),
            (0, "removed 2 timeout 4"),
            (0, "joined 2"),
            (1, "removed 2 timeout 4"),
            (0, "removed 1 timeout 8"),
            (2, "removed 0 timeout 12"),
        ];
        assert!(!after(&told), "the one that came back is there");
        assert!(after(&[&told[..], &[(2, "panic here")]].concat()));
    }

    #[test]
    fn one_that_is_alone_ends_by_itself() {
        assert!(!after(&[(0, "start 1"), (0, "panic here")]));
        assert!(!after(&[]));
        assert!(after(&[
            (0, "start 2"),
            (0, "panic here"),
            (1, "panic here")
        ]));
    }
}

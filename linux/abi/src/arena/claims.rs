//! The order of turns: a ring of claims that the primaries of all groups write.
//!
//! Processes that share memory run one at a time in every slice, and in the same order in all. A
//! group's primary claims the next turn for its group here; its siblings learn the number from its
//! trace. A claim names its group, so that the successor of a primary that was lost between the
//! claim and the word to its siblings finds it and takes the turn that is its group's.
//!
//! The supervisor claims one when it wants all slices at rest.
//!
//! Turns are claimed only by groups that have none, so no more are open than there are groups, and
//! a place of the ring is never claimed again before its turn is over everywhere.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::GROUPS;

/// Places of the ring.
const PLACES: usize = 4 * GROUPS;
/// Bits of a claim that name the group.
const GROUP_BITS: u32 = 8;
const _: () = assert!(GROUPS <= Claims::REST);

/// The ring.
#[repr(C)]
#[derive(Debug)]
pub struct Claims {
    /// No turn below this number is unclaimed; may lag behind.
    next: AtomicU64,
    /// The last claim of each place: number of the turn plus one, and the group.
    places: [AtomicU64; PLACES],
}

const fn pack(turn: u64, group: usize) -> u64 {
    (turn + 1) << GROUP_BITS | group as u64
}

impl Claims {
    /// Claims a turn in place of a group: the supervisor, which has all slices at rest then.
    pub const REST: usize = (1 << GROUP_BITS) - 1;

    /// An empty ring, as zeroed memory is one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            places: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    fn place(&self, turn: u64) -> &AtomicU64 {
        let at = turn % PLACES as u64;
        &self.places[usize::try_from(at).unwrap_or(0)]
    }

    /// Claims the next turn for a group; returns its number.
    pub fn claim(&self, group: usize) -> u64 {
        loop {
            let turn = self.next();
            let place = self.place(turn);
            let old = place.load(Ordering::Acquire);
            let free = old >> GROUP_BITS <= turn;
            let claimed = free
                && place
                    .compare_exchange(old, pack(turn, group), Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            // Whoever sees it taken moves on, so that a claimant lost here holds nobody up.
            let _ = self
                .next
                .compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed);
            if claimed {
                return turn;
            }
        }
    }

    /// The first turn that nobody has claimed, or one before it.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// The group that has claimed the turn with this low half of its number, of those that may
    /// still be open.
    #[must_use]
    pub fn owner(&self, turn: u32) -> Option<usize> {
        let next = self.next();
        let back = next.wrapping_sub(1).wrapping_sub(u64::from(turn)) & u64::from(u32::MAX);
        let turn = next.checked_sub(1)?.checked_sub(back)?;
        let word = self.place(turn).load(Ordering::Acquire);
        let group = word & ((1 << GROUP_BITS) - 1);
        let claimed = word >> GROUP_BITS == turn + 1;
        usize::try_from(group).ok().filter(|_| claimed)
    }

    /// The oldest claim of this group from turn `least` on.
    #[must_use]
    pub fn find(&self, group: usize, least: u64) -> Option<u64> {
        let claims = self.places.iter().map(|it| it.load(Ordering::Acquire));
        claims
            .filter(|word| *word != 0 && *word & ((1 << GROUP_BITS) - 1) == group as u64)
            .map(|word| (word >> GROUP_BITS) - 1)
            .filter(|turn| *turn >= least)
            .min()
    }
}

impl Default for Claims {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn turns_are_given_in_order_round_the_ring() {
        let claims = Claims::new();
        for turn in 0..3 * PLACES as u64 {
            assert_eq!(claims.claim(5), turn);
        }
    }

    #[test]
    fn the_claim_of_a_lost_primary_is_found_by_its_group_alone() {
        let claims = Claims::new();
        assert_eq!(claims.claim(0), 0);
        assert_eq!(claims.claim(7), 1);
        assert_eq!(claims.find(7, 0), Some(1));
        assert_eq!(claims.find(7, 2), None);
        assert_eq!(claims.find(3, 0), None);
        assert_eq!(
            [0, 1, 2].map(|turn| claims.owner(turn)),
            [Some(0), Some(7), None]
        );
        assert_eq!(claims.claim(7), 2);
        assert_eq!(claims.find(7, 2), Some(2));
        assert_eq!(claims.find(0, 0), Some(0));
    }

    #[test]
    fn a_claimant_that_stops_half_way_holds_nobody_up() {
        let claims = Claims::new();
        claims.places[0].store(pack(0, 9), Ordering::Relaxed);
        assert_eq!(claims.claim(4), 1);
        assert_eq!(claims.find(9, 0), Some(0));
    }

    #[test]
    fn every_turn_is_given_once() {
        let claims = Claims::new();
        let all = std::thread::scope(|scope| {
            let each = |group| {
                scope.spawn({
                    let claims = &claims;
                    move || (0..100).map(|_| claims.claim(group)).collect::<Vec<_>>()
                })
            };
            let threads: Vec<_> = (0..4).map(each).collect();
            let lists = threads.into_iter().map(|it| it.join().unwrap());
            lists.flatten().collect::<Vec<_>>()
        });
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..400).collect::<Vec<u64>>());
    }
}

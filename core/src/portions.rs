//! Copying in portions: a replica's memory is copied while programs run, and all stand still for
//! one portion at a time.
//!
//! Memory is a row of *blocks*. Of each is known whether the copy has what is in it ([`Kept`]): a
//! block that is written to is forgotten, and is copied again. At every portion all members meet at
//! one point of the trace:
//!
//! 1. All forget what was written since the last one.
//! 2. The *donor* offers how far it would go ([`Plan::offer`]): as far as its budget allows. If all
//!    that is left is within the budget, it is the last portion.
//! 3. All make a digest of what is in the portion and was not compared since it was written, and
//!    tell it. Whoever differs from most is *odd* and is not copied ([`Plan::judge`]).
//! 4. The donor copies what the copy does not have of it. All note the portion as kept.
//!
//! So what is copied was compared at the moment at which it was copied, and what goes wrong in the
//! donor behind that moment is not copied.
//!
//! Some blocks are *apart*: they may differ between members that are all right, because a thread
//! was interrupted in the midst of writing them, at another instruction in each. They are copied,
//! but they do not count as compared. When the thread waits, they have the same contents everywhere
//! and are compared. Other blocks are the kernel's *own*: it writes them and takes no note of that,
//! so they are left for the last portion.
//!
//! Contract: members that are all right have the same blocks apart and own, and have compared the
//! same ones of those that are not apart. Bound: a program that writes faster than is copied would
//! be followed for ever, so behind [`ROUNDS`] rounds through memory the next portion is the last
//! one, however long.
//!
//! Not covered: how writes are noticed, what a digest is, and the admission of the copy
//! ([`crate::Node::expect_newcomer`]).

use core::ops::Range;

use crate::{ReplicaId, ReplicaSet};

/// Blocks for which there is one word of a set: portions begin and end between words.
pub const WORD: u64 = 64;

/// Rounds through memory before the last portion is made, whatever is left.
pub const ROUNDS: u32 = 8;

/// What it costs to compare a block, where to copy one costs 1: each member makes a digest of it,
/// which takes longer than to copy it.
pub const COMPARED: u64 = 4;

/// What is known of each block; sets of 64 blocks to a word.
#[derive(Debug)]
pub struct Kept<'a> {
    /// The copy has it.
    copied: &'a mut [u64],
    /// It was compared, and not written since.
    compared: &'a mut [u64],
    /// The kernel writes it and takes no note.
    own: &'a mut [u64],
}

/// The words in which these blocks are, with their bits.
fn masks(blocks: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let words = blocks.start / WORD..blocks.end.div_ceil(WORD);
    words.map(move |word| {
        let first = blocks.start.saturating_sub(word * WORD);
        let behind = (blocks.end - word * WORD).min(WORD);
        let mask = (u64::MAX >> (WORD - behind)) & (u64::MAX << first);
        (usize::try_from(word).expect("sets are in memory"), mask)
    })
}

impl<'a> Kept<'a> {
    /// Three sets in `words`, in which nothing is known of any block.
    #[must_use]
    pub fn new(words: &'a mut [u64]) -> Self {
        words.fill(0);
        let len = words.len() / 3;
        let (copied, rest) = words.split_at_mut(len);
        let (compared, own) = rest.split_at_mut(len);
        Self {
            copied,
            compared,
            own,
        }
    }

    /// Blocks for which there is room.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.own.len() as u64 * WORD
    }

    /// A copy begins: it has nothing.
    pub fn begin(&mut self) {
        self.copied.fill(0);
        self.compared.fill(0);
    }

    /// These were written.
    pub fn forget(&mut self, blocks: Range<u64>) {
        for (word, mask) in masks(blocks) {
            self.copied[word] &= !mask;
            self.compared[word] &= !mask;
        }
    }

    /// The kernel writes these from here on, and takes no note.
    pub fn own(&mut self, blocks: Range<u64>) {
        masks(blocks).for_each(|(word, mask)| self.own[word] |= mask);
    }

    /// The kernel takes note of what it writes into these.
    pub fn disown(&mut self, blocks: Range<u64>) {
        masks(blocks).for_each(|(word, mask)| self.own[word] &= !mask);
    }

    /// The set of the kernel's own blocks.
    #[must_use]
    pub const fn owned(&self) -> &[u64] {
        self.own
    }

    /// Those of a word that the copy does not have.
    #[must_use]
    pub const fn missing(&self, word: usize) -> u64 {
        !self.copied[word] | self.own[word]
    }

    /// Those of a word that are to be compared: of the kernel's own only in the last portion.
    #[must_use]
    pub const fn unchecked(&self, word: usize, apart: &[u64], last: bool) -> u64 {
        let own = self.own[word];
        let left_out = if last { 0 } else { own };
        (!self.compared[word] | own) & !apart[word] & !left_out
    }

    /// What it costs to compare and copy a word's blocks.
    const fn cost(&self, word: usize, apart: &[u64], last: bool) -> u64 {
        let own = if last { 0 } else { self.own[word] };
        let missing = (self.missing(word) & !own).count_ones() as u64;
        let unchecked = self.unchecked(word, apart, last).count_ones() as u64;
        missing + COMPARED * unchecked
    }

    /// The portion was copied: these words' blocks but the kernel's own.
    pub fn keep(&mut self, words: Range<usize>, apart: &[u64]) {
        for word in words {
            self.copied[word] |= !self.own[word];
            self.compared[word] |= !self.own[word] & !apart[word];
        }
    }
}

/// What all do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Portion {
    /// These words' blocks, of which the kernel's own are left out.
    Words(Range<usize>),
    /// All that is left.
    Last,
    /// The donor cannot copy into the lost replica's memory.
    Impossible,
}

/// The offer of a donor that cannot.
pub const IMPOSSIBLE: u64 = 0;
/// The offer to copy all that is left.
pub const LAST: u64 = 1;
const WORDS: u64 = 2;

/// A copy that is being made. All members hold the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    newcomer: ReplicaId,
    members: ReplicaSet,
    epoch: u64,
    /// Members that were found to differ from most.
    odd: ReplicaSet,
    /// The word at which the next portion begins.
    next: usize,
    /// Rounds through memory.
    rounds: u32,
}

impl Plan {
    /// A copy of one of the members is to be made.
    #[must_use]
    pub const fn new(newcomer: ReplicaId, members: ReplicaSet, epoch: u64) -> Self {
        let odd = ReplicaSet::empty();
        let (next, rounds) = (0, 0);
        Self {
            newcomer,
            members,
            epoch,
            odd,
            next,
            rounds,
        }
    }

    /// Who is to be copied into.
    #[must_use]
    pub const fn newcomer(&self) -> ReplicaId {
        self.newcomer
    }

    /// Who was found to differ from most.
    #[must_use]
    pub const fn odd(&self) -> ReplicaSet {
        self.odd
    }

    /// Has nobody been lost or taken in since it began?
    #[must_use]
    pub fn holds(&self, members: ReplicaSet, epoch: u64) -> bool {
        self.members == members && self.epoch == epoch
    }

    /// Who is copied: the last that does not have effects and is not odd.
    #[must_use]
    pub fn donor(&self, primary: ReplicaId) -> Option<ReplicaId> {
        self.members.minus(self.odd).without(primary).iter().last()
    }

    /// The donor's offer, given what is apart and how many words there are: as many as can be
    /// compared and copied within the budget, at least one.
    #[must_use]
    pub fn offer(&self, kept: &Kept<'_>, apart: &[u64], end: usize, budget: u64) -> u64 {
        let mut left = 0;
        let all = (0..end).all(|word| {
            left += kept.cost(word, apart, true);
            left <= budget
        });
        if all || self.rounds >= ROUNDS {
            return LAST;
        }
        let mut spent = 0;
        let within = |&word: &usize| {
            spent += kept.cost(word, apart, false);
            spent > budget
        };
        let stop = (self.next..end).find(within).unwrap_or(end);
        let stop = stop.max(self.next + 1);
        (stop as u64) << 2 | WORDS
    }

    /// What the donor's offer means, whatever it wrote; none if it is no offer.
    #[must_use]
    pub fn read(&self, offer: u64, end: usize) -> Option<Portion> {
        let stop = usize::try_from(offer >> 2).ok()?;
        match offer & 3 {
            WORDS if self.next < stop && stop <= end => Some(Portion::Words(self.next..stop)),
            _ if offer == LAST => Some(Portion::Last),
            _ if offer == IMPOSSIBLE => Some(Portion::Impossible),
            _ => None,
        }
    }

    /// Those whose digests are what most say, if that is more than half of all members; the rest is
    /// odd from here on. Of two groups that are as large the one with the lowest member counts.
    pub fn judge(&mut self, says: impl Fn(ReplicaId) -> u64) -> Option<ReplicaSet> {
        let able = self.members.minus(self.odd);
        let alike = largest_group(able, says);
        let most = alike.len() * 2 > self.members.len();
        most.then(|| {
            self.odd = self.members.minus(alike);
            alike
        })
    }

    /// A portion was copied and is kept.
    pub const fn advance(&mut self, stop: usize, end: usize) {
        self.next = stop;
        if stop >= end {
            self.next = 0;
            self.rounds += 1;
        }
    }

    /// The donor is odd: another is copied, from the beginning.
    pub fn begin_again(&mut self, donor: ReplicaId) {
        self.odd = self.odd.with(donor);
        (self.next, self.rounds) = (0, 0);
    }
}

/// The largest group of members of which all say the same; of two that are as large the one with
/// the lowest member.
fn largest_group(members: ReplicaSet, says: impl Fn(ReplicaId) -> u64) -> ReplicaSet {
    let group = |of: ReplicaId| {
        let said = says(of);
        let same = members.iter().filter(|&member| says(member) == said);
        same.fold(ReplicaSet::empty(), ReplicaSet::with)
    };
    let larger = |best: ReplicaSet, next: ReplicaSet| {
        if next.len() > best.len() { next } else { best }
    };
    members.iter().map(group).fold(ReplicaSet::empty(), larger)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const fn replica(number: u8) -> ReplicaId {
        ReplicaId::new(number)
    }

    fn plan(members: usize) -> Plan {
        Plan::new(replica(3), ReplicaSet::all(members), 5)
    }

    #[test]
    fn blocks_are_kept_until_they_are_written() {
        let mut words = [7; 9];
        let mut kept = Kept::new(&mut words);
        let apart = [0, 1 << 3, 0];
        assert_eq!((kept.blocks(), kept.missing(1)), (192, u64::MAX));
        kept.own(66..67);
        kept.keep(0..3, &apart);
        assert_eq!((kept.missing(0), kept.missing(1)), (0, 1 << 2));
        assert_eq!(kept.unchecked(1, &[0; 3], false), 1 << 3);
        assert_eq!(kept.unchecked(1, &apart, true), 1 << 2);
        // What becomes the kernel's own is written from then on, whatever it was before.
        kept.own(64..65);
        assert_eq!(kept.unchecked(1, &apart, true), 0b101);
        assert_eq!(kept.unchecked(1, &apart, false), 0);
        kept.disown(64..65);
        kept.forget(60..130);
        let missing = [0, 1, 2].map(|word| kept.missing(word));
        assert_eq!(missing, [0xf << 60, u64::MAX, 0b11]);
        kept.forget(128..128);
        assert_eq!(kept.missing(2), 0b11);
        kept.disown(0..192);
        kept.keep(1..2, &apart);
        assert_eq!(kept.missing(1), 0);
        kept.begin();
        assert_eq!(kept.missing(0), u64::MAX);
    }

    #[test]
    fn a_portion_costs_no_more_than_the_budget() {
        let mut words = [0; 30];
        let mut kept = Kept::new(&mut words);
        let (mut plan, apart) = (plan(3), [0; 10]);
        let each = 64 * (1 + COMPARED);
        let offer = plan.offer(&kept, &apart, 10, 3 * each + 1);
        assert_eq!(plan.read(offer, 10), Some(Portion::Words(0..3)));
        // What need not be compared is cheaper, and one word can always be done.
        let offer = plan.offer(&kept, &[u64::MAX; 10], 10, 9 * 64);
        assert_eq!(plan.read(offer, 10), Some(Portion::Words(0..9)));
        let offer = plan.offer(&kept, &apart, 10, 1);
        assert_eq!(plan.read(offer, 10), Some(Portion::Words(0..1)));
        kept.keep(0..7, &apart);
        plan.advance(7, 10);
        // The kernel's own is left for the end, where it counts.
        kept.own(0..64);
        let offer = plan.offer(&kept, &apart, 10, 3 * each);
        assert_eq!(plan.read(offer, 10), Some(Portion::Words(7..10)));
        let offer = plan.offer(&kept, &apart, 10, 4 * each);
        assert_eq!(plan.read(offer, 10), Some(Portion::Last));
    }

    #[test]
    fn a_copy_ends_behind_so_many_rounds() {
        let mut words = [0; 30];
        let (mut plan, mut portions) = (plan(2), 0);
        let kept = Kept::new(&mut words);
        while let Some(Portion::Words(part)) = plan.read(plan.offer(&kept, &[0; 10], 10, 400), 10) {
            plan.advance(part.end, 10);
            portions += 1;
        }
        assert_eq!(portions, 10 * ROUNDS);
    }

    #[test]
    fn what_is_no_offer_is_known_as_none() {
        let mut plan = plan(2);
        plan.advance(4, 10);
        for wrong in [
            3,
            4 << 2 | WORDS,
            11 << 2 | WORDS,
            5 << 2 | LAST,
            1 << 2,
            u64::MAX,
        ] {
            assert_eq!(plan.read(wrong, 10), None, "{wrong:#x}");
        }
        assert_eq!(plan.read(10 << 2 | WORDS, 10), Some(Portion::Words(4..10)));
        assert_eq!(plan.read(IMPOSSIBLE, 10), Some(Portion::Impossible));
    }

    #[test]
    fn who_differs_from_most_is_not_copied() {
        let primary = replica(0);
        let mut plan = plan(3);
        assert_eq!(plan.donor(primary), Some(replica(2)));
        let says = |id: ReplicaId| u64::from(id.index() == 2);
        let alike = plan.judge(says).expect("two of three");
        assert_eq!(alike, ReplicaSet::all(2));
        assert_eq!(plan.donor(primary), Some(replica(1)));
        // One that was odd once does not count as one of most.
        let says = |id: ReplicaId| u64::from(id.index() == 0);
        assert_eq!(plan.judge(says), None);
        plan.begin_again(replica(1));
        assert_eq!(plan.donor(primary), None);
    }

    #[test]
    fn of_two_that_differ_nobody_is_most() {
        assert_eq!(plan(2).judge(|id| id.index() as u64), None);
        assert_eq!(plan(2).judge(|_| 1), Some(ReplicaSet::all(2)));
    }

    #[test]
    fn a_plan_is_of_one_group() {
        let plan = plan(2);
        assert!(plan.holds(ReplicaSet::all(2), 5));
        assert!(!plan.holds(ReplicaSet::all(2), 6) && !plan.holds(ReplicaSet::all(1), 5));
        assert_eq!(plan.newcomer(), replica(3));
    }
}

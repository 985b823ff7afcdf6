//! Who takes part: replica ids and sets of them.

use core::fmt;

/// The most replicas one group can have.
pub const MAX_REPLICAS: usize = 8;

const _: () = assert!(
    MAX_REPLICAS == u8::BITS as usize,
    "a ReplicaSet is one byte"
);

/// Number of a replica in its group, `0 .. MAX_REPLICAS`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaId(u8);

impl ReplicaId {
    /// The replica with this number.
    ///
    /// # Panics
    /// If `number` is not below [`MAX_REPLICAS`].
    #[must_use]
    #[inline]
    pub const fn new(number: u8) -> Self {
        assert!((number as usize) < MAX_REPLICAS);
        Self(number)
    }

    /// The number, for indexing tables of [`MAX_REPLICAS`] entries.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 & 7) as usize
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{}", self.0)
    }
}

/// A set of replicas, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ReplicaSet(u8);

impl ReplicaSet {
    /// No replica.
    #[must_use]
    #[inline]
    pub const fn empty() -> Self {
        Self(0)
    }

    /// The replicas `0 .. n`.
    ///
    /// # Panics
    /// If `n` exceeds [`MAX_REPLICAS`].
    #[must_use]
    pub const fn all(n: usize) -> Self {
        assert!(n <= MAX_REPLICAS);
        if n == MAX_REPLICAS {
            Self(0xff)
        } else {
            Self((1 << n) - 1)
        }
    }

    /// The set with these bits, bit i standing for replica i.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// One bit for each member.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// This set and `id`.
    #[must_use]
    #[inline]
    pub const fn with(self, id: ReplicaId) -> Self {
        Self(self.0 | (1 << id.index()))
    }

    /// This set but `id`.
    #[must_use]
    #[inline]
    pub const fn without(self, id: ReplicaId) -> Self {
        Self(self.0 & !(1 << id.index()))
    }

    /// All that are in either.
    #[must_use]
    #[inline]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All that are here and not in `other`.
    #[must_use]
    #[inline]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Is every member of this set in `other`?
    #[must_use]
    #[inline]
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Is `id` in the set?
    #[must_use]
    #[inline]
    pub const fn contains(self, id: ReplicaId) -> bool {
        self.0 & (1 << id.index()) != 0
    }

    /// How many.
    #[must_use]
    #[inline]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Nobody there?
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The member with the lowest number: the primary of a group.
    #[must_use]
    #[inline]
    pub const fn lowest(self) -> Option<ReplicaId> {
        match self.0 {
            0 => None,
            #[expect(clippy::cast_possible_truncation, reason = "below 8")]
            bits => Some(ReplicaId(bits.trailing_zeros() as u8)),
        }
    }

    /// The lowest member with a number above `id`.
    #[must_use]
    #[inline]
    pub const fn after(self, id: ReplicaId) -> Option<ReplicaId> {
        Self(self.0 & (0xfe_u8 << id.index())).lowest()
    }

    /// The members in ascending order.
    #[inline]
    pub fn iter(self) -> Iter {
        Iter(self)
    }
}

impl IntoIterator for ReplicaSet {
    type Item = ReplicaId;
    type IntoIter = Iter;
    #[inline]
    fn into_iter(self) -> Iter {
        self.iter()
    }
}

impl fmt::Debug for ReplicaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Iterator over a [`ReplicaSet`].
#[derive(Clone, Debug)]
pub struct Iter(ReplicaSet);

impl Iterator for Iter {
    type Item = ReplicaId;
    #[inline]
    fn next(&mut self) -> Option<ReplicaId> {
        let id = self.0.lowest()?;
        // Without the lowest bit.
        self.0 = ReplicaSet(self.0.0 & (self.0.0 - 1));
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_as_sets() {
        let set = ReplicaSet::all(3).without(ReplicaId::new(1));
        assert_eq!(set.len(), 2);
        assert!(set.contains(ReplicaId::new(0)));
        assert!(!set.contains(ReplicaId::new(1)));
        assert!(set.iter().map(ReplicaId::index).eq([0, 2]));
        assert_eq!(set.lowest(), Some(ReplicaId::new(0)));
        assert_eq!(set.after(ReplicaId::new(0)), Some(ReplicaId::new(2)));
        assert_eq!(set.after(ReplicaId::new(2)), None);
        assert_eq!(ReplicaSet::all(8).after(ReplicaId::new(7)), None);
        assert_eq!(ReplicaSet::empty().lowest(), None);
    }
}

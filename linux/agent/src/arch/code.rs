//! Which mappings of code are known, in which calls may be rewritten.
//!
//! Of one that has changed in part no other call is rewritten: nobody can say any more from where
//! it is entered. It stays known, for calls in the rest of it were rewritten.

/// A half-open range of addresses.
type Range = core::ops::Range<u64>;

/// Most mappings that are known. In others nothing is rewritten.
const MOST: usize = 256;

/// One mapping, or what is left of one. Words without gaps.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Mapping {
    start: u64,
    end: u64,
    /// Not 0: it has changed in part.
    partial: u64,
}

impl Mapping {
    const fn range(self) -> Range {
        self.start..self.end
    }

    fn meets(self, other: &Range) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What is left without a range that it meets. A hole in its midst is not told.
    fn without(self, gone: &Range) -> Self {
        let start = if gone.start <= self.start {
            gone.end.min(self.end)
        } else {
            self.start
        };
        let end = if self.end <= gone.end {
            gone.start.max(start)
        } else {
            self.end
        };
        Self {
            start,
            end,
            partial: 1,
        }
    }
}

/// The known mappings. Zeroes are none.
#[repr(C)]
pub(super) struct Mappings {
    count: usize,
    list: [Mapping; MOST],
}

impl Mappings {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.list[..self.count].fill(Mapping::default());
        self.count = 0;
    }

    /// Code was mapped here, where none is known.
    pub(super) fn add(&mut self, range: Range) {
        if let Some(free) = self.list.get_mut(self.count) {
            *free = Mapping {
                start: range.start,
                end: range.end,
                partial: 0,
            };
            self.count += 1;
        }
    }

    /// Code here is not what it was. Was any known?
    pub(super) fn remove(&mut self, gone: &Range) -> bool {
        let mut met = false;
        if gone.is_empty() {
            return met;
        }
        let mut at = 0;
        while at < self.count {
            let mapping = self.list[at];
            if !mapping.meets(gone) {
                at += 1;
                continue;
            }
            met = true;
            let rest = mapping.without(gone);
            if rest.range().is_empty() {
                self.count -= 1;
                self.list[at] = self.list[self.count];
                self.list[self.count] = Mapping::default();
            } else {
                self.list[at] = rest;
                at += 1;
            }
        }
        met
    }

    /// The mapping with this address, if it is as it was mapped.
    pub(super) fn whole(&self, address: u64) -> Option<Range> {
        let mut whole = self.list[..self.count].iter().filter(|it| it.partial == 0);
        let found = whole.find(|it| it.range().contains(&address));
        found.map(|it| it.range())
    }

    /// All that have, or had, this address.
    pub(super) fn around(&self, address: u64) -> impl Iterator<Item = Range> {
        let all = self.list[..self.count].iter().map(|it| it.range());
        all.filter(move |range| range.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Mappings {
        pub(in crate::arch) const NONE: Self = Self {
            count: 0,
            list: [Mapping {
                start: 0,
                end: 0,
                partial: 0,
            }; MOST],
        };
    }

    fn with(range: Range) -> Mappings {
        let mut mappings = Mappings::NONE;
        mappings.add(range);
        mappings
    }

    #[test]
    fn what_has_changed_in_part_is_known_and_not_whole() {
        // What changes, and what of 10..50 is known afterwards.
        let rows = [
            (0..10, Some(10..50), true),
            (50..60, Some(10..50), true),
            (20..20, Some(10..50), true),
            (0..20, Some(20..50), false),
            (40..60, Some(10..40), false),
            (20..30, Some(10..50), false),
            (10..50, None, false),
            (0..60, None, false),
        ];
        for (gone, left, whole) in rows {
            let mut mappings = with(10..50);
            assert_eq!(mappings.remove(&gone), !whole, "{gone:?}");
            let any = left.as_ref().map_or(25, |left| left.start);
            assert_eq!(mappings.around(any).next(), left, "{gone:?}");
            assert_eq!(mappings.whole(any).is_some(), whole, "{gone:?}");
        }
    }

    #[test]
    fn what_goes_piece_by_piece_leaves_nothing() {
        let mut mappings = with(10..50);
        mappings.add(60..70);
        assert!(
            [40..50, 10..20, 20..30, 30..40]
                .iter()
                .all(|gone| mappings.remove(gone))
        );
        assert_eq!((mappings.count, mappings.whole(65)), (1, Some(60..70)));
    }

    #[test]
    fn a_part_that_is_mapped_anew_is_entered_from_all_of_it() {
        let mut mappings = with(10..50);
        assert!(mappings.remove(&(20..30)));
        mappings.add(20..30);
        assert_eq!(mappings.whole(25), Some(20..30));
        assert_eq!(mappings.around(25).collect::<Vec<_>>(), [10..50, 20..30]);
    }

    #[test]
    fn what_finds_no_room_is_not_known() {
        let mut mappings = Mappings::NONE;
        (0..=MOST as u64).for_each(|at| mappings.add(at * 10..at * 10 + 5));
        assert_eq!(mappings.whole(MOST as u64 * 10), None);
        mappings.clear();
        assert_eq!(mappings.whole(0), None);
    }
}

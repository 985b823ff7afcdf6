//! Memory that the program withholds from its children (`MADV_DONTFORK`, `MADV_WIPEONFORK`).
//!
//! A copy of a replica is made by a clone, which would not get such memory as it is. So the agent
//! keeps in mind where it is, lifts the advice for the moment of the clone, and gives it again,
//! in the copy too.
//!
//! Contract: every call that maps, moves or unmaps memory of the program says so here; the same in
//! all replicas.
//!
//! Not covered: more than [`MOST`] ranges of a kind. Such a program cannot be copied.

use linux_raw_sys::general::{MADV_DOFORK, MADV_DONTFORK, MADV_KEEPONFORK, MADV_WIPEONFORK};

use crate::lifetime::{PerProcess, PerProgram, Program, Who};
use crate::memory::loader::page_up;
use crate::memory::space::space;
use crate::sys;

/// Most ranges of a kind.
const MOST: usize = 64;

/// Ranges of memory, none of which overlaps another.
#[derive(Clone, Copy)]
struct Ranges {
    list: [(u64, u64); MOST],
    count: usize,
    /// How many there was no room for.
    lost: u64,
}

impl Ranges {
    const NONE: Self = Self {
        list: [(0, 0); MOST],
        count: 0,
        lost: 0,
    };

    fn live(&self) -> &[(u64, u64)] {
        &self.list[..self.count]
    }

    /// What is not in use is zeroes, and left untouched.
    fn clear(&mut self) {
        self.list[..self.count].fill((0, 0));
        (self.count, self.lost) = (0, 0);
    }

    fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.list.get_mut(self.count) {
            Some(place) => {
                *place = (start, end);
                self.count += 1;
            }
            None => self.lost += 1,
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        let before = *self;
        self.list = [(0, 0); MOST];
        self.count = 0;
        for &(from, to) in before.live() {
            self.push(from, to.min(start));
            self.push(from.max(end), to);
        }
    }

    fn add(&mut self, start: u64, end: u64) {
        self.remove(start, end);
        self.push(start, end);
    }

    /// The memory at `old` is at `new` from here on, and as long as that says.
    fn carry(&mut self, old: (u64, u64), new: (u64, u64), stays: bool) {
        let before = *self;
        if !stays {
            self.remove(old.0, old.1);
        }
        self.remove(new.0, new.1);
        for &(from, to) in before.live() {
            let (from, to) = (from.max(old.0), to.min(old.1));
            if from >= to {
                continue;
            }
            let start = new.0 + (from - old.0);
            let end = if to == old.1 {
                new.1
            } else {
                (new.0 + (to - old.0)).min(new.1)
            };
            self.push(start, end);
        }
    }
}

/// All such memory. The same in all replicas.
#[derive(Clone, Copy)]
pub(crate) struct Withheld {
    /// A child does not get it.
    dropped: Ranges,
    /// A child finds it empty.
    wiped: Ranges,
}

impl Withheld {
    pub(crate) const NONE: Self = Self {
        dropped: Ranges::NONE,
        wiped: Ranges::NONE,
    };

    /// The kernel has taken the program's advice for what is mapped in the range.
    pub(crate) fn advised(&mut self, start: u64, len: u64, advice: u32) {
        let end = start.saturating_add(page_up(len));
        match advice {
            MADV_DONTFORK => self.dropped.add(start, end),
            MADV_DOFORK => self.dropped.remove(start, end),
            MADV_WIPEONFORK => self.wiped.add(start, end),
            MADV_KEEPONFORK => self.wiped.remove(start, end),
            _ => {}
        }
    }

    /// The range was unmapped, or mapped anew.
    pub(crate) fn forget(&mut self, start: u64, len: u64) {
        if self.dropped.count + self.wiped.count > 0 {
            let end = start.saturating_add(page_up(len));
            self.dropped.remove(start, end);
            self.wiped.remove(start, end);
        }
    }

    /// `mremap` has been done. `stays`: what was there is still mapped, too.
    pub(crate) fn moved(&mut self, old: (u64, u64), new: (u64, u64), stays: bool) {
        let range = |(start, len): (u64, u64)| (start, start.saturating_add(page_up(len)));
        if self.dropped.count + self.wiped.count > 0 {
            self.dropped.carry(range(old), range(new), stays);
            self.wiped.carry(range(old), range(new), stays);
        }
    }

    /// Is it known of all such memory where it is?
    pub(crate) const fn is_known(&self) -> bool {
        self.dropped.lost == 0 && self.wiped.lost == 0
    }

    /// The next clone gets all memory as it is.
    pub(crate) fn lift(&self) {
        advise(&self.dropped, MADV_DOFORK);
        advise(&self.wiped, MADV_KEEPONFORK);
    }

    /// Again as the program wants it.
    pub(crate) fn restore(&self) {
        advise(&self.dropped, MADV_DONTFORK);
        advise(&self.wiped, MADV_WIPEONFORK);
    }
}

impl PerProcess for Withheld {
    /// What was dropped is not there, so it cannot be withheld.
    fn in_child(&mut self, _: &Who) {
        for &(start, end) in self.dropped.live() {
            space().remove(start, end - start);
        }
        self.dropped.clear();
    }
}

impl PerProgram for Withheld {
    fn in_program(&mut self, _: &Program) {
        let Self { dropped, wiped } = self;
        dropped.clear();
        wiped.clear();
    }
}

fn advise(ranges: &Ranges, advice: u32) {
    for &(start, end) in ranges.live() {
        sys::advise_clones(start, end - start, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rcoe_linux_abi::PAGE;

    fn sorted(ranges: &Ranges) -> Vec<(u64, u64)> {
        let mut list = ranges.live().to_vec();
        list.sort_unstable();
        list.iter().map(|it| (it.0 / PAGE, it.1 / PAGE)).collect()
    }

    fn advised(start: u64, pages: u64) -> Withheld {
        let mut withheld = Withheld::NONE;
        withheld.advised(start * PAGE, pages * PAGE - 1, MADV_DONTFORK);
        withheld
    }

    #[test]
    fn what_is_unmapped_or_given_free_is_forgotten() {
        let mut withheld = advised(10, 10);
        withheld.forget(12 * PAGE, PAGE);
        assert_eq!(sorted(&withheld.dropped), [(10, 12), (13, 20)]);
        withheld.advised(0, 11 * PAGE, MADV_DOFORK);
        withheld.advised(19 * PAGE, 5 * PAGE, MADV_DONTFORK);
        assert_eq!(sorted(&withheld.dropped), [(11, 12), (13, 19), (19, 24)]);
        withheld.advised(0, 30 * PAGE, MADV_KEEPONFORK);
        withheld.forget(0, u64::MAX / 2);
        assert_eq!(sorted(&withheld.dropped), []);
    }

    #[test]
    fn advice_goes_where_its_memory_goes() {
        let mut withheld = advised(10, 4);
        withheld.moved((12 * PAGE, 4 * PAGE), (50 * PAGE, 8 * PAGE), false);
        assert_eq!(sorted(&withheld.dropped), [(10, 12), (50, 52)]);
        withheld.moved((50 * PAGE, 2 * PAGE), (50 * PAGE, 5 * PAGE), false);
        assert_eq!(sorted(&withheld.dropped), [(10, 12), (50, 55)]);
        withheld.moved((10 * PAGE, 2 * PAGE), (70 * PAGE, PAGE), true);
        assert_eq!(sorted(&withheld.dropped), [(10, 12), (50, 55), (70, 71)]);
    }

    #[test]
    fn a_child_withholds_only_what_it_has() {
        let mut withheld = advised(10, 4);
        withheld.advised(30 * PAGE, PAGE, MADV_WIPEONFORK);
        withheld.dropped.clear();
        assert_eq!(sorted(&withheld.dropped), []);
        assert_eq!(withheld.dropped.list, Ranges::NONE.list);
        assert_eq!(sorted(&withheld.wiped), [(30, 31)]);
    }

    #[test]
    fn too_much_is_noticed() {
        let mut withheld = Withheld::NONE;
        for at in 0..MOST as u64 {
            withheld.advised(2 * at * PAGE, PAGE, MADV_WIPEONFORK);
        }
        assert!(withheld.is_known());
        withheld.advised(2 * MOST as u64 * PAGE, PAGE, MADV_WIPEONFORK);
        assert!(!withheld.is_known());
    }
}

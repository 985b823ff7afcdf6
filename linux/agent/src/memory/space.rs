//! How much memory the program has mapped, for its limits on address space and data.
//!
//! The host's account holds the agent's memory too, and differs between replicas: what one of them
//! has not compared yet is withdrawn from the program, and a primary keeps more than its siblings.
//! So the agent keeps the program's own: ranges in order, of four kinds, as the kernel tells them
//! apart where it counts; of what is shared it also keeps whether the program can change it.
//!
//! Contract: every call that maps, moves, protects or unmaps memory of the program says so here;
//! the same in all replicas.
//!
//! Not covered: how far the stack has grown. It counts as large as a new program's.

use rcoe_linux_abi::PAGE;

use crate::memory::loader::{page_down, page_up};
use crate::one_thread::OneThread;

/// Most ranges. The kernel grants a process fewer mappings than that.
const MOST: usize = 1 << 16;
/// Ranges that a single change may add.
const MARGIN: usize = 4;
/// Bits of an end that hold the kind; ends are those of pages.
const KIND: u64 = 7;

/// What the kernel counts a range as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// Private and not writable.
    Fixed = 0,
    /// Private and writable: data.
    Data = 1,
    /// Shared, and only read: the host's own mapping.
    Shared = 2,
    /// It grows downwards; no data, though writable.
    Stack = 3,
    /// Shared, writable or not, and each replica has it for itself: of its slice of the arena, or a
    /// copy.
    Common = 4,
}

impl Kind {
    const fn of(bits: u64) -> Self {
        match bits & KIND {
            0 => Self::Fixed,
            1 => Self::Data,
            2 => Self::Shared,
            3 => Self::Stack,
            _ => Self::Common,
        }
    }

    /// Private memory of this protection.
    pub(crate) const fn private(writable: bool) -> Self {
        if writable { Self::Data } else { Self::Fixed }
    }

    /// The same memory under another protection.
    const fn protected(self, writable: bool) -> Self {
        match self {
            Self::Fixed | Self::Data => Self::private(writable),
            Self::Shared | Self::Stack | Self::Common => self,
        }
    }

    /// Does the kernel count it as shared?
    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::Common)
    }
}

/// A range of one kind. Two words, so that replicas can be compared byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    start: u64,
    /// The end, and the kind in its low bits.
    tail: u64,
}

impl Area {
    const NONE: Self = Self { start: 0, tail: 0 };

    const fn new(start: u64, end: u64, kind: Kind) -> Self {
        let tail = end | kind as u64;
        Self { start, tail }
    }

    const fn end(&self) -> u64 {
        self.tail & !KIND
    }

    const fn kind(&self) -> Kind {
        Kind::of(self.tail)
    }
}

/// Pages of a kind of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) all: u64,
    pub(crate) data: u64,
}

/// The program's memory.
#[repr(C)]
pub(crate) struct Space {
    count: usize,
    /// Where stacks of programs end: where the kernel has put the first one.
    top: u64,
    pages: Pages,
    list: [Area; MOST],
}

static SPACE: OneThread<Space> = OneThread::new(Space::NEW);

/// The program's memory.
pub(crate) fn space() -> &'static mut Space {
    // SAFETY: a replica is one kernel thread, and no caller keeps the reference over another call.
    unsafe { &mut *SPACE.get() }
}

impl Space {
    const NEW: Self = Self {
        top: 0,
        list: [Area::NONE; MOST],
        count: 0,
        pages: Pages { all: 0, data: 0 },
    };

    /// What is mapped now.
    pub(crate) const fn pages(&self) -> Pages {
        self.pages
    }

    /// Can anything be mapped at all?
    pub(crate) const fn has_room(&self) -> bool {
        self.count + MARGIN <= MOST
    }

    /// Nothing is mapped any more.
    pub(crate) fn clear(&mut self) {
        self.list[..self.count].fill(Area::NONE);
        self.count = 0;
        self.pages = Pages::default();
    }

    /// The first program's stack ends there.
    pub(crate) const fn begin_stacks(&mut self, top: u64) {
        self.top = top;
    }

    /// Where a new program's stack ends.
    pub(crate) const fn stack_top(&self) -> u64 {
        self.top
    }

    /// The stack of a new program, as the kernel makes it.
    pub(crate) fn add_new_stack(&mut self) {
        const LEN: u64 = 132 << 10;
        self.set(self.top - LEN, LEN, Kind::Stack);
    }

    /// Memory of this replica's own that the program can write, in order: start, end, and whether
    /// it is shared with other processes. The stack may have grown, as far as its limit and what
    /// lies below it let it.
    pub(crate) fn writable(&self) -> impl Iterator<Item = (u64, u64, bool)> {
        /// As far as is looked if there is no limit.
        const MOST_STACK: u64 = 1 << 30;
        let reach = crate::sys::stack_limit().min(MOST_STACK);
        let mut before = 0;
        self.live().iter().filter_map(move |area| {
            let below = core::mem::replace(&mut before, area.end());
            match area.kind() {
                Kind::Data => Some((area.start, area.end(), false)),
                Kind::Common => Some((area.start, area.end(), true)),
                Kind::Stack => {
                    let lowest = area.end().saturating_sub(reach).max(below);
                    Some((lowest.min(area.start), area.end(), false))
                }
                Kind::Fixed | Kind::Shared => None,
            }
        })
    }

    fn live(&self) -> &[Area] {
        &self.list[..self.count]
    }

    /// The first range that ends behind this address.
    fn first_behind(&self, address: u64) -> usize {
        self.live().partition_point(|area| area.end() <= address)
    }

    /// Those that overlap the range.
    fn within(&self, start: u64, end: u64) -> core::ops::Range<usize> {
        let from = self.first_behind(start);
        let more = self.live()[from..].partition_point(|area| area.start < end);
        from..from + more
    }

    /// Puts others in the place of these.
    fn splice(&mut self, old: core::ops::Range<usize>, new: &[Area]) {
        let before = self.count;
        let count = before - old.len() + new.len();
        assert!(count <= MOST, "there was room for it");
        let behind = old.start + new.len();
        self.list.copy_within(old.end..before, behind);
        self.list[old.start..behind].copy_from_slice(new);
        if count < before {
            self.list[count..before].fill(Area::NONE);
        }
        self.count = count;
    }

    /// Pages of the range that are mapped.
    pub(crate) fn mapped(&self, start: u64, len: u64) -> u64 {
        let (start, end) = range(start, len);
        let areas = &self.live()[self.within(start, end)];
        let pages = areas.iter().map(|area| overlap(area, start, end));
        pages.sum::<u64>()
    }

    /// What is at this address.
    pub(crate) fn kind_at(&self, address: u64) -> Option<Kind> {
        let area = self.live().get(self.first_behind(address))?;
        (area.start <= address).then_some(area.kind())
    }

    /// The range that it is a part of.
    pub(crate) fn range_at(&self, address: u64) -> Option<core::ops::Range<u64>> {
        let area = self.live().get(self.first_behind(address))?;
        (area.start <= address).then(|| area.start..area.end())
    }

    /// The range is not mapped any more.
    pub(crate) fn remove(&mut self, start: u64, len: u64) {
        let (start, end) = range(start, len);
        let within = self.within(start, end);
        if within.is_empty() || start >= end {
            return;
        }
        for at in within.clone() {
            let area = self.list[at];
            let pages = overlap(&area, start, end);
            self.pages.all -= pages;
            if area.kind() == Kind::Data {
                self.pages.data -= pages;
            }
        }
        let (first, last) = (self.list[within.start], self.list[within.end - 1]);
        let mut rest = [Area::NONE; 2];
        let mut count = 0;
        if first.start < start {
            rest[count] = Area::new(first.start, start, first.kind());
            count += 1;
        }
        if end < last.end() {
            rest[count] = Area::new(end, last.end(), last.kind());
            count += 1;
        }
        self.splice(within, &rest[..count]);
    }

    /// The range is mapped so, whatever was there.
    pub(crate) fn set(&mut self, start: u64, len: u64, kind: Kind) {
        self.remove(start, len);
        let (mut start, mut end) = range(start, len);
        if start >= end {
            return;
        }
        let pages = (end - start) / PAGE;
        self.pages.all += pages;
        if kind == Kind::Data {
            self.pages.data += pages;
        }
        let at = self.first_behind(start);
        let mut old = at..at;
        if let Some(next) = self.live().get(at)
            && next.start == end
            && next.kind() == kind
        {
            end = next.end();
            old.end += 1;
        }
        if let Some(before) = at.checked_sub(1).map(|at| self.list[at])
            && before.end() == start
            && before.kind() == kind
        {
            start = before.start;
            old.start -= 1;
        }
        self.splice(old, &[Area::new(start, end, kind)]);
    }

    /// The protection has changed, as far as memory is mapped without a hole.
    pub(crate) fn protect(&mut self, start: u64, len: u64, writable: bool) {
        let (start, end) = range(start, len);
        let mut from = start;
        while from < end {
            let Some(area) = self.live().get(self.first_behind(from)).copied() else {
                return;
            };
            if area.start > from {
                return;
            }
            let to = area.end().min(end);
            let kind = area.kind().protected(writable);
            if kind != area.kind() && self.has_room() {
                self.set(from, to - from, kind);
            }
            from = to;
        }
    }

    /// Is any of the range shared?
    pub(crate) fn has_shared(&self, start: u64, len: u64) -> bool {
        let (start, end) = range(start, len);
        let mut areas = self.live()[self.within(start, end)].iter();
        areas.any(|area| area.kind().is_shared())
    }

    /// Pages of the range that would become data if they were writable.
    pub(crate) fn growing_data(&self, start: u64, len: u64) -> u64 {
        let (start, end) = range(start, len);
        let areas = self.live()[self.within(start, end)].iter();
        let fixed = areas.filter(|area| area.kind() == Kind::Fixed);
        fixed.map(|area| overlap(area, start, end)).sum::<u64>()
    }

    /// The memory at `old` is at `new` from here on, and as long as that says. `stays`: what was
    /// there is still mapped, too.
    pub(crate) fn moved(&mut self, old: (u64, u64), new: (u64, u64), stays: bool) {
        let Some(kind) = self.kind_at(old.0) else {
            return;
        };
        if !stays {
            self.remove(old.0, old.1);
        }
        self.set(new.0, new.1, kind);
    }
}

/// Whole pages.
fn range(start: u64, len: u64) -> (u64, u64) {
    let end = start.saturating_add(len).min(u64::MAX - PAGE);
    (page_down(start), page_up(end))
}

/// Pages of an area within the range.
fn overlap(area: &Area, start: u64, end: u64) -> u64 {
    let (from, to) = (area.start.max(start), area.end().min(end));
    to.saturating_sub(from) / PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Box<Space> {
        let layout = std::alloc::Layout::new::<Space>();
        // SAFETY: zeroes are an empty space; the layout is its own.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast::<Space>()) }
    }

    fn listed(space: &Space) -> Vec<(u64, u64, Kind)> {
        let areas = space.live().iter();
        areas
            .map(|area| (area.start / PAGE, area.end() / PAGE, area.kind()))
            .collect()
    }

    fn set(space: &mut Space, from: u64, to: u64, kind: Kind) {
        space.set(from * PAGE, (to - from) * PAGE, kind);
    }

    #[test]
    fn neighbours_of_a_kind_are_one() {
        let mut space = space();
        set(&mut space, 10, 12, Kind::Data);
        set(&mut space, 14, 16, Kind::Data);
        set(&mut space, 12, 14, Kind::Data);
        assert_eq!(listed(&space), [(10, 16, Kind::Data)]);
        set(&mut space, 16, 18, Kind::Fixed);
        set(&mut space, 11, 13, Kind::Shared);
        let expected = [
            (10, 11, Kind::Data),
            (11, 13, Kind::Shared),
            (13, 16, Kind::Data),
            (16, 18, Kind::Fixed),
        ];
        assert_eq!(listed(&space), expected);
        assert_eq!(space.pages(), Pages { all: 8, data: 4 });
    }

    #[test]
    fn removing_leaves_what_is_around() {
        let mut space = space();
        set(&mut space, 10, 20, Kind::Data);
        space.remove(12 * PAGE, PAGE + 1);
        assert_eq!(listed(&space), [(10, 12, Kind::Data), (14, 20, Kind::Data)]);
        assert_eq!(space.mapped(0, 16 * PAGE), 4);
        space.remove(0, u64::MAX);
        assert_eq!(space.pages(), Pages::default());
        assert!(space.list[..4].iter().all(|area| *area == Area::NONE));
    }

    #[test]
    fn protection_makes_data_up_to_the_first_hole() {
        let mut space = space();
        set(&mut space, 10, 12, Kind::Fixed);
        set(&mut space, 12, 13, Kind::Shared);
        set(&mut space, 14, 15, Kind::Fixed);
        assert_eq!(space.growing_data(0, 20 * PAGE), 3);
        space.protect(10 * PAGE, 5 * PAGE, true);
        let expected = [
            (10, 12, Kind::Data),
            (12, 13, Kind::Shared),
            (14, 15, Kind::Fixed),
        ];
        assert_eq!(listed(&space), expected);
        space.protect(11 * PAGE, PAGE, false);
        assert_eq!(space.pages(), Pages { all: 4, data: 1 });
    }

    #[test]
    fn memory_that_moves_keeps_its_kind() {
        let mut space = space();
        set(&mut space, 10, 12, Kind::Data);
        let at = |page: u64, pages: u64| (page * PAGE, pages * PAGE);
        space.moved(at(10, 2), at(10, 4), false);
        assert_eq!(listed(&space), [(10, 14, Kind::Data)]);
        space.moved(at(12, 2), at(30, 1), false);
        space.moved(at(10, 2), at(40, 2), true);
        let expected = [
            (10, 12, Kind::Data),
            (30, 31, Kind::Data),
            (40, 42, Kind::Data),
        ];
        assert_eq!(listed(&space), expected);
    }

    #[test]
    fn the_account_is_that_of_a_page_by_page_one() {
        let mut space = space();
        let mut plain = [None::<Kind>; 64];
        let mut seed = 7_u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        for _ in 0..20_000 {
            let from = next(64);
            let to = from + next(64 - from + 1);
            let pages = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
            let (start, len) = (from * PAGE, (to - from) * PAGE);
            match next(4) {
                0 => {
                    space.remove(start, len);
                    plain[pages].fill(None);
                }
                1 => {
                    let writable = next(2) == 0;
                    space.protect(start, len, writable);
                    for page in &mut plain[pages] {
                        let Some(kind) = page else { break };
                        *page = Some(kind.protected(writable));
                    }
                }
                _ => {
                    let kind = Kind::of(next(5));
                    space.set(start, len, kind);
                    plain[pages].fill(Some(kind));
                }
            }
            let count = |wanted: &dyn Fn(Kind) -> bool| {
                plain.iter().flatten().filter(|kind| wanted(**kind)).count() as u64
            };
            let all = count(&|_| true);
            let data = count(&|kind| kind == Kind::Data);
            assert_eq!(space.pages(), Pages { all, data });
            let merged = space.live().windows(2).all(|pair| {
                pair[0].end() < pair[1].start
                    || pair[0].end() == pair[1].start && pair[0].kind() != pair[1].kind()
            });
            assert!(merged, "{:?}", listed(&space));
        }
    }
}

//! Mappings that are shared, by their makers' wish, with other processes or with a file.
//!
//! One list of them, the same in all replicas. What backs a mapping differs:
//!
//! * [`arena`]: this replica's slice of the memory that processes share. Anonymous memory, System V
//!   segments ([`segments`]), and files, of a program that has other processes to share with
//!   ([`files`]).
//! * [`copies`]: a private copy of a file's content, of a program that has always been alone.
//!
//! Before a fork copies become arena mappings, so that the child shares them.

pub(crate) mod arena;
pub(crate) mod copies;
pub(crate) mod files;
pub(crate) mod futexes;
pub(crate) mod resize;
pub(crate) mod segments;

use crate::lifetime::{PerProcess, PerProgram, Program, Who};
use crate::memory::loader::page_up;
use crate::sys::FileFacts;

/// Most mappings at a time.
const MAPPINGS: usize = 1024;

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// A private copy of a file.
    Copy,
    /// This replica's slice from here on.
    Arena {
        at: u64,
        /// Where its piece begins.
        piece: u64,
    },
}

/// One mapping.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: u64,
    len: u64,
    prot: u32,
    /// It was made through what cannot write, so it can never be written through.
    read_only: bool,
    backing: Backing,
    /// A descriptor of the mapped file of its own; -1 if there is no file to write to.
    fd: i32,
    /// The file, and where in it the mapping begins.
    facts: FileFacts,
    offset: u64,
}

impl Mapping {
    #[cfg(test)]
    const NONE: Self = Self {
        start: 0,
        len: 0,
        prot: 0,
        read_only: false,
        backing: Backing::Copy,
        fd: -1,
        facts: FileFacts {
            device: 0,
            inode: 0,
            size: 0,
        },
        offset: 0,
    };

    const fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Does the range hold a byte of it? One of no bytes does not.
    const fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && self.start < end && start < self.end()
    }

    const fn is_of(&self, facts: &FileFacts) -> bool {
        self.facts.inode != 0
            && self.facts.device == facts.device
            && self.facts.inode == facts.inode
    }

    /// The part from `start` to `end`.
    fn part(&self, start: u64, end: u64) -> Self {
        let skipped = start - self.start;
        let backing = match self.backing {
            Backing::Copy => Backing::Copy,
            Backing::Arena { at, piece } => Backing::Arena {
                at: at + skipped,
                piece,
            },
        };
        Self {
            start,
            len: end - start,
            backing,
            offset: self.offset + skipped,
            ..*self
        }
    }

    const fn piece(&self) -> Option<u64> {
        match self.backing {
            Backing::Arena { piece, .. } => Some(piece),
            Backing::Copy => None,
        }
    }
}

/// All such mappings. The same in all replicas.
#[repr(C)]
pub(crate) struct Shared {
    count: usize,
    /// The program has other processes to share with: it has forked, or is a child.
    related: bool,
    /// Some of its threads may be on the list of waiters.
    pub(crate) waiting: bool,
    list: [Mapping; MAPPINGS],
}

impl Shared {
    /// Does any mapping show this replica's slice?
    pub(crate) fn shows_slice(&self) -> bool {
        self.live().iter().any(|it| it.piece().is_some())
    }

    #[cfg(test)]
    const fn new() -> Self {
        Self {
            list: [Mapping::NONE; MAPPINGS],
            count: 0,
            related: false,
            waiting: false,
        }
    }

    /// Is nothing mapped shared?
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Is a file among what is mapped shared?
    pub(crate) fn has_files(&self) -> bool {
        self.live().iter().any(|it| it.fd >= 0)
    }

    fn live(&self) -> &[Mapping] {
        &self.list[..self.count]
    }

    /// Is there room for so many more?
    fn has_room(&self, more: usize) -> bool {
        self.count + more <= MAPPINGS
    }

    fn add(&mut self, mapping: Mapping) {
        self.list[self.count] = mapping;
        self.count += 1;
    }

    /// The first mapping in the range.
    fn first_in(&self, start: u64, end: u64) -> Option<Mapping> {
        self.live()
            .iter()
            .find(|it| it.overlaps(start, end))
            .copied()
    }

    /// Does any mapping show this piece?
    fn shows(&self, piece: u64) -> bool {
        self.live().iter().any(|it| it.piece() == Some(piece))
    }

    /// How often the piece is mapped from its beginning on.
    fn times_from_start(&self, piece: u64) -> u32 {
        let starts = self.live().iter().filter(|it| {
            matches!(it.backing, Backing::Arena { at, piece: its } if its == piece && at == its)
        });
        crate::convert::low32(starts.count() as u64)
    }

    /// Takes the range out of all mappings; parts of them stay. Splitting needs a free place.
    fn cut(&mut self, start: u64, end: u64) {
        let mut index = 0;
        while index < self.count {
            let whole = self.list[index];
            if !whole.overlaps(start, end) {
                index += 1;
                continue;
            }
            self.count -= 1;
            self.list.swap(index, self.count);
            if whole.start < start {
                self.add(whole.part(whole.start, start));
            }
            if end < whole.end() && self.has_room(1) {
                self.add(whole.part(end, whole.end()));
            }
        }
    }

    /// The protection of the range has changed.
    pub(crate) fn protect(&mut self, start: u64, len: u64, prot: u32) {
        let end = start.saturating_add(page_up(len));
        let mut index = 0;
        let mut before = self.count;
        while index < before {
            let whole = self.list[index];
            if !whole.overlaps(start, end) || !self.has_room(2) {
                index += 1;
                continue;
            }
            before -= 1;
            self.count -= 1;
            self.list[index] = self.list[before];
            self.list[before] = self.list[self.count];
            let (from, to) = (whole.start.max(start), whole.end().min(end));
            if whole.start < from {
                self.add(whole.part(whole.start, from));
            }
            if to < whole.end() {
                self.add(whole.part(to, whole.end()));
            }
            self.add(Mapping {
                prot,
                ..whole.part(from, to)
            });
        }
    }

    /// What is mapped there now can never be made writable.
    fn forbid_writing(&mut self, start: u64, len: u64) {
        let end = start + len;
        for mapping in &mut self.list[..self.count] {
            mapping.read_only |= start <= mapping.start && mapping.end() <= end;
        }
    }

    /// Where in the range the first mapping begins that cannot be made writable.
    pub(crate) fn first_read_only(&self, start: u64, len: u64) -> Option<u64> {
        let end = start.saturating_add(page_up(len));
        let live = self.live().iter();
        live.filter(|it| it.read_only && it.overlaps(start, end))
            .map(|it| it.start.max(start))
            .min()
    }

    /// Which memory of the slice is at this address, if it is any.
    pub(crate) fn key(&self, address: u64) -> Option<u64> {
        let mapping = self
            .live()
            .iter()
            .find(|it| it.start <= address && address < it.end())?;
        match mapping.backing {
            Backing::Arena { at, .. } => Some(at + (address - mapping.start)),
            Backing::Copy => None,
        }
    }

    /// Is there a mapping in the range?
    pub(crate) fn holds(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(page_up(len.max(1)));
        self.first_in(start, end).is_some()
    }
}

impl PerProcess for Shared {
    /// What is mapped is inherited, and nobody of the child waits.
    fn in_child(&mut self, _: &Who) {
        let Self {
            list: _,
            count: _,
            related: _,
            waiting,
        } = self;
        if *waiting {
            *waiting = false;
        }
    }
}

impl PerProgram for Shared {
    /// # Panics
    /// If something of the program before is still there: others would go on counting it.
    fn in_program(&mut self, _: &Program) {
        let Self {
            list: _,
            count,
            related: _,
            waiting,
        } = self;
        assert!(*count == 0 && !*waiting, "nothing is shared any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Box<Shared> {
        let mut shared = Box::new(Shared::new());
        shared.add(Mapping {
            start: 0x10000,
            len: 0x4000,
            prot: 3,
            backing: Backing::Arena {
                at: 0x7000,
                piece: 0x7000,
            },
            ..Mapping::NONE
        });
        shared
    }

    fn sorted(shared: &Shared) -> Vec<(u64, u64, u32)> {
        let mut list: Vec<_> = shared
            .live()
            .iter()
            .map(|it| (it.start, it.len, it.prot))
            .collect();
        list.sort_unstable();
        list
    }

    #[test]
    fn cutting_leaves_the_parts_around() {
        let mut shared = shared();
        shared.cut(0x11000, 0x12000);
        assert_eq!(
            sorted(&shared),
            [(0x10000, 0x1000, 3), (0x12000, 0x2000, 3)]
        );
        assert_eq!(shared.key(0x10fff), Some(0x7fff));
        assert_eq!(shared.key(0x11000), None);
        assert_eq!(shared.key(0x12004), Some(0x9004));
        assert!(shared.shows(0x7000));
        shared.cut(0, u64::MAX);
        assert!(!shared.shows(0x7000));
    }

    #[test]
    fn protection_is_kept_for_each_part() {
        let mut shared = shared();
        shared.protect(0x11000, 0x1000, 1);
        let parts = [
            (0x10000, 0x1000, 3),
            (0x11000, 0x1000, 1),
            (0x12000, 0x2000, 3),
        ];
        assert_eq!(sorted(&shared), parts);
        assert_eq!(shared.key(0x11008), Some(0x8008));
        shared.protect(0, 0x20000, 0);
        assert!(sorted(&shared).iter().all(|part| part.2 == 0));
        assert_eq!(shared.live().iter().map(|it| it.len).sum::<u64>(), 0x4000);
        assert_eq!(shared.times_from_start(0x7000), 1);
    }

    #[test]
    fn what_cannot_be_written_is_found() {
        let mut shared = shared();
        shared.add(Mapping {
            start: 0x20000,
            len: 0x2000,
            ..Mapping::NONE
        });
        shared.forbid_writing(0x20000, 0x2000);
        assert_eq!(shared.first_read_only(0x10000, 0x8000), None);
        assert_eq!(shared.first_read_only(0x10000, 0x20000), Some(0x20000));
        shared.protect(0x20000, 0x1000, 0);
        assert_eq!(shared.first_read_only(0x21000, 1), Some(0x21000));
        assert_eq!(shared.first_read_only(0x22000, 0x1000), None);
    }

    #[test]
    fn a_range_of_no_bytes_is_nowhere() {
        let mut shared = shared();
        shared.protect(0x12000, 0, 1);
        assert_eq!(sorted(&shared), [(0x10000, 0x4000, 3)]);
        shared.cut(0x12000, 0x12000);
        assert_eq!(sorted(&shared), [(0x10000, 0x4000, 3)]);
        assert!(shared.first_in(0x12000, 0x12000).is_none());
    }
}

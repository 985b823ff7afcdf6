//! Files in the memory of processes, where what is written is in the file.
//!
//! A page of a file that is mapped so is a frame that the file and all places share: the file has
//! an alias of its own, mapped nowhere. So the frame stays until both the file and all places have
//! given it up, in whatever order. Pages behind the end of a file are not there; when a file gets
//! another size, what is mapped of it follows once the call is over.

use linux_raw_sys::errno::ENOMEM;

use super::io::{alias, frame, set_alias};
use super::{Errno, Files, Kind, Machine, PAGE, Sparse, pages};

/// Most mappings.
const MOST: usize = 128;

/// Pages of a file in a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) memory: usize,
    /// The numbers of the first page, and of that behind the last one.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) node: usize,
    /// The page of the file that comes first.
    pub(crate) first: u64,
    /// May the program write there?
    pub(crate) writes: bool,
}

impl Mapping {
    fn meets(&self, memory: usize, [start, end]: [u64; 2]) -> bool {
        self.memory == memory && self.start < end && start < self.end
    }

    /// The page of the file that is at this page.
    pub(crate) const fn of_file(&self, page: u64) -> u64 {
        self.first + (page - self.start)
    }

    /// What is left of it without these pages, before and behind them.
    fn without(&self, [start, end]: [u64; 2]) -> [Option<Self>; 2] {
        let before = Self {
            end: start.clamp(self.start, self.end),
            ..*self
        };
        let from = end.clamp(self.start, self.end);
        let behind = Self {
            start: from,
            first: self.of_file(from),
            ..*self
        };
        [before, behind].map(|it| (it.start < it.end).then_some(it))
    }
}

/// All mappings.
#[derive(Debug)]
pub(super) struct Mapped {
    all: [Option<Mapping>; MOST],
    /// Has a file that is mapped got another size?
    resized: bool,
}

impl Mapped {
    pub(super) const NONE: Self = Self {
        all: [None; MOST],
        resized: false,
    };

    fn add(&mut self, mapping: Mapping) -> Result<(), Errno> {
        let free = self.all.iter_mut().find(|it| it.is_none());
        *free.ok_or(Errno(ENOMEM))? = Some(mapping);
        Ok(())
    }

    fn free(&self) -> usize {
        self.all.iter().filter(|it| it.is_none()).count()
    }
}

impl Files<'_> {
    pub(crate) fn add_mapping(&mut self, mapping: Mapping) -> Result<(), Errno> {
        self.mapped.add(mapping)
    }

    pub(crate) fn free_mappings(&self) -> usize {
        self.mapped.free()
    }

    /// The mappings that have any of these pages of a memory.
    pub(crate) fn mappings(
        &self,
        memory: usize,
        range: [u64; 2],
    ) -> impl Iterator<Item = &Mapping> {
        let all = self.mapped.all.iter().flatten();
        all.filter(move |it| it.meets(memory, range))
    }

    /// One of all of them, by its place.
    pub(crate) const fn mapping_at(&self, place: usize) -> Option<Option<Mapping>> {
        if place < MOST {
            Some(self.mapped.all[place])
        } else {
            None
        }
    }

    /// Is a file mapped anywhere?
    pub(crate) fn is_mapped(&self, node: usize) -> bool {
        self.mapped.all.iter().flatten().any(|it| it.node == node)
    }

    /// Is there room for what is left of a mapping on both sides of these pages?
    pub(crate) fn can_cut(&self, memory: usize, range: [u64; 2]) -> bool {
        let splits = |it: &Mapping| it.without(range).iter().all(Option::is_some);
        self.mapped.free() > 0 || !self.mappings(memory, range).any(splits)
    }

    /// Takes these pages out of one mapping: which one that was.
    pub(crate) fn cut(&mut self, memory: usize, range: [u64; 2]) -> Option<Mapping> {
        let mut all = self.mapped.all.iter_mut();
        let found = all.find(|it| it.is_some_and(|it| it.meets(memory, range)))?;
        let mapping = (*found)?;
        let [before, behind] = mapping.without(range);
        *found = before.or(behind);
        if let (Some(_), Some(behind)) = (before, behind) {
            let added = self.mapped.add(behind);
            assert!(added.is_ok(), "there is room");
        }
        Some(mapping)
    }

    /// Another memory is a copy of this one.
    pub(crate) fn copy_mappings(&mut self, [own, other]: [usize; 2]) -> Result<(), Errno> {
        let all = self.mapped.all;
        let own = all.iter().flatten().filter(|it| it.memory == own);
        if own.clone().count() > self.mapped.free() {
            return Err(Errno(ENOMEM));
        }
        own.copied().try_for_each(|it| {
            self.mapped.add(Mapping {
                memory: other,
                ..it
            })
        })
    }

    /// A file has got another size, or is about to.
    pub(super) fn resized(&mut self, node: usize) {
        self.mapped.resized |= self.is_mapped(node);
    }

    /// Has a file that is mapped got another size since that was asked?
    pub(crate) const fn take_resized(&mut self) -> bool {
        core::mem::replace(&mut self.mapped.resized, false)
    }

    /// A page of a file, so that others can share it: its frame, and the file's alias of that.
    pub(crate) fn shared_page(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        node: usize,
        page: u64,
    ) -> Result<(u32, u16), Errno> {
        let frame = match frame(store, node, page) {
            Some(frame) => frame,
            None => {
                let made = self.take_page(store, machine, node, page)?;
                self.page_changed(store, node, page);
                made
            }
        };
        let own = match alias(store, node, page) {
            0 => machine.share(frame, None).ok_or(Errno(ENOMEM))?,
            own => own,
        };
        set_alias(store, node, page, own);
        Ok((frame, own))
    }

    /// What stands in memory behind the end of a file is not what it has there when it grows.
    pub(super) fn clean_tail(
        &mut self,
        store: &Sparse<'_>,
        machine: &mut impl Machine,
        node: usize,
    ) {
        let size = self.size(node);
        let within = usize::try_from(size % PAGE).unwrap_or(0);
        let last = size / PAGE;
        if let (1.., Some(frame)) = (within, frame(store, node, last))
            && alias(store, node, last) != 0
        {
            let zeros = [0; 4096];
            machine.write(frame, within, &zeros[within..]);
        }
    }

    /// How many pages a file has, the last one of which may be a part.
    pub(crate) fn pages(&self, node: usize) -> u64 {
        pages(self.size(node))
    }

    /// What the program may have written to memory is to go to the disk, if the file is there.
    pub(crate) fn written_in_memory(&mut self, store: &mut Sparse<'_>, mapping: &Mapping) {
        let node = mapping.node;
        if !mapping.writes || !matches!(self.node(node).kind, Kind::Memory(_)) {
            return;
        }
        let end = mapping.of_file(mapping.end).min(self.pages(node));
        for page in mapping.first..end {
            self.page_changed(store, node, page);
        }
    }

    /// The same of all that is mapped.
    pub(crate) fn all_written_in_memory(&mut self, store: &mut Sparse<'_>) {
        for place in 0..MOST {
            if let Some(mapping) = self.mapped.all[place] {
                self.written_in_memory(store, &mapping);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_mapping_leads_to_the_same_pages() {
        let whole = Mapping {
            memory: 0,
            start: 10,
            end: 20,
            node: 3,
            first: 100,
            writes: true,
        };
        let left = |range| {
            whole
                .without(range)
                .map(|it| it.map(|it| (it.start, it.end, it.first)))
        };
        assert_eq!(left([0, 30]), [None, None]);
        assert_eq!(left([0, 12]), [None, Some((12, 20, 102))]);
        assert_eq!(left([15, 20]), [Some((10, 15, 100)), None]);
        let both = [Some((10, 12, 100)), Some((13, 20, 103))];
        assert_eq!(left([12, 13]), both);
        assert!(whole.meets(0, [19, 20]) && !whole.meets(0, [20, 21]));
        assert!(!whole.meets(1, [19, 20]) && !whole.meets(0, [9, 10]));
    }
}

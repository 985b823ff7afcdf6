//! Calls about files that are mapped to be shared.

use linux_raw_sys::errno::{EACCES, EBADF, EBUSY, EINVAL, ENODEV, ENOMEM};
use linux_raw_sys::general::{
    MS_ASYNC, MS_INVALIDATE, MS_SYNC, O_ACCMODE, O_RDONLY, O_WRONLY, PROT_WRITE,
};
use rcoe_abi::Rights;

use crate::linux::arch::nr;
use crate::linux::files::{Kind, Mapping};
use crate::linux::machine::PAGE;
use crate::linux::space::{Range, Space};
use crate::linux::{Answer, Errno, Machine, Process};

const fn pages(range: Range) -> [u64; 2] {
    [range.start / PAGE, range.end / PAGE]
}

impl<M: Machine> Process<'_, M> {
    /// Maps a file, so that what is written there is in it.
    pub(super) fn map_shared_file(&mut self, words: [u64; 6], rights: Rights) -> Answer {
        let [.., protection, _, file, offset] = words;
        let open = *self.files.of(file).map_err(|_| Errno(EBADF))?;
        let node = open.node().map_err(|_| Errno(ENODEV))?;
        let writes = open.flags & O_ACCMODE != O_RDONLY;
        let wants = protection & u64::from(PROT_WRITE) != 0;
        if open.flags & O_ACCMODE == O_WRONLY || wants && !writes {
            return Err(Errno(EACCES));
        }
        if !offset.is_multiple_of(PAGE) {
            return Err(Errno(EINVAL));
        }
        match self.files.node(node).kind {
            Kind::Memory(_) => {}
            Kind::Packed(content) if self.bundle.program_in(content).is_none() => {}
            Kind::Packed(_) => return Err(self.refuse_program()),
            Kind::Zero => {
                let range = self.place(words)?;
                return self.map_shared(range, rights);
            }
            _ => return Err(Errno(ENODEV)),
        }
        let (store, machine) = (&mut self.store, &mut self.machine);
        self.files.own(store, machine, node)?;
        let range = self.place(words)?;
        let [start, end] = pages(range);
        let first = offset / PAGE;
        let added = self.files.add_mapping(Mapping {
            memory: self.task.memory,
            start,
            end,
            node,
            first,
            writes,
        });
        let mapped = added.and_then(|()| self.map_pages(range, node, (first, rights)));
        if let Err(error) = mapped {
            self.take_out(range)?;
            self.tell_full();
            return Err(error);
        }
        Ok(range.start)
    }

    /// A program that is written could not be executed any more.
    fn refuse_program(&mut self) -> Errno {
        let text = format_args!(
            "the system sphere does not share the memory of a file that is a program (MAP_SHARED): \
             the program got ENODEV"
        );
        self.tell_once(nr::__NR_remap_file_pages.into(), text);
        Errno(ENODEV)
    }

    fn map_pages(
        &mut self,
        range: Range,
        node: usize,
        (first, rights): (u64, Rights),
    ) -> Result<(), Errno> {
        let [start, end] = pages(range);
        for page in start..end {
            Space::reserve(&mut self.store, page, rights).ok_or(Errno(ENOMEM))?;
            self.fill_page(page, node, first + (page - start))?;
        }
        Ok(())
    }

    /// Has a place in the memory at hand be a page of a file, if there is such a page.
    fn fill_page(&mut self, page: u64, node: usize, of_file: u64) -> Result<(), Errno> {
        if of_file >= self.files.pages(node) {
            return Ok(());
        }
        let (store, machine) = (&mut self.store, &mut self.machine);
        let shared = self.files.shared_page(store, machine, node, of_file);
        let shared = shared.map_err(|_| Errno(ENOMEM))?;
        Space::fill_in(store, machine, page, shared).ok_or(Errno(ENOMEM))
    }

    /// Takes pages out of the memory at hand, whatever they are.
    pub(super) fn take_out(&mut self, range: Range) -> Result<(), Errno> {
        let memory = self.task.memory;
        if !self.files.can_cut(memory, pages(range)) {
            return Err(Errno(ENOMEM));
        }
        self.space.unmap(&mut self.store, &mut self.machine, range);
        self.cut_mappings(memory, pages(range));
        Ok(())
    }

    /// These pages of a memory are no file's any more.
    fn cut_mappings(&mut self, memory: usize, range: [u64; 2]) {
        while let Some(mapping) = self.files.cut(memory, range) {
            let (store, machine) = (&mut self.store, &mut self.machine);
            self.files.written_in_memory(store, &mapping);
            // What is given back is a file in memory, and that is always possible.
            let _ = self.files.forget_nameless(store, machine, mapping.node);
        }
    }

    /// Is there room for what is left of mappings of files when pages of theirs are moved?
    pub(super) fn check_move_of_files(&self, range: Range) -> Result<(), Errno> {
        let memory = self.task.memory;
        let is_met = self.files.mappings(memory, pages(range)).next().is_some();
        // One more at each end.
        let fits = !is_met || self.files.free_mappings() >= 2;
        fits.then_some(()).ok_or(Errno(ENOMEM))
    }

    /// Pages that were moved are those of the same files there.
    pub(super) fn move_mappings(&mut self, range: Range, to: u64) -> Result<(), Errno> {
        let (memory, [start, end]) = (self.task.memory, pages(range));
        while let Some(mapping) = self.files.cut(memory, [start, end]) {
            let first = mapping.start.max(start);
            self.files.add_mapping(Mapping {
                start: to + (first - start),
                end: to + (mapping.end.min(end) - start),
                first: mapping.of_file(first),
                ..mapping
            })?;
        }
        Ok(())
    }

    /// The file whose pages a range is as a whole, of which there can be more.
    pub(super) fn grown_file(&self, range: Range) -> Option<Mapping> {
        let [start, end] = pages(range);
        let mut all = self.files.mappings(self.task.memory, [start, end]);
        all.find(|it| it.start <= start && end <= it.end).copied()
    }

    /// Maps more of a file at another place, and what was mapped of it no more.
    pub(super) fn move_longer(&mut self, range: Range, new: Range, had: &Mapping) -> Answer {
        let ([start, end], rights) = (pages(new), Space::rights_at(&self.store, range.start)?);
        let first = had.of_file(pages(range)[0]);
        self.files.add_mapping(Mapping {
            start,
            end,
            first,
            ..*had
        })?;
        if let Err(error) = self.map_pages(new, had.node, (first, rights)) {
            self.take_out(new)?;
            return Err(error);
        }
        self.take_out(range)?;
        Ok(new.start)
    }

    /// A memory is empty.
    pub(in crate::linux) fn forget_mappings(&mut self, memory: usize) {
        self.cut_mappings(memory, [0, u64::MAX]);
    }

    /// Files that are mapped have other sizes: so has what is mapped of them.
    pub(super) fn tend_mappings(&mut self) {
        if !self.files.take_resized() {
            return;
        }
        for place in 0.. {
            match self.files.mapping_at(place) {
                Some(Some(mapping)) => self.within(mapping.memory, |it| it.follow(&mapping)),
                Some(None) => {}
                None => return,
            }
        }
    }

    fn follow(&mut self, mapping: &Mapping) {
        let size = self.files.pages(mapping.node);
        for page in mapping.start..mapping.end {
            let of_file = mapping.of_file(page);
            let is_missing = Space::is_beyond(&self.store, page * PAGE);
            if of_file >= size {
                Space::withdraw(&mut self.store, &mut self.machine, page);
            } else if is_missing && self.fill_page(page, mapping.node, of_file).is_err() {
                // Whoever uses it is told as on Linux, by SIGBUS.
                self.tell_full();
            }
        }
    }

    /// Would a program get rights to write to a file that it has opened to read?
    pub(super) fn is_read_only(&self, start: u64, bytes: u64, protection: u64) -> bool {
        let Ok(range) = Range::new(start, bytes) else {
            return false;
        };
        let mut all = self.files.mappings(self.task.memory, pages(range));
        protection & u64::from(PROT_WRITE) != 0 && all.any(|it| !it.writes)
    }

    /// `msync`: what was written in memory is in the file anyway; whether it is on the disk.
    pub(super) fn synchronize(&mut self, start: u64, bytes: u64, flags: u64) -> Answer {
        let known = u64::from(MS_ASYNC | MS_INVALIDATE | MS_SYNC);
        let both = u64::from(MS_ASYNC | MS_SYNC);
        if flags & !known != 0 || flags & both == both || !start.is_multiple_of(PAGE) {
            return Err(Errno(EINVAL));
        }
        if bytes == 0 {
            return Ok(0);
        }
        let range = Range::new(start, bytes).map_err(|_| Errno(ENOMEM))?;
        let [first, end] = pages(range);
        if !(first..end).all(|page| Space::has(&self.store, page * PAGE)) {
            return Err(Errno(ENOMEM));
        }
        if flags & u64::from(MS_INVALIDATE) != 0 && Space::has_locked(&self.store, range) {
            return Err(Errno(EBUSY));
        }
        if flags & u64::from(MS_SYNC) != 0 {
            self.commit()?;
        }
        Ok(0)
    }
}

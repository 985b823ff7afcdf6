//! Calls about memory.

use core::ops::RangeInclusive;

use linux_raw_sys::errno::{EACCES, EBADF, EEXIST, EFAULT, EINVAL, ENODEV, ENOMEM, EOPNOTSUPP};
use linux_raw_sys::general::{
    MADV_COLLAPSE, MADV_DONTFORK, MADV_DONTNEED, MADV_FREE, MADV_NORMAL, MADV_REMOVE,
    MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_DENYWRITE, MAP_EXECUTABLE, MAP_FIXED, MAP_FIXED_NOREPLACE,
    MAP_GROWSDOWN, MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT,
    MLOCK_ONFAULT, MREMAP_FIXED, MREMAP_MAYMOVE, O_ACCMODE, O_WRONLY, PROT_EXEC, PROT_NONE,
    PROT_READ, PROT_WRITE,
};
use rcoe_abi::Rights;

use super::PORTION;
use crate::linux::arch::nr;
use crate::linux::machine::PAGE;
use crate::linux::space::{Range, Space};
use crate::linux::{Answer, Errno, Machine, Process};

/// Most bytes of one mapping.
const MOST: u64 = 1 << 32;

/// All kinds of advice that there are.
const ADVICE: RangeInclusive<u32> = MADV_NORMAL..=MADV_COLLAPSE;
/// Of that, what is refused.
const UNKNOWN: [u32; 3] = [MADV_DONTFORK, MADV_FREE, MADV_WIPEONFORK];
/// What is to be kept in memory: what is there, what will be, and when it is used alone.
const ON_FAULT: u64 = MCL_ONFAULT as u64;
const KEEPS: u64 = MCL_CURRENT as u64 | MCL_FUTURE as u64 | ON_FAULT;

/// The flags of a mapping that every kernel knows.
const OLD_FLAGS: u64 = (MAP_TYPE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | nr::MAP_32BIT) as u64;

/// The bit of a protection that makes memory code.
const EXECUTE: u64 = PROT_EXEC as u64;

/// The rights that a program asks for. None are both to write and to execute.
fn rights(protection: u64) -> Result<Rights, Errno> {
    let has = |bit: u32| protection & u64::from(bit) != 0;
    match (has(PROT_READ), has(PROT_WRITE), has(PROT_EXEC)) {
        (_, true, true) => Err(Errno(EACCES)),
        (_, true, false) => Ok(Rights::READ_WRITE),
        (_, false, true) => Ok(Rights::READ.or(Rights::EXECUTE)),
        (true, false, false) => Ok(Rights::READ),
        (false, false, false) => Ok(Rights::NONE),
    }
}

/// Does a mapping say of itself whether it is shared?
fn is_kind(flags: u64) -> bool {
    let kind = u32::try_from(flags & u64::from(MAP_TYPE));
    kind.is_ok_and(|it| [MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE].contains(&it))
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn memory_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_brk => {
                let (store, machine) = (&mut self.store, &mut self.machine);
                Ok(self.space.set_brk(store, machine, first))
            }
            nr::__NR_mmap if !is_kind(fourth) => Err(Errno(EINVAL)),
            nr::__NR_mmap if let Err(error) = self.check_mapping(words) => Err(error),
            nr::__NR_mmap if third & EXECUTE != 0 => self.map_code(words),
            nr::__NR_mmap => {
                let mapped = self.map(words);
                self.lock_new(mapped, second, fourth)
            }
            nr::__NR_munmap => self.unmap(first, second),
            nr::__NR_msync => self.synchronize(first, second, third),
            nr::__NR_mprotect if self.is_read_only(first, second, third) => Err(Errno(EACCES)),
            nr::__NR_mprotect => match self.protect(first, second, third) {
                Err(Errno(EACCES)) => self.refuse_code(),
                other => other,
            },
            nr::__NR_mremap => self.remap(words),
            nr::__NR_madvise => self.advise(first, second, third),
            nr::__NR_mlock => self.lock(first, second, true),
            nr::__NR_munlock => self.lock(first, second, false),
            nr::__NR_mlock2 if third & !u64::from(MLOCK_ONFAULT) == 0 => {
                self.lock(first, second, true)
            }
            nr::__NR_mlock2 => Err(Errno(EINVAL)),
            nr::__NR_mlockall if first & !KEEPS == 0 && first & !ON_FAULT != 0 => {
                Ok(self.lock_all(first))
            }
            nr::__NR_mlockall => Err(Errno(EINVAL)),
            nr::__NR_munlockall => Ok(self.lock_all(0)),
            _ => return None,
        })
    }

    /// Where something is to be mapped, where nothing is any more.
    pub(in crate::linux) fn place(&mut self, words: [u64; 6]) -> Result<Range, Errno> {
        let [address, bytes, _, flags, ..] = words;
        let has = |bit: u32| flags & u64::from(bit) != 0;
        if bytes == 0 {
            return Err(Errno(EINVAL));
        }
        if bytes > MOST {
            return Err(Errno(ENOMEM));
        }
        let fixed = has(MAP_FIXED) || has(MAP_FIXED_NOREPLACE);
        let range = match fixed {
            true => Range::new(address, bytes)?,
            false => self.space.room(&self.store, bytes)?,
        };
        if fixed {
            self.clear(range, has(MAP_FIXED_NOREPLACE))?;
        }
        Ok(range)
    }

    /// What is wrong with a mapping before it is looked at what it is of.
    fn check_mapping(&mut self, words: [u64; 6]) -> Result<(), Errno> {
        let [_, bytes, _, flags, file, _] = words;
        let is_of_file = flags & u64::from(MAP_ANONYMOUS) == 0;
        if is_of_file {
            self.files.of(file).map_err(|_| Errno(EBADF))?;
        }
        if bytes == 0 {
            return Err(Errno(EINVAL));
        }
        let validates = flags & u64::from(MAP_TYPE) == u64::from(MAP_SHARED_VALIDATE);
        match validates {
            true if !is_of_file => Err(Errno(EINVAL)),
            true if flags & !OLD_FLAGS != 0 => Err(Errno(EOPNOTSUPP)),
            _ => Ok(()),
        }
    }

    fn map(&mut self, words: [u64; 6]) -> Answer {
        let [_, bytes, protection, flags, file, offset] = words;
        let has = |bit: u32| flags & u64::from(bit) != 0;
        let rights = rights(protection)?;
        if has(MAP_SHARED) && !has(MAP_ANONYMOUS) {
            return self.map_shared_file(words, rights);
        }
        if has(MAP_SHARED) {
            let range = self.place(words)?;
            return self.map_shared(range, rights);
        }
        let file = match has(MAP_ANONYMOUS) {
            true => None,
            false => Some(self.mapped_privately(file, offset)?),
        };
        let range = self.place(words)?;
        // What nobody may use, or says will hardly be used, is had when it is used.
        let late = protection == PROT_NONE.into() || has(MAP_NORESERVE) || has(MAP_STACK);
        if has(MAP_ANONYMOUS) && late {
            Space::promise(&mut self.store, range, rights)?;
            return Ok(range.start);
        }
        let Some(node) = file else {
            Space::add(&mut self.store, &mut self.machine, range, rights)?;
            return Ok(range.start);
        };
        let (store, machine) = (&mut self.store, &mut self.machine);
        Space::add(store, machine, range, Rights::READ_WRITE)?;
        self.fill(range.start, bytes, (node, offset))?;
        Space::protect(&mut self.store, &mut self.machine, range, rights)?;
        Ok(range.start)
    }

    /// The file that is to be copied into memory from a place on.
    fn mapped_privately(&mut self, file: u64, offset: u64) -> Result<usize, Errno> {
        if !offset.is_multiple_of(PAGE) {
            return Err(Errno(EINVAL));
        }
        let open = *self.files.of(file).map_err(|_| Errno(EBADF))?;
        let node = open.node().map_err(|_| Errno(ENODEV))?;
        if open.flags & O_ACCMODE == O_WRONLY {
            return Err(Errno(EACCES));
        }
        match self.files.node(node).kind.is_folder() {
            true => Err(Errno(ENODEV)),
            false => Ok(node),
        }
    }

    /// Memory that children will share. It is had at once, and there is only so much of it.
    pub(super) fn map_shared(&mut self, range: Range, rights: Rights) -> Answer {
        let shared = Space::share(&mut self.store, &mut self.machine, range, rights);
        shared.inspect_err(|_| self.tell_full())?;
        Ok(range.start)
    }

    pub(super) fn tell_full(&mut self) {
        let text = format_args!(
            "the system sphere has no more memory that processes can share: the program got \
             ENOMEM"
        );
        self.tell_once(nr::__NR_mmap.into(), text);
    }

    /// Takes out what is in a range, or refuses if there is anything.
    fn clear(&mut self, range: Range, keep: bool) -> Result<(), Errno> {
        let taken = (range.start / PAGE..range.end / PAGE).any(|it| self.store.get(it) != 0);
        if taken && keep {
            return Err(Errno(EEXIST));
        }
        self.take_out(range)
    }

    /// Copies a file's bytes into memory, as far as it has any.
    fn fill(&mut self, start: u64, bytes: u64, (node, offset): (usize, u64)) -> Result<(), Errno> {
        let mut done = 0;
        let mut portion = [0; PORTION];
        while done < bytes {
            let place = (node, offset.saturating_add(done));
            let len = self
                .files
                .read(&self.store, &self.machine, place, &mut portion);
            let len = len.min(usize::try_from(bytes - done).unwrap_or(PORTION));
            if len == 0 {
                break;
            }
            self.write(start + done, &portion[..len])?;
            done += len as u64;
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: u64) -> Answer {
        let range = Range::new(address, bytes)?;
        if bytes > MOST {
            return Err(Errno(EINVAL));
        }
        self.take_out(range).map(|()| 0)
    }

    fn protect(&mut self, address: u64, bytes: u64, protection: u64) -> Answer {
        if bytes == 0 {
            return Ok(0);
        }
        if bytes > MOST {
            return Err(Errno(ENOMEM));
        }
        if !address.is_multiple_of(PAGE) {
            return Err(Errno(EINVAL));
        }
        let range = Range::new(address, bytes).map_err(|_| Errno(ENOMEM))?;
        let rights = rights(protection)?;
        Space::protect(&mut self.store, &mut self.machine, range, rights)?;
        Ok(0)
    }

    /// What follows from advice about memory. That which a child is not to have would have to be
    /// looked for when there is one, and nobody looks for memory that may be taken until it is
    /// written again: both are refused, as by kernels that do not know them.
    fn advise(&mut self, address: u64, bytes: u64, advice: u64) -> Answer {
        let advice = u32::try_from(advice & 0xffff_ffff).unwrap_or(u32::MAX);
        if UNKNOWN.contains(&advice) || !ADVICE.contains(&advice) {
            return Err(Errno(EINVAL));
        }
        match advice {
            MADV_DONTNEED => self.forget(address, bytes),
            MADV_REMOVE => self.punch(address, bytes),
            _ if !address.is_multiple_of(PAGE) => Err(Errno(EINVAL)),
            // What is not needed may stay.
            _ => self.keep_there(address, bytes),
        }
    }

    /// What a program needs no more reads as zeroes then.
    fn forget(&mut self, address: u64, bytes: u64) -> Answer {
        if bytes == 0 {
            return Ok(0);
        }
        if bytes > MOST {
            return Err(Errno(ENOMEM));
        }
        let range = Range::new(address, bytes)?;
        let emptied = Space::empty(&self.store, &mut self.machine, range);
        emptied.map(|()| 0)
    }

    /// Memory goes nowhere: it is enough that it is there.
    fn keep_there(&mut self, address: u64, bytes: u64) -> Answer {
        if bytes == 0 {
            return Ok(0);
        }
        if bytes > MOST {
            return Err(Errno(ENOMEM));
        }
        let range = Range::new(address - address % PAGE, bytes + address % PAGE)?;
        let mut pages = (range.start..range.end).step_by(4096);
        let is_there = pages.all(|at| Space::has(&self.store, at));
        is_there.then_some(0).ok_or(Errno(ENOMEM))
    }

    /// Notes what is to stay in memory, which it does anyway.
    fn lock(&mut self, address: u64, bytes: u64, locked: bool) -> Answer {
        self.keep_there(address, bytes)?;
        if bytes > 0 {
            let within = address % PAGE;
            let range = Range::new(address - within, bytes + within)?;
            Space::set_locked(&mut self.store, range, locked);
        }
        Ok(0)
    }

    /// The same of all that there is, that will be, or neither.
    fn lock_all(&mut self, what: u64) -> u64 {
        self.space.locks = what & u64::from(MCL_FUTURE) != 0;
        if what == 0 || what & u64::from(MCL_CURRENT) != 0 {
            Space::set_all_locked(&mut self.store, what != 0);
        }
        0
    }

    /// What was mapped now is to stay in memory, if the program says so.
    fn lock_new(&mut self, mapped: Answer, bytes: u64, flags: u64) -> Answer {
        if self.space.locks || flags & u64::from(MAP_LOCKED) != 0 {
            let range = Range::new(mapped?, bytes)?;
            Space::set_locked(&mut self.store, range, true);
        }
        mapped
    }

    /// What processes share reads as zeroes then.
    fn punch(&mut self, address: u64, bytes: u64) -> Answer {
        if bytes > MOST {
            return Err(Errno(ENOMEM));
        }
        let range = Range::new(address, bytes)?;
        let emptied = Space::punch(&self.store, &mut self.machine, range);
        emptied.map(|()| 0)
    }

    /// Gives a mapping another length, at another place if it has to grow or the program says so.
    fn remap(&mut self, words: [u64; 6]) -> Answer {
        let [old, bytes, wanted, flags, to, _] = words;
        let has = |bit: u32| flags & u64::from(bit) != 0;
        let known = u64::from(MREMAP_MAYMOVE | MREMAP_FIXED);
        if flags & !known != 0 || has(MREMAP_FIXED) && !has(MREMAP_MAYMOVE) {
            return Err(Errno(EINVAL));
        }
        let range = Range::new(old, bytes)?;
        if wanted == 0 || wanted > MOST {
            return Err(Errno(EINVAL));
        }
        let kept = Range::new(old, wanted)?;
        if has(MREMAP_FIXED) {
            return self.remap_to(range, kept, to);
        }
        self.check_moved(range)?;
        if kept.end <= range.end {
            self.shorten(range, kept)?;
            return Ok(old);
        }
        if !has(MREMAP_MAYMOVE) {
            return Err(Errno(ENOMEM));
        }
        self.check_growth(range)?;
        let new = self.space.room(&self.store, wanted)?;
        self.move_to(range, new)
    }

    /// Has a mapping be at a place that the program names, where nothing else is any more.
    fn remap_to(&mut self, range: Range, kept: Range, to: u64) -> Answer {
        let new = Range::new(to, kept.end - kept.start).map_err(|_| Errno(EINVAL))?;
        if new.start < range.end && range.start < new.end {
            return Err(Errno(EINVAL));
        }
        self.check_moved(range)?;
        let grows = kept.end > range.end;
        if grows {
            self.check_growth(range)?;
        }
        self.take_out(new)?;
        if grows {
            return self.move_to(range, new);
        }
        self.shorten(range, kept)?;
        self.move_to(kept, new)
    }

    /// Are all pages there that are to be moved?
    fn check_moved(&self, range: Range) -> Result<(), Errno> {
        let mut pages = (range.start..range.end).step_by(4096);
        let is_there = pages.all(|at| Space::has(&self.store, at));
        is_there.then_some(()).ok_or(Errno(EFAULT))
    }

    fn shorten(&mut self, range: Range, kept: Range) -> Result<(), Errno> {
        if kept.end < range.end {
            let start = kept.end;
            self.take_out(Range { start, ..range })?;
        }
        Ok(())
    }

    fn check_growth(&mut self, range: Range) -> Result<(), Errno> {
        if !Space::has_shared(&self.store, range) || self.grown_file(range).is_some() {
            return Ok(());
        }
        let text = format_args!(
            "the system sphere does not make memory longer that processes share (mremap): the \
             program got ENOMEM"
        );
        self.tell_once(nr::__NR_mremap.into(), text);
        Err(Errno(ENOMEM))
    }

    /// Moves pages to the beginning of a range where nothing is, behind which there are new ones.
    fn move_to(&mut self, range: Range, new: Range) -> Answer {
        let [own, moved] = [range, new].map(|it| it.start / PAGE);
        if Space::has_code(&self.store, range) {
            // Code is where it was looked at.
            return Err(Errno(EINVAL));
        }
        self.check_move_of_files(range)?;
        let start = new.start + (range.end - range.start);
        let grown = self.grown_file(range);
        let (store, machine) = (&mut self.store, &mut self.machine);
        if let Some(mapping) = grown.filter(|_| start < new.end) {
            return self.move_longer(range, new, &mapping);
        }
        if start < new.end {
            Space::add_like(store, machine, Range { start, ..new }, range.end - PAGE)?;
        }
        for page in 0..(range.end - range.start) / PAGE {
            if !Space::move_page(store, machine, [own + page, moved + page]) {
                for page in 0..page {
                    // They were there before.
                    Space::move_page(store, machine, [moved + page, own + page]);
                }
                self.space.unmap(store, machine, new);
                return Err(Errno(ENOMEM));
            }
        }
        self.space.unmap(store, machine, range);
        self.move_mappings(range, new.start / PAGE)?;
        Ok(new.start)
    }
}

//! The program's address space: which pages there are, with what rights, and which frames they are.
//!
//! Memory is given when it is mapped, and not when it is used first: what cannot be had is an error
//! of the call. Only the stack grows by page faults, and what is mapped as stacks of threads are
//! (without rights, or said to be hardly used) is *promised*: given when it is used. No page is
//! both writable and executable.

use rcoe_abi::Rights;

use super::machine::{Machine, PAGE};
use super::{Answer, Errno, Sparse};
use linux_raw_sys::errno::{EACCES, EFAULT, EINVAL, ENOMEM};

mod beyond;
mod page;
mod region;
mod shared;

use beyond::BEYOND;
use page::{PROMISED, Page};
pub(crate) use region::Region;
use shared::share_page;

/// Where the stack ends, and where it can grow to.
pub(crate) const STACK_TOP: u64 = 0x7ff0_0000_0000;
/// See [`STACK_TOP`].
pub(crate) const STACK_BYTES: u64 = 8 << 20;
/// Where memory is mapped for which the program names no place.
const MAPPED: u64 = 0x10_0000_0000;
const MAPPED_END: u64 = 0x14_0000_0000;
/// Most that the heap by `brk` grows.
const BRK_MOST: u64 = 1 << 30;
/// Lowest address of a page.
const LOWEST: u64 = 0x1_0000;

/// A range of whole pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Range {
    /// The pages of `bytes` from a page on, if they are a program's.
    pub(crate) fn new(start: u64, bytes: u64) -> Result<Self, Errno> {
        let end = start
            .checked_add(bytes)
            .and_then(|it| it.checked_next_multiple_of(PAGE));
        let end = end.filter(|&end| end <= STACK_TOP).ok_or(Errno(ENOMEM))?;
        if !start.is_multiple_of(PAGE) || end == start || start < LOWEST {
            return Err(Errno(EINVAL));
        }
        Ok(Self { start, end })
    }

    fn pages(self) -> impl Iterator<Item = u64> {
        (self.start / PAGE)..(self.end / PAGE)
    }
}

/// The address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Where the heap begins and ends.
    brk_start: u64,
    brk: u64,
    /// Below this no page is free where memory is mapped.
    next: u64,
    /// Is what is mapped to stay in memory?
    pub(crate) locks: bool,
}

impl Space {
    /// An address space with an image that ends there.
    pub(crate) const fn new(end: u64) -> Self {
        let start = end.next_multiple_of(PAGE);
        Self {
            brk_start: start,
            brk: start,
            next: MAPPED,
            locks: false,
        }
    }

    /// Maps new zeroed pages where none are; all or nothing.
    pub(crate) fn add(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        range: Range,
        rights: Rights,
    ) -> Result<(), Errno> {
        Self::add_each(store, machine, range, |store, machine, page| {
            add_page(store, machine, page, rights)
        })
    }

    fn add_each<'a, M: Machine>(
        store: &mut Sparse<'a>,
        machine: &mut M,
        range: Range,
        add: impl Fn(&mut Sparse<'a>, &mut M, u64) -> Option<()>,
    ) -> Result<(), Errno> {
        for page in range.pages() {
            if add(store, machine, page).is_none() {
                let end = page * PAGE;
                if end > range.start {
                    Self::remove(store, machine, Range { end, ..range });
                }
                return Err(Errno(ENOMEM));
            }
        }
        Ok(())
    }

    /// Maps pages that are given when they are used, where none are; all or nothing.
    pub(crate) fn promise(
        store: &mut Sparse<'_>,
        range: Range,
        rights: Rights,
    ) -> Result<(), Errno> {
        let promised = Page {
            frame: PROMISED,
            rights,
            alias: 0,
            locked: false,
        };
        for page in range.pages() {
            let kept = (store.get(page) == 0)
                .then(|| store.set(page, promised.word()))
                .flatten();
            if kept.is_none() {
                for page in range.start / PAGE..page {
                    // There is room for what is there.
                    let _ = store.set(page, 0);
                }
                return Err(Errno(ENOMEM));
            }
        }
        Ok(())
    }

    /// Gives a page that was promised.
    fn give(store: &mut Sparse<'_>, machine: &mut impl Machine, page: u64) -> Option<()> {
        let promised = Page::from_word(store.get(page))?;
        let rights = promised.rights;
        if promised.frame != PROMISED || promised.alias != 0 || rights == Rights::NONE {
            return None;
        }
        let frame = machine.take()?;
        if !machine.map(frame, page * PAGE, rights) {
            machine.give_back(frame);
            return None;
        }
        store.set(page, Page { frame, ..promised }.word())
    }

    /// Makes pages zero that the program may write. What is shared stays as it is.
    pub(crate) fn empty(
        store: &Sparse<'_>,
        machine: &mut impl Machine,
        range: Range,
    ) -> Result<(), Errno> {
        for page in range.pages() {
            let page = Page::from_word(store.get(page)).ok_or(Errno(ENOMEM))?;
            match page.frame {
                PROMISED => {}
                _ if page.alias != 0 => {}
                _ if !page.rights.contains(Rights::WRITE) => return Err(Errno(EINVAL)),
                frame => machine.write(frame, 0, &[0; 4096]),
            }
        }
        Ok(())
    }

    /// Takes pages out, if they are there.
    fn remove(store: &mut Sparse<'_>, machine: &mut impl Machine, range: Range) {
        for page in range.pages() {
            if let Some(it) = Page::from_word(store.get(page)) {
                if it.frame != PROMISED {
                    drop_page(machine, it);
                }
                // There is room for what is there.
                let _ = store.set(page, 0);
            }
        }
    }

    /// Takes out all pages.
    pub(crate) fn clear(store: &mut Sparse<'_>, machine: &mut impl Machine) {
        let mut from = 0;
        while let Some((next, page, _)) = store.next(from) {
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            Self::remove(store, machine, Range { start, end });
            from = next;
        }
    }

    /// Copies all pages of the address space at hand into another one, where none are; what was
    /// copied stays there if there is no memory for more.
    pub(crate) fn copy(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        [own, other]: [usize; 2],
    ) -> Result<(), Errno> {
        let mut from = 0;
        while let Some((next, page, word)) = store.next(from) {
            store.enter(other);
            machine.enter(other);
            let copied = copy_page(store, machine, page, word);
            store.enter(own);
            machine.enter(own);
            copied.ok_or(Errno(ENOMEM))?;
            from = next;
        }
        Ok(())
    }

    /// Changes the rights of pages that are all there. None becomes code that was not: nobody has
    /// looked for instructions in it that differ between cores.
    pub(crate) fn protect(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        range: Range,
        rights: Rights,
    ) -> Result<(), Errno> {
        for page in range.pages() {
            let old = Page::from_word(store.get(page))
                .ok_or(Errno(ENOMEM))?
                .rights;
            if rights.contains(Rights::EXECUTE) && !old.contains(Rights::EXECUTE) {
                return Err(Errno(EACCES));
            }
        }
        for page in range.pages() {
            let Some(old) = Page::from_word(store.get(page)) else {
                continue;
            };
            if old.rights == rights {
                continue;
            }
            if old.frame != PROMISED {
                machine.unmap(old.mapped());
                let maps = rights != Rights::NONE;
                if maps && !machine.map(old.mapped(), page * PAGE, rights) {
                    return Err(Errno(EACCES));
                }
            }
            let _ = store.set(page, Page { rights, ..old }.word());
        }
        Ok(())
    }

    /// Maps new pages where none are that are like the one at an address, all or nothing.
    pub(crate) fn add_like(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        range: Range,
        like: u64,
    ) -> Result<(), Errno> {
        let like = Page::from_word(store.get(like / PAGE)).ok_or(Errno(EFAULT))?;
        match like.frame {
            PROMISED => Self::promise(store, range, like.rights),
            _ => Self::add(store, machine, range, like.rights),
        }
    }

    /// Notes of pages that are there whether the program wants them to stay in memory.
    pub(crate) fn set_locked(store: &mut Sparse<'_>, range: Range, locked: bool) {
        for page in range.pages() {
            if let Some(it) = Page::from_word(store.get(page)) {
                // There is room for what is there.
                let _ = store.set(page, Page { locked, ..it }.word());
            }
        }
    }

    /// The same of all pages.
    pub(crate) fn set_all_locked(store: &mut Sparse<'_>, locked: bool) {
        let mut from = 0;
        while let Some((next, page, _)) = store.next(from) {
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            Self::set_locked(store, Range { start, end }, locked);
            from = next;
        }
    }

    /// Is any of these pages to stay in memory?
    pub(crate) fn has_locked(store: &Sparse<'_>, range: Range) -> bool {
        let mut all = range
            .pages()
            .filter_map(|it| Page::from_word(store.get(it)));
        all.any(|it| it.locked)
    }

    /// The rights of the page at an address.
    pub(crate) fn rights_at(store: &Sparse<'_>, address: u64) -> Result<Rights, Errno> {
        let page = Page::from_word(store.get(address / PAGE)).ok_or(Errno(EFAULT))?;
        Ok(page.rights)
    }

    /// Is there any code in a range?
    pub(crate) fn has_code(store: &Sparse<'_>, range: Range) -> bool {
        let mut all = range
            .pages()
            .filter_map(|it| Page::from_word(store.get(it)));
        all.any(|it| it.rights.contains(Rights::EXECUTE))
    }

    /// A page is at another place, where none is. Tells whether that is possible.
    pub(crate) fn move_page(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        [from, to]: [u64; 2],
    ) -> bool {
        let word = store.get(from);
        let Some(page) = Page::from_word(word) else {
            return false;
        };
        if store.set(to, word).is_none() {
            return false;
        }
        let is_mapped = page.frame != PROMISED && page.rights != Rights::NONE;
        if is_mapped {
            machine.unmap(page.mapped());
            if !machine.map(page.mapped(), to * PAGE, page.rights) {
                // It was mapped there just now.
                machine.map(page.mapped(), from * PAGE, page.rights);
                let _ = store.set(to, 0);
                return false;
            }
        }
        // There is room for what is there.
        let _ = store.set(from, 0);
        true
    }

    /// Room for so many bytes where nothing is mapped: the lowest, so that what leads to pages is
    /// used again.
    pub(crate) fn room(&mut self, store: &Sparse<'_>, bytes: u64) -> Result<Range, Errno> {
        while self.next < MAPPED_END && store.get(self.next / PAGE) != 0 {
            self.next += PAGE;
        }
        let found = free(store, self.next, MAPPED_END, bytes);
        Range::new(found.ok_or(Errno(ENOMEM))?, bytes)
    }

    /// Takes out what was mapped.
    pub(crate) fn unmap(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        range: Range,
    ) {
        Self::remove(store, machine, range);
        self.next = self.next.min(range.start.max(MAPPED));
    }

    /// Sets the end of the heap, if it can be; where it is.
    pub(crate) fn set_brk(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        wanted: u64,
    ) -> u64 {
        if wanted < self.brk_start || wanted - self.brk_start > BRK_MOST {
            return self.brk;
        }
        let (old, new) = (
            self.brk.next_multiple_of(PAGE),
            wanted.next_multiple_of(PAGE),
        );
        if new > old {
            let range = Range {
                start: old,
                end: new,
            };
            if Self::add(store, machine, range, Rights::READ_WRITE).is_err() {
                return self.brk;
            }
        } else if new < old {
            Self::remove(
                store,
                machine,
                Range {
                    start: new,
                    end: old,
                },
            );
        }
        self.brk = wanted;
        wanted
    }

    /// Adds the page that a fault at this address is about, if it is one of the stack that is not
    /// there yet.
    pub(crate) fn grow_stack(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        address: u64,
    ) -> bool {
        let page = address / PAGE;
        (STACK_TOP - STACK_BYTES..STACK_TOP).contains(&address)
            && store.get(page) == 0
            && add_page(store, machine, page, Rights::READ_WRITE).is_some()
    }

    /// The program used an address that has no memory: can it go on?
    pub(crate) fn fault(store: &mut Sparse<'_>, machine: &mut impl Machine, address: u64) -> bool {
        address < STACK_TOP
            && (Self::give(store, machine, address / PAGE).is_some()
                || Self::grow_stack(store, machine, address))
    }

    /// Is there a page at this address, whatever its rights?
    pub(crate) fn has(store: &Sparse<'_>, address: u64) -> bool {
        address < STACK_TOP && store.get(address / PAGE) != 0
    }

    /// Would there be memory at this address, if there were any left?
    pub(crate) fn has_promised(store: &Sparse<'_>, address: u64) -> bool {
        let word = if address < STACK_TOP {
            store.get(address / PAGE)
        } else {
            return false;
        };
        match Page::from_word(word) {
            Some(page) => page.frame == PROMISED && page.alias == 0 && page.rights != Rights::NONE,
            None => address >= STACK_TOP - STACK_BYTES,
        }
    }

    /// Is this all there, with such rights?
    pub(crate) fn check(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        (at, bytes): (u64, u64),
        rights: Rights,
    ) -> Result<(), Errno> {
        let last = at.checked_add(bytes).ok_or(Errno(EFAULT))?.max(at + 1) - 1;
        for page in at / PAGE..=last / PAGE {
            let address = (page * PAGE).max(at);
            if locate(store, address, 0, rights).is_err() && !Self::fault(store, machine, address) {
                return Err(Errno(EFAULT));
            }
            locate(store, address, 0, rights)?;
        }
        Ok(())
    }

    /// Reads memory of the program, as far as it may.
    pub(crate) fn read(
        store: &Sparse<'_>,
        machine: &impl Machine,
        address: u64,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let (frame, at) = locate(store, address, done, Rights::READ)
                .or_else(|error| unused_stack(store, address, done).ok_or(error))?;
            let len = (bytes.len() - done).min(page_bytes() - at);
            let part = &mut bytes[done..done + len];
            match frame {
                PROMISED => part.fill(0),
                frame => machine.read(frame, at, part),
            }
            done += len;
        }
        Ok(())
    }

    /// Writes memory of the program, as far as it may.
    pub(crate) fn write(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        Self::put(store, machine, address, bytes, Rights::WRITE)
    }

    /// Writes memory that the program can have such rights to: what it begins with.
    pub(crate) fn put(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        address: u64,
        bytes: &[u8],
        rights: Rights,
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let place = locate(store, address, done, rights);
            let (frame, at) = match place {
                Err(_) | Ok((PROMISED, _))
                    if Self::fault(store, machine, address.wrapping_add(done as u64)) =>
                {
                    continue;
                }
                Ok((PROMISED, _)) => return Err(Errno(EFAULT)),
                other => other?,
            };
            let len = (bytes.len() - done).min(page_bytes() - at);
            machine.write(frame, at, &bytes[done..done + len]);
            done += len;
        }
        Ok(())
    }

    /// A word of the program's memory.
    pub(crate) fn word(store: &Sparse<'_>, machine: &impl Machine, address: u64) -> Answer {
        let mut bytes = [0; 8];
        Self::read(store, machine, address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

fn page_bytes() -> usize {
    usize::try_from(PAGE).unwrap_or(usize::MAX)
}

/// Adds a page like the one that this word says.
fn copy_page(
    store: &mut Sparse<'_>,
    machine: &mut impl Machine,
    page: u64,
    word: u64,
) -> Option<()> {
    let it = Page::from_word(word)?;
    if it.frame == PROMISED {
        // What a process locks it locks for itself.
        let locked = false;
        return store.set(page, Page { locked, ..it }.word());
    }
    if it.alias != 0 {
        return share_page(store, machine, page, (it.frame, it.rights, Some(it.alias)));
    }
    add_page(store, machine, page, it.rights)?;
    let copy = Page::from_word(store.get(page))?;
    machine.copy(it.frame, copy.frame);
    Some(())
}

/// A page with memory is there no more.
fn drop_page(machine: &mut impl Machine, it: Page) {
    machine.unmap(it.mapped());
    if it.alias == 0 || machine.unshare(it.alias) {
        machine.give_back(it.frame);
    }
}

fn add_page(
    store: &mut Sparse<'_>,
    machine: &mut impl Machine,
    page: u64,
    rights: Rights,
) -> Option<()> {
    if store.get(page) != 0 {
        return None;
    }
    let frame = machine.take()?;
    let mapped = rights == Rights::NONE || machine.map(frame, page * PAGE, rights);
    let kept = mapped
        .then(|| {
            let alias = 0;
            let it = Page {
                frame,
                rights,
                alias,
                locked: false,
            };
            store.set(page, it.word())
        })
        .flatten();
    if kept.is_none() {
        machine.unmap(frame);
        machine.give_back(frame);
    }
    kept
}

/// Frame, and place in it, of byte `offset` from an address on.
fn locate(
    store: &Sparse<'_>,
    address: u64,
    offset: usize,
    rights: Rights,
) -> Result<(u32, usize), Errno> {
    let address = address.checked_add(offset as u64).ok_or(Errno(EFAULT))?;
    let page = Page::from_word(store.get(address / PAGE)).filter(|_| address < STACK_TOP);
    let page = page
        .filter(|page| page.rights.contains(rights) && page.alias != BEYOND)
        .ok_or(Errno(EFAULT))?;
    let at = usize::try_from(address % PAGE).map_err(|_| Errno(EFAULT))?;
    Ok((page.frame, at))
}

/// The same of a page of the stack that the program has not used yet: it will be zeroes.
fn unused_stack(store: &Sparse<'_>, address: u64, offset: usize) -> Option<(u32, usize)> {
    let address = address.checked_add(offset as u64)?;
    let is_unused =
        (STACK_TOP - STACK_BYTES..STACK_TOP).contains(&address) && store.get(address / PAGE) == 0;
    let at = usize::try_from(address % PAGE).ok()?;
    is_unused.then_some((PROMISED, at))
}

/// The first place between two addresses where so many bytes of pages are free.
fn free(store: &Sparse<'_>, from: u64, to: u64, bytes: u64) -> Option<u64> {
    let wanted = bytes.div_ceil(PAGE);
    let (mut page, end) = (from / PAGE, to / PAGE);
    let mut run = 0;
    while page < end {
        run = if store.get(page) == 0 { run + 1 } else { 0 };
        page += 1;
        if run == wanted {
            return Some((page - wanted) * PAGE);
        }
    }
    None
}

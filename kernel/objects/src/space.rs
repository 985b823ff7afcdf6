//! Address spaces: page tables, frames in them, and numbers for spaces.
//!
//! A capability to a mapped frame remembers the space's number and the address, not the space
//! itself: when the space has ended, the number leads nowhere, or to another space in which the
//! frame is not at that address. An entry of a page table is the one thing in object memory that
//! holds a physical address, so it is the one thing that differs between replicas.

use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, Rights};
use rcoe_core::mix;

use crate::Ref;
use crate::arch::{self, ENTRIES, LEVELS};
use crate::cap::Mapping;
use crate::kernel::{Kernel, SPACES};
use crate::sphere::{Sphere, kind};

/// The root's level.
const TOP: usize = LEVELS - 1;

/// How the way to a table ends before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// A table of this level is missing.
    Missing(usize),
    /// A frame is mapped there.
    Taken,
}

impl<S: Sphere> Kernel<'_, S> {
    /// A number for a new space.
    pub(crate) fn free_space(&self) -> Option<u16> {
        let count = u16::try_from(SPACES).ok()?;
        (0..count)
            .map(|offset| (self.next_space + offset) % count)
            .find(|&asid| asid != 0 && self.spaces[usize::from(asid)].is_none())
    }

    /// A root table in zeroed memory becomes a space.
    pub(crate) fn begin_space(&mut self, root: Ref, asid: u16) {
        self.spaces[usize::from(asid)] = root;
        self.next_space = asid + 1;
        let entry = self.sphere.kernel_entry();
        self.mem.set(root, arch::KERNEL_ENTRY, entry);
    }

    pub(crate) fn end_space(&mut self, root: Ref, asid: u16) {
        let number = usize::from(asid);
        assert!(self.spaces[number] == root, "a space ends once");
        self.spaces[number] = Ref::NONE;
        self.sphere.leave_space();
        self.end_table(root, TOP);
    }

    fn physical(&self, place: Ref) -> u64 {
        self.sphere.base() + place.bytes()
    }

    pub(crate) fn place(&self, entry: u64) -> Ref {
        Ref::from_bytes(arch::physical(entry) - self.sphere.base())
    }

    /// The table of `level` on the way to `address`, or how the way ends.
    pub(crate) fn walk(&self, root: Ref, address: u64, level: usize) -> Result<Ref, End> {
        let mut table = root;
        for above in (level + 1..=TOP).rev() {
            let entry = self.mem.get(table, arch::index(address, above));
            if !arch::is_present(entry) {
                return Err(End::Missing(above - 1));
            }
            if !arch::is_table(entry) {
                return Err(End::Taken);
            }
            table = self.place(entry);
        }
        Ok(table)
    }

    /// Writes an entry of a table that lies at `address` in a space, and folds what is there then
    /// into the trace.
    pub(crate) fn set_entry(&mut self, table: Ref, address: u64, level: usize, entry: u64) {
        self.mem.set(table, arch::index(address, level), entry);
        self.tell_entry(table, address, level);
    }

    /// Folds an entry into the trace, as it would be in a partition at 0.
    pub(crate) fn tell_entry(&mut self, table: Ref, address: u64, level: usize) {
        let entry = self.mem.read_back(table, arch::index(address, level));
        let place = mix(u64::from(table.units()) << 8 | level as u64);
        let digest = mix(mix(place ^ address) ^ self.relative(entry));
        self.sphere.event(kind::PAGE, digest);
    }

    /// Where a new table would go: the level at which the way to `address` ends.
    pub(crate) fn missing_level(&self, root: Ref, address: u64) -> Result<usize, Error> {
        match self.walk(root, address, 0) {
            Ok(_) | Err(End::Taken) => Err(Error::DeleteFirst),
            Err(End::Missing(level)) => Ok(level),
        }
    }

    pub(crate) fn map_table(&mut self, root: Ref, address: u64, level: usize, table: Ref) {
        let above = self
            .walk(root, address, level + 1)
            .expect("decoding found the level");
        let entry = arch::table(self.physical(table));
        self.set_entry(above, address, level + 1, entry);
    }

    /// May a frame be mapped at `address`, by an entry of a table of this level?
    pub(crate) fn check_vacant(&self, root: Ref, address: u64, level: usize) -> Result<(), Error> {
        let table = self.walk(root, address, level).map_err(|end| match end {
            End::Missing(_) => Error::MissingTable,
            End::Taken => Error::DeleteFirst,
        })?;
        if arch::is_present(self.mem.get(table, arch::index(address, level))) {
            return Err(Error::DeleteFirst);
        }
        Ok(())
    }

    /// Maps a frame, by an entry of a table of the level that comes with it.
    pub(crate) fn map_frame(
        &mut self,
        root: Ref,
        address: u64,
        (frame, level): (Ref, u32),
        rights: Rights,
    ) {
        let table = self.walk(root, address, level as usize);
        let table = table.expect("decoding found the table");
        let place = self.physical(frame);
        let entry = match level {
            0 => arch::leaf(place, rights),
            _ => arch::large_leaf(place, rights),
        };
        let entry = if self.is_guest_space(root) {
            arch::of_guest(entry)
        } else {
            entry
        };
        self.forget_leaf(entry, level as usize);
        self.set_entry(table, address, level as usize, entry);
    }

    pub(crate) fn root_of(&self, mapping: Mapping) -> Option<Ref> {
        self.spaces[usize::from(mapping.asid) % SPACES].some()
    }

    /// Takes a frame out of the space that a capability remembers, if it is still there.
    pub(crate) fn unmap_frame(&mut self, frame: Ref, level: u32, mapping: Mapping) {
        let level = level as usize;
        let Some(root) = self.root_of(mapping) else {
            return;
        };
        let Ok(table) = self.walk(root, mapping.address, level) else {
            return;
        };
        let entry = self.mem.get(table, arch::index(mapping.address, level));
        let is_frame = arch::is_present(entry) && !(level > 0 && arch::is_table(entry));
        if is_frame && arch::physical(entry) == self.physical(frame) {
            self.forget_leaf(entry, level);
            self.set_entry(table, mapping.address, level, 0);
            self.sphere.flush();
        }
    }

    /// Takes a table out, with all that is mapped in it.
    pub(crate) fn unmap_table(&mut self, table: Ref, level: u32, mapping: Mapping) {
        let Some(root) = self.root_of(mapping) else {
            return;
        };
        let above = level as usize + 1;
        let Ok(holder) = self.walk(root, mapping.address, above) else {
            return;
        };
        let entry = self.mem.get(holder, arch::index(mapping.address, above));
        if arch::is_table(entry) && arch::physical(entry) == self.physical(table) {
            self.set_entry(holder, mapping.address, above, 0);
            self.sphere.flush();
            self.end_table(table, level as usize);
        }
    }

    /// The byte of memory that the running thread has at an address, if it has any.
    fn own_byte(&self, address: u64) -> Option<u8> {
        let root = self.space_of(self.current.some()?)?;
        let (table, level) = match self.walk(root, address, 0) {
            Ok(table) => (table, 0),
            Err(_) => (self.walk(root, address, 1).ok()?, 1),
        };
        let entry = self.mem.get(table, arch::index(address, level));
        if !arch::is_present(entry) || level > 0 && arch::is_table(entry) {
            return None;
        }
        let bytes = PAGE << (9 * level);
        let frame = arch::physical(entry).checked_sub(self.sphere.base())?;
        let place = frame + address % bytes;
        if place >= self.mem.bytes() {
            return None;
        }
        let word = self.mem.get(
            Ref::from_bytes(place / PAGE * PAGE),
            (place % PAGE / 8) as usize,
        );
        Some(word.to_le_bytes()[(place % 8) as usize])
    }

    /// The instruction in object memory at a physical address, if it is there.
    #[must_use]
    pub fn instruction(&self, physical: u64) -> Option<u32> {
        let place = physical.checked_sub(self.sphere.base())?;
        if place >= self.mem.bytes() || !place.is_multiple_of(4) {
            return None;
        }
        let page = Ref::from_bytes(place / PAGE * PAGE);
        let word = self.mem.get(page, (place % PAGE / 8) as usize);
        let at = (place % 8) as usize;
        let bytes = word.to_le_bytes()[at..at + 4].try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    /// The instruction behind this one of the running thread's, if it is one that repeats itself,
    /// and may be interrupted in between.
    #[must_use]
    pub fn behind_repetition(&self, ip: u64) -> Option<u64> {
        let code = core::array::from_fn(|at| self.own_byte(ip.wrapping_add(at as u64)));
        let bytes = arch::repetition(&code)?;
        Some(ip.wrapping_add(bytes))
    }

    /// Every page table moves by the difference between two partitions: for a copy of all this in
    /// another one.
    pub fn rebase(&mut self, from: u64, to: u64, kernel_entry: u64) {
        for number in 0..SPACES {
            if let Some(root) = self.spaces[number].some() {
                self.rebase_table(root, TOP, from, to);
                self.mem.set(root, arch::KERNEL_ENTRY, kernel_entry);
            }
        }
        self.aim_all();
    }

    /// As deep as there are levels.
    fn rebase_table(&mut self, table: Ref, level: usize, from: u64, to: u64) {
        for index in 0..ENTRIES {
            let kernel = level == TOP && index == arch::KERNEL_ENTRY;
            let entry = self.mem.get(table, index);
            if kernel || !arch::is_present(entry) {
                continue;
            }
            let leads_on = level > 0 && arch::is_table(entry);
            let offset = arch::physical(entry).wrapping_sub(from);
            if !leads_on && offset >= self.mem.bytes() {
                // A page of device memory, which is where it was.
                continue;
            }
            let moved = entry & !arch::physical(entry) | (to + offset);
            self.mem.set(table, index, moved);
            if leads_on {
                self.rebase_table(Ref::from_bytes(offset), level - 1, from, to);
            }
        }
    }
}

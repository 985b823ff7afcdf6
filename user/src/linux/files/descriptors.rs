//! Descriptors of processes, and what is open.
//!
//! What is open may have many descriptors, of one process or of several: the children of a process
//! begin with those that it has. It is closed with the last one.

use linux_raw_sys::errno::{EBADF, EINVAL, EMFILE, ENFILE};
use linux_raw_sys::general::O_CLOEXEC;

use super::{FILE_NUMBERS, Files, Path};
use crate::linux::Errno;
use crate::linux::streams::Target;

/// No descriptor.
const CLOSED: u16 = u16::MAX;
const WORDS: usize = FILE_NUMBERS.div_ceil(64);

/// A file that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) target: Target,
    pub(crate) offset: u64,
    pub(crate) flags: u32,
    /// How many descriptors lead to it, those included that are on their way.
    count: u32,
}

impl Open {
    pub(super) const FREE: Self = Self {
        target: Target::Node(0),
        offset: 0,
        flags: 0,
        count: 0,
    };

    /// The file or folder that it is; not what has no places, as pipes and sockets.
    pub(crate) const fn node(&self) -> Result<usize, Errno> {
        match self.target {
            Target::Node(node) => Ok(node),
            _ => Err(Errno(EINVAL)),
        }
    }

    pub(super) const fn is_used(&self) -> bool {
        self.count > 0
    }
}

/// What a process has of files: its descriptors, and which of them are closed when it begins
/// another program; the folder that other paths begin from; its program; and what others may not do
/// with new files.
#[derive(Clone, Debug)]
pub(super) struct Table {
    descriptors: [u16; FILE_NUMBERS],
    private: [u64; WORDS],
    /// How many there may be, and how many that may become.
    limits: [u64; 2],
    pub(super) folder: Path,
    /// The folder that is the root for it.
    pub(super) root: Path,
    pub(super) program: Path,
    pub(super) mask: u32,
}

impl Table {
    /// Of a process that begins.
    pub(super) const FIRST: Self = Self {
        descriptors: [CLOSED; FILE_NUMBERS],
        private: [0; WORDS],
        limits: [FILE_NUMBERS as u64; 2],
        folder: Path::ROOT,
        root: Path::ROOT,
        program: Path::ROOT,
        mask: 0o022,
    };

    /// Has a descriptor lead to a place, or nowhere.
    fn set(&mut self, number: usize, place: u16, private: bool) {
        self.descriptors[number] = place;
        let (word, bit) = (number / 64, 1 << (number % 64));
        self.private[word] &= !bit;
        if private {
            self.private[word] |= bit;
        }
    }

    fn is_private(&self, number: usize) -> bool {
        self.private[number / 64] >> (number % 64) & 1 != 0
    }
}

impl Files<'_> {
    /// The descriptors of this process are meant from here on.
    pub(crate) const fn enter(&mut self, process: usize) {
        self.tables.enter(process);
    }

    /// A process begins with what the one at hand has.
    pub(crate) fn inherit(&mut self, process: usize) {
        let table = (*self.tables).clone();
        for place in table.descriptors {
            if let Some(open) = self.open.get_mut(usize::from(place)) {
                open.count += 1;
            }
        }
        *self.tables.at(process) = table;
    }

    /// How many descriptors the process at hand may have, and how many that may become.
    pub(crate) fn limits(&self) -> [u64; 2] {
        self.tables.limits
    }

    /// Sets both.
    pub(crate) fn set_limits(&mut self, limits: [u64; 2]) {
        self.tables.limits = limits;
    }

    /// A new descriptor for what is opened.
    pub(crate) fn open(&mut self, target: Target, flags: u32) -> Result<usize, Errno> {
        let free = self.open.iter().position(|it| it.count == 0);
        let place = free.ok_or(Errno(ENFILE))?;
        let number = self.descriptor_from(0)?;
        self.open[place] = Open {
            target,
            offset: 0,
            flags: flags & !O_CLOEXEC,
            count: 1,
        };
        let place = u16::try_from(place).map_err(|_| Errno(ENFILE))?;
        self.tables.set(number, place, flags & O_CLOEXEC != 0);
        Ok(number)
    }

    /// What is open at a place is kept open by something that is no descriptor.
    pub(crate) const fn hold(&mut self, place: usize) {
        self.open[place].count += 1;
    }

    /// That is over; what it was, if nothing else keeps it open.
    pub(crate) fn drop_at(&mut self, place: usize) -> Option<Target> {
        let open = &mut self.open[place];
        open.count -= 1;
        (open.count == 0).then_some(open.target)
    }

    /// A new descriptor for what is held open at a place.
    pub(crate) fn receive(&mut self, place: usize, private: bool) -> Result<usize, Errno> {
        let number = self.descriptor_from(0)?;
        let place = u16::try_from(place).map_err(|_| Errno(EBADF))?;
        self.tables.set(number, place, private);
        Ok(number)
    }

    /// Is anything open that leads there?
    pub(crate) fn is_target(&self, target: Target) -> bool {
        let mut all = self.open.iter();
        all.any(|it| it.is_used() && it.target == target)
    }

    /// How many descriptors, and whatever else, keep open what is at a place.
    pub(crate) fn holders(&self, place: usize) -> usize {
        usize::try_from(self.open[place].count).unwrap_or(usize::MAX)
    }

    fn descriptor_from(&self, least: usize) -> Result<usize, Errno> {
        let end = usize::try_from(self.tables.limits[0]).unwrap_or(FILE_NUMBERS);
        let free = (least..end.min(FILE_NUMBERS)).find(|&it| self.tables.descriptors[it] == CLOSED);
        free.ok_or(Errno(EMFILE))
    }

    /// The place of what a descriptor leads to.
    pub(crate) fn place(&self, descriptor: u64) -> Result<usize, Errno> {
        let number = usize::try_from(descriptor & 0xffff_ffff).ok();
        let place = number.and_then(|it| self.tables.descriptors.get(it));
        match place {
            Some(&place) if place != CLOSED => Ok(usize::from(place)),
            _ => Err(Errno(EBADF)),
        }
    }

    /// What a descriptor leads to.
    pub(crate) fn of(&mut self, descriptor: u64) -> Result<&mut Open, Errno> {
        let place = self.place(descriptor)?;
        Ok(&mut self.open[place])
    }

    /// What is open at a place.
    pub(crate) const fn open_at(&self, place: usize) -> &Open {
        &self.open[place]
    }

    /// Closes a descriptor; the place of what it led to, and what that was, if it was the last one.
    pub(crate) fn close(&mut self, descriptor: u64) -> Result<Option<(usize, Target)>, Errno> {
        let place = self.place(descriptor)?;
        let number = self.number(descriptor)?;
        self.tables.set(number, CLOSED, false);
        let open = &mut self.open[place];
        open.count -= 1;
        Ok((open.count == 0).then_some((place, open.target)))
    }

    /// Another descriptor for the same, the lowest from `least` on.
    pub(crate) fn duplicate(
        &mut self,
        descriptor: u64,
        least: u64,
        private: bool,
    ) -> Result<usize, Errno> {
        let place = self.place(descriptor)?;
        let least = usize::try_from(least).unwrap_or(FILE_NUMBERS);
        if least >= FILE_NUMBERS {
            return Err(Errno(EINVAL));
        }
        let number = self.descriptor_from(least)?;
        let short = u16::try_from(place).map_err(|_| Errno(EBADF))?;
        self.tables.set(number, short, private);
        self.open[place].count += 1;
        Ok(number)
    }

    /// The same as this very descriptor, which is not in use.
    pub(crate) fn duplicate_as(
        &mut self,
        descriptor: u64,
        to: u64,
        private: bool,
    ) -> Result<usize, Errno> {
        let number = self.number(to)?;
        let made = self.duplicate(descriptor, number as u64, private)?;
        assert!(made == number, "it was closed");
        Ok(number)
    }

    /// A descriptor that can be, in use or not.
    pub(crate) fn number(&self, descriptor: u64) -> Result<usize, Errno> {
        let number = usize::try_from(descriptor & 0xffff_ffff).unwrap_or(FILE_NUMBERS);
        (number < FILE_NUMBERS)
            .then_some(number)
            .ok_or(Errno(EBADF))
    }

    /// Is a descriptor closed when its process begins another program?
    pub(crate) fn is_private(&self, descriptor: u64) -> Result<bool, Errno> {
        self.place(descriptor)?;
        Ok(self.tables.is_private(self.number(descriptor)?))
    }

    /// Says whether it is.
    pub(crate) fn set_private(&mut self, descriptor: u64, private: bool) -> Result<(), Errno> {
        let place = self.place(descriptor)?;
        let number = self.number(descriptor)?;
        let place = u16::try_from(place).map_err(|_| Errno(EBADF))?;
        self.tables.set(number, place, private);
        Ok(())
    }
}

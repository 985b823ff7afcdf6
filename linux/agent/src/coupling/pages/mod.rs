//! Which pages of a program's memory were written since the last common point.
//!
//! Replicas without a fault are equal at every event, so any event may be that point. From there
//! the pages that either of two replicas has written are compared: if they are equal all memory is.
//!
//! * [`Protector`](protector::Protector) sees each page written, by the kernel too. The first write
//!   to a page costs a fault, and large pages are split.
//! * [`SoftDirty`](soft_dirty::SoftDirty) sees the same at the same price, and each page that there
//!   is costs a word to be read.
//! * [`Digests`](digests::Digests) sees each page whose content has changed. It reads all memory
//!   twice.
//!
//! Contract: ranges are in order, apart, and of whole pages: the program's private writable memory.
//! Arming once more forgets what was noted and takes in new mappings. What was mapped, moved or
//! inherited by a child since counts as written as far as there are pages. What the agent withholds
//! or has deferred is settled first.
//!
//! Not covered: stores of other processes to shared memory; pages pinned for devices when the
//! tracker was armed again.

pub(crate) mod digests;
pub(crate) mod protector;
pub(crate) mod soft_dirty;

use rcoe_linux_abi::PAGE;

use crate::sys::Errno;

/// A run of pages, or a range of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// First address.
    pub(crate) start: u64,
    /// Address behind.
    pub(crate) end: u64,
}

/// Why nobody can tell which pages were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untracked {
    /// The host does not do this.
    Refused(Asked, Errno),
    /// There are more than there is room for.
    Full,
}

/// What the host was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A descriptor for write protection without waiting.
    Protector,
    /// `/proc/self/pagemap`.
    Pagemap,
    /// `/proc/self/clear_refs`.
    ClearRefs,
    /// To protect a range of memory.
    Register,
    /// Which pages were written.
    Scan,
    /// That it has these bits at all.
    SoftDirty,
    /// Which pages are in memory.
    Resident,
}

/// Tells which pages were written.
pub(crate) trait Tracker {
    /// From here on, what is written to this memory is noted; what was noted before is forgotten.
    ///
    /// # Errors
    /// The host refuses, or there is no room. Nothing is known then, up to the next success.
    fn arm(&mut self, memory: &[Run]) -> Result<(), Untracked>;

    /// Which pages of this memory were written since; they may be more, never less.
    ///
    /// # Errors
    /// As for [`Tracker::arm`].
    fn written(&mut self, memory: &[Run], pages: &mut Pages<'_>) -> Result<(), Untracked>;
}

/// Runs of pages, in order and apart.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    room: &'a mut [Run],
    count: usize,
}

impl<'a> Pages<'a> {
    /// None, and room for so many runs.
    pub(crate) const fn new(room: &'a mut [Run]) -> Self {
        Self { room, count: 0 }
    }

    /// All of them.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.room[..self.count]
    }

    /// How many pages.
    pub(crate) fn count(&self) -> u64 {
        let pages = self.runs().iter().map(|run| (run.end - run.start) / PAGE);
        pages.sum()
    }

    /// Some more, which begin behind where the last ones begin.
    ///
    /// # Errors
    /// There is no room.
    ///
    /// # Panics
    /// They are out of order.
    pub(crate) fn add(&mut self, run: Run) -> Result<(), Untracked> {
        if run.start >= run.end {
            return Ok(());
        }
        if let Some(last) = self.room[..self.count].last_mut() {
            assert!(last.start <= run.start, "runs come in order");
            if run.start <= last.end {
                last.end = last.end.max(run.end);
                return Ok(());
            }
        }
        *self.room.get_mut(self.count).ok_or(Untracked::Full)? = run;
        self.count += 1;
        Ok(())
    }

    /// All that are in one list or the other.
    ///
    /// # Errors
    /// There is no room.
    pub(crate) fn unite(&mut self, one: &[Run], other: &[Run]) -> Result<(), Untracked> {
        let (mut one, mut other) = (one, other);
        loop {
            let first = match (one.first(), other.first()) {
                (Some(a), Some(b)) if a.start <= b.start => &mut one,
                (Some(_), None) => &mut one,
                (_, Some(_)) => &mut other,
                (None, None) => return Ok(()),
            };
            let Some((run, rest)) = first.split_first() else {
                return Ok(());
            };
            self.add(*run)?;
            *first = rest;
        }
    }
}

/// The host's answer, or what it refuses.
pub(crate) fn answer(asked: Asked, result: i64) -> Result<i64, Untracked> {
    match crate::sys::check(result) {
        Ok(_) => Ok(result),
        Err(errno) => Err(Untracked::Refused(asked, errno)),
    }
}

/// Opens a file of this process that tells of its memory.
pub(crate) fn open(asked: Asked, path: &core::ffi::CStr, write: bool) -> Result<i64, Untracked> {
    let opened = crate::sys::with_own_memory(|| rcoe_linux_sys::tracking::open(path, write));
    answer(asked, opened)
}

/// Calls `each` for every page of the memory with its word in `pagemap`.
pub(crate) fn each_entry(
    pagemap: i64,
    memory: &[Run],
    mut each: impl FnMut(u64, u64) -> Result<(), Untracked>,
) -> Result<(), Untracked> {
    const BATCH: usize = 512;
    let mut words = [0; BATCH];
    for run in memory {
        let mut at = run.start;
        while at < run.end {
            let count = crate::convert::size((run.end - at) / PAGE).min(BATCH);
            let read = rcoe_linux_sys::tracking::read_entries(pagemap, at, &mut words[..count]);
            let read = answer(Asked::Scan, read)?;
            if read.cast_unsigned() != (count * 8) as u64 {
                return Err(Untracked::Refused(Asked::Scan, Errno(0)));
            }
            for (page, word) in (at..).step_by(4096).zip(&words[..count]) {
                each(page, *word)?;
            }
            at += count as u64 * PAGE;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

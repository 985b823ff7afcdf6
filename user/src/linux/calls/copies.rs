//! Calls that copy from one descriptor to another: `sendfile` and `copy_file_range`.
//!
//! What is copied comes from a file, and goes the way of what a program writes: while a call is
//! made, addresses of what is written are places in that file.
//!
//! Not covered: sources that are devices, as on Linux 6.1, and counters as destinations.

use linux_raw_sys::errno::{EBADF, EFAULT, EINVAL, EISDIR, EOVERFLOW, ESPIPE, EXDEV};
use linux_raw_sys::general::{O_ACCMODE, O_APPEND, O_RDONLY, O_WRONLY};

use super::streams::Pieces;
use crate::linux::arch::nr;
use crate::linux::files::Kind;
use crate::linux::streams::Target;
use crate::linux::{Answer, Errno, Machine, Process};

/// Most bytes of one call.
pub(super) const MOST: u64 = 0x7fff_f000;
/// The end of the longest file of Linux.
const END: u64 = i64::MAX as u64;

/// Can it be copied from?
const fn is_file(kind: &Kind<'_>) -> bool {
    matches!(kind, Kind::Packed(_) | Kind::Memory(_) | Kind::Told { .. })
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn copy_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_sendfile => self.send_file(first, second, third, fourth),
            nr::__NR_copy_file_range => self.copy_range(words),
            _ => return None,
        })
    }

    /// Bytes that a program writes, or those of the file that is copied.
    pub(super) fn outgoing(&self, address: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let Some((node, start)) = self.carried else {
            return self.read(address, bytes);
        };
        let place = (node, start.saturating_add(address));
        let read = self.files.read(&self.store, &self.machine, place, bytes);
        // No more is copied than there is.
        (read == bytes.len()).then_some(()).ok_or(Errno(EFAULT))
    }

    /// The place in memory, or the descriptor's own.
    fn place_of(&mut self, file: u64, at: u64) -> Answer {
        match at {
            0 => Ok(self.files.of(file)?.offset),
            at => self.word(at),
        }
    }

    /// A descriptor, or that place, is so much further.
    fn set_place(&mut self, file: u64, at: u64, place: u64) -> Result<(), Errno> {
        match at {
            0 => self.files.of(file)?.offset = place,
            at => self.write_words(at, &[place])?,
        }
        Ok(())
    }

    fn send_file(&mut self, to: u64, from: u64, at: u64, bytes: u64) -> Answer {
        let mut place = match at {
            0 => None,
            at => Some(self.word(at)?),
        };
        let sent = self.send_from(to, from, &mut place, bytes);
        // It is told where that is though nothing came of it, but for a call that still waits.
        if let (Some(place), false) = (place, sent == Err(crate::linux::errno::LATER)) {
            self.write_words(at, &[place])?;
        }
        sent
    }

    fn send_from(&mut self, to: u64, from: u64, place: &mut Option<u64>, bytes: u64) -> Answer {
        let source = *self.files.of(from)?;
        if source.flags & O_ACCMODE == O_WRONLY {
            return Err(Errno(EBADF));
        }
        if place.is_some() && source.node().is_err() {
            return Err(Errno(ESPIPE));
        }
        let start = place.unwrap_or(source.offset);
        if (bytes | start) >> 63 != 0 {
            return Err(Errno(EINVAL));
        }
        let goal = *self.files.of(to)?;
        if goal.flags & O_ACCMODE == O_RDONLY {
            return Err(Errno(EBADF));
        }
        if start == END && bytes > 0 {
            return Err(Errno(EOVERFLOW));
        }
        let node = source.node().map_err(|_| Errno(EINVAL))?;
        let kind = self.files.node(node).kind;
        let takes = !matches!(
            goal.target,
            Target::Counter(_) | Target::Alarm(_) | Target::Poller(_)
        );
        if !is_file(&kind) || !takes || goal.flags & O_APPEND != 0 {
            return Err(Errno(EINVAL));
        }
        if let (Kind::Told { fact, whose, .. }, 0) = (kind, start) {
            self.tell(node, fact, whose)?;
        }
        let left = self.files.size(node).saturating_sub(start);
        let sent = self.carry((node, start), to, left.min(bytes).min(MOST))?;
        match place {
            Some(place) => *place = start + sent,
            None => self.files.of(from)?.offset = start + sent,
        }
        Ok(sent)
    }

    /// Writes so many bytes of a file, from a place on.
    fn carry(&mut self, from: (usize, u64), to: u64, bytes: u64) -> Answer {
        if bytes == 0 {
            return Ok(0);
        }
        self.carried = Some(from);
        let sent = match self.files.of(to)?.target {
            Target::Node(_) => self.write_file(to, 0, bytes, None),
            _ => self.put_all(to, Pieces::One(0, bytes), false),
        };
        self.carried = None;
        sent
    }

    fn copy_range(&mut self, words: [u64; 6]) -> Answer {
        let [from, from_at, to, to_at, bytes, flags] = words;
        let (source, goal) = (*self.files.of(from)?, *self.files.of(to)?);
        let (start, end) = (self.place_of(from, from_at)?, self.place_of(to, to_at)?);
        if flags & 0xffff_ffff != 0 {
            return Err(Errno(EINVAL));
        }
        let [node, to_node] = [source, goal].map(|it| it.node());
        let (node, to_node) = (node?, to_node?);
        let kinds = [node, to_node].map(|it| self.files.node(it).kind);
        if kinds.iter().any(Kind::is_folder) {
            return Err(Errno(EISDIR));
        }
        if !kinds.iter().all(is_file) {
            return Err(Errno(EINVAL));
        }
        let unfit = source.flags & O_ACCMODE == O_WRONLY
            || goal.flags & O_ACCMODE == O_RDONLY
            || goal.flags & O_APPEND != 0;
        if unfit {
            return Err(Errno(EBADF));
        }
        let told = |it: &Kind<'_>| matches!(it, Kind::Told { .. });
        let paths = [node, to_node].map(|it| self.files.node(it).path);
        if kinds.iter().any(told) || self.files.is_kept(&paths[0]) != self.files.is_kept(&paths[1])
        {
            return Err(Errno(EXDEV));
        }
        let overflows = |at: u64| at.checked_add(bytes).is_none();
        if overflows(start) || overflows(end) {
            return Err(Errno(EOVERFLOW));
        }
        let left = self.files.size(node).saturating_sub(start).min(bytes);
        if node == to_node && end + left > start && end < start + left {
            return Err(Errno(EINVAL));
        }
        if (start | end | bytes) >> 63 != 0 {
            return Err(Errno(EINVAL));
        }
        self.carried = Some((node, start));
        let copied = self.write_file(to, 0, left.min(MOST), Some(end));
        self.carried = None;
        let copied = copied?;
        if copied > 0 {
            self.set_place(from, from_at, start + copied)?;
            self.set_place(to, to_at, end + copied)?;
        }
        Ok(copied)
    }
}

//! Calls that give files room, make files without names, and close many descriptors at once.
//!
//! A file has the memory of what was written. Room that is asked for is had by what reads as
//! zeroes.
//!
//! Not covered: files whose bytes are moved (`FALLOC_FL_COLLAPSE_RANGE` and the like), and seals.

use linux_raw_sys::errno::{EBADF, EFAULT, EFBIG, EINVAL, EISDIR, ENODEV, EOPNOTSUPP, ESPIPE};
use linux_raw_sys::general::{
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, MFD_ALLOW_SEALING,
    MFD_CLOEXEC, MFD_NOEXEC_SEAL, O_ACCMODE, O_CLOEXEC, O_RDONLY, O_RDWR,
};

use super::{PORTION, portion_of};
use crate::linux::arch::nr;
use crate::linux::files::{FILE_NUMBERS, Kind};
use crate::linux::streams::Target;
use crate::linux::{Answer, Errno, Machine, Process};

/// What is to come of a range of descriptors: they are the caller's alone, or are closed later.
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;
/// Longest name of a file in memory.
const NAME: u64 = 249;
/// Flags of a file in memory: it can be sealed, and it is no code.
const SEALS: u32 = MFD_ALLOW_SEALING;
const NOT_CODE: u32 = MFD_NOEXEC_SEAL;
/// Last byte of any file, as a call may name it.
const END: u64 = 1 << 63;

impl<M: Machine> Process<'_, M> {
    pub(super) fn reserve_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_fallocate => self.reserve(first, second, third, fourth),
            nr::__NR_memfd_create => self.make_in_memory(first, second),
            nr::__NR_close_range => self.close_range(first, second, third),
            _ => return None,
        })
    }

    /// Gives a file room, which may be longer then; or takes it away.
    fn reserve(&mut self, file: u64, how: u64, offset: u64, bytes: u64) -> Answer {
        let open = *self.files.of(file)?;
        if offset >= END || bytes >= END || bytes == 0 {
            return Err(Errno(EINVAL));
        }
        let how = u32::try_from(how & 0xffff_ffff).unwrap_or(0);
        let has = |bit: u32| how & bit != 0;
        const KNOWN: u32 = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
        let punches = has(FALLOC_FL_PUNCH_HOLE);
        let both = punches && (has(FALLOC_FL_ZERO_RANGE) || !has(FALLOC_FL_KEEP_SIZE));
        if how & !KNOWN != 0 || both {
            return Err(Errno(EOPNOTSUPP));
        }
        if open.flags & O_ACCMODE == O_RDONLY {
            return Err(Errno(EBADF));
        }
        let node = open.node().map_err(|_| Errno(ESPIPE))?;
        match self.files.node(node).kind {
            Kind::Packed(_) | Kind::Memory(_) => {}
            kind if kind.is_folder() => return Err(Errno(EISDIR)),
            _ => return Err(Errno(ENODEV)),
        }
        let end = offset.checked_add(bytes).filter(|&end| end < END);
        let end = end.ok_or(Errno(EFBIG))?;
        let size = self.files.size(node);
        if punches || has(FALLOC_FL_ZERO_RANGE) {
            self.write_zeroes(node, offset, end.min(size))?;
        }
        if !has(FALLOC_FL_KEEP_SIZE) && end > size {
            // Each page is there, so that none is missing when it is written.
            let (store, machine) = (&mut self.store, &mut self.machine);
            self.files.truncate(store, machine, node, end)?;
            let filled = self.write_zeroes(node, size.max(offset), end);
            if let Err(error) = filled {
                let (store, machine) = (&mut self.store, &mut self.machine);
                self.files.truncate(store, machine, node, size)?;
                return Err(error);
            }
        }
        Ok(0)
    }

    fn write_zeroes(&mut self, node: usize, start: u64, end: u64) -> Result<(), Errno> {
        let mut at = start;
        while at < end {
            let len = portion_of(end - at);
            let (store, machine) = (&mut self.store, &mut self.machine);
            self.files
                .write(store, machine, (node, at), &[0; PORTION][..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// A file that is there as long as it is open or mapped.
    fn make_in_memory(&mut self, name: u64, flags: u64) -> Answer {
        let flags = u32::try_from(flags & 0xffff_ffff).unwrap_or(0);
        if flags & !(MFD_CLOEXEC | SEALS | NOT_CODE) != 0 {
            return Err(Errno(EINVAL));
        }
        self.check_name(name)?;
        let node = self.files.make_nameless()?;
        self.files
            .set_mode(node, if flags & NOT_CODE == 0 { 0o777 } else { 0o666 });
        let private = if flags & MFD_CLOEXEC == 0 {
            0
        } else {
            O_CLOEXEC
        };
        let target = Target::Node(node);
        let opened = self.files.open(target, O_RDWR | private);
        if opened.is_err() {
            self.release(target);
        }
        opened.map(|number| number as u64)
    }

    /// The name of a file in memory is for people: only its length matters.
    fn check_name(&self, name: u64) -> Result<(), Errno> {
        for at in 0..=NAME {
            let mut byte = [0];
            self.read(name.checked_add(at).ok_or(Errno(EFAULT))?, &mut byte)?;
            if byte[0] == 0 {
                return Ok(());
            }
        }
        Err(Errno(EINVAL))
    }

    /// Closes all descriptors of a range, or has them be closed when another program begins.
    fn close_range(&mut self, first: u64, last: u64, flags: u64) -> Answer {
        let [first, last, flags] = [first, last, flags].map(|it| it & 0xffff_ffff);
        let has = |bit: u32| flags & u64::from(bit) != 0;
        if flags & !u64::from(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE) != 0 || first > last {
            return Err(Errno(EINVAL));
        }
        if has(CLOSE_RANGE_UNSHARE) && self.threads.count_of(self.task.index()) > 1 {
            return Err(self.refuse(nr::__NR_close_range.into()));
        }
        for file in first..(last + 1).min(FILE_NUMBERS as u64) {
            // Most are not open.
            let _ = match has(CLOSE_RANGE_CLOEXEC) {
                true => self.files.set_private(file, true),
                false => self.close(file),
            };
        }
        Ok(0)
    }
}

//! The slices of memory that processes share, as the supervisor sees them: whose turn it is in
//! each, and one made anew as a copy of the others.
//!
//! Contract: [`SliceCopy`] is stepped while all slices that it reads are at rest, and nobody uses
//! the one that it writes. What of a slice is not memory of the program or kept about it (the gate)
//! it leaves alone.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::Ordering::{Acquire, SeqCst};

use rcoe_linux_abi::arena::{BOOKS_OFFSET, CLAIMS_BYTES, Gate};
use rustix::fs::{SeekFrom, major, minor, seek};
use rustix::io::Errno;
use rustix::thread::futex;

const PAGE: usize = 4096;
/// Bytes that are compared at a time.
const CHUNK: u64 = 1 << 20;
/// Chunks of one step.
const STEP: u32 = 4;

/// The low half of a turn's number, as gates have it.
pub(crate) fn low(turn: u64) -> u32 {
    u32::try_from(turn & u64::from(u32::MAX)).unwrap_or(0)
}

/// Whose turn it is there.
pub(crate) fn turn_of(gate: &Gate) -> u32 {
    gate.turn.load(Acquire)
}

/// Passes the slice on to the turn of this number.
pub(crate) fn open(gate: &Gate, turn: u64) {
    gate.turn.store(low(turn), SeqCst);
    // Nobody waiting is no error, and nothing else can fail for a mapped word.
    let _ = futex::wake(&gate.turn, futex::Flags::empty(), i32::MAX.cast_unsigned());
}

/// The object in which the slices lie.
#[derive(Debug)]
pub(crate) struct Arena {
    file: File,
    /// Bytes of a slice.
    bytes: u64,
    /// Device and inode, as the kernel's list of mappings has them.
    pub(crate) name: String,
}

impl Arena {
    /// Of the object behind this descriptor.
    pub(crate) fn new(object: BorrowedFd<'_>, bytes: u64) -> io::Result<Self> {
        let file = File::from(object.try_clone_to_owned()?);
        let facts = file.metadata()?;
        let (major, minor) = (major(facts.dev()), minor(facts.dev()));
        let name = format!("{major:02x}:{minor:02x} {}", facts.ino());
        Ok(Self { file, bytes, name })
    }

    /// Where a slice begins.
    pub(crate) fn start(&self, slice: usize) -> u64 {
        start(slice, self.bytes)
    }

    /// The first byte from `at` on, counted from the slice's beginning, that may be other than 0.
    fn data(&self, slice: usize, at: u64) -> io::Result<Option<u64>> {
        let start = self.start(slice);
        let found = match seek(&self.file, SeekFrom::Data(start + at)) {
            Ok(found) => found - start,
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok((found < self.bytes).then_some(found))
    }
}

/// Where a slice of so many bytes begins in the object.
pub(crate) fn start(slice: usize, bytes: u64) -> u64 {
    let before = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    before(CLAIMS_BYTES) + before(slice) * bytes
}

/// What came of a copy so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// There is more to be done.
    Going,
    /// The slice is what most of the others are.
    Done,
    /// No majority has the same at this place.
    Different(u64),
}

/// A slice that is made anew.
#[derive(Debug)]
pub(crate) struct SliceCopy {
    arena: Arena,
    from: Vec<usize>,
    to: usize,
    /// How far it is, from the beginning of the slices.
    at: u64,
    buffers: Vec<Vec<u8>>,
}

impl SliceCopy {
    /// Slice `to` as a copy of what most of `from` have; it is empty now but for its gate.
    pub(crate) fn new(arena: Arena, from: Vec<usize>, to: usize) -> Self {
        let buffers = vec![Vec::new(); from.len()];
        Self {
            arena,
            from,
            to,
            at: BOOKS_OFFSET as u64,
            buffers,
        }
    }

    /// A little more of it.
    ///
    /// # Errors
    /// The object cannot be read or written: there is no memory left.
    pub(crate) fn step(&mut self) -> io::Result<Copied> {
        for _ in 0..STEP {
            let mut next = None;
            for &slice in &self.from {
                let data = self.arena.data(slice, self.at)?;
                next = match (next, data) {
                    (Some(one), Some(other)) => Some(other.min(one)),
                    (one, other) => one.or(other),
                };
            }
            let Some(next) = next else {
                return Ok(Copied::Done);
            };
            let end = self.arena.bytes.min(next + CHUNK);
            if !self.copy(next, end)? {
                return Ok(Copied::Different(next));
            }
            self.at = end;
        }
        Ok(Copied::Going)
    }

    /// Copies a range; false if no majority has the same there.
    fn copy(&mut self, start: u64, end: u64) -> io::Result<bool> {
        let len = usize::try_from(end - start).unwrap_or(0);
        for (&slice, buffer) in self.from.iter().zip(&mut self.buffers) {
            buffer.resize(len, 0);
            let offset = self.arena.start(slice) + start;
            self.arena.file.read_exact_at(buffer, offset)?;
        }
        let Some(chosen) = majority(&self.buffers) else {
            return Ok(false);
        };
        let to = self.arena.start(self.to) + start;
        for (offset, page) in (to..).step_by(PAGE).zip(chosen.chunks(PAGE)) {
            if page.iter().any(|&byte| byte != 0) {
                self.arena.file.write_all_at(page, offset)?;
            }
        }
        Ok(true)
    }
}

/// What more than half of them have; of two both.
fn majority(all: &[Vec<u8>]) -> Option<&Vec<u8>> {
    let supporters = |one: &Vec<u8>| all.iter().filter(|it| *it == one).count();
    all.iter().find(|one| 2 * supporters(one) > all.len())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::os::fd::AsFd as _;

    use rcoe_linux_sys::host::{Access, SharedObject};

    use super::*;

    const BYTES: u64 = 8 << 20;
    const NAME: &CStr = c"slices";

    fn object() -> SharedObject {
        let len = usize::try_from(start(3, BYTES)).unwrap();
        SharedObject::create(NAME, len, Access::ReadWrite).unwrap()
    }

    fn write(object: &SharedObject, slice: usize, at: u64, text: &[u8]) {
        let arena = Arena::new(object.as_fd(), BYTES).unwrap();
        arena
            .file
            .write_all_at(text, arena.start(slice) + at)
            .unwrap();
    }

    fn read(object: &SharedObject, slice: usize, at: u64) -> [u8; 4] {
        let arena = Arena::new(object.as_fd(), BYTES).unwrap();
        let mut text = [0; 4];
        let from = arena.start(slice) + at;
        arena.file.read_exact_at(&mut text, from).unwrap();
        text
    }

    fn copy(object: &SharedObject, from: &[usize], to: usize) -> Copied {
        let arena = Arena::new(object.as_fd(), BYTES).unwrap();
        let mut copy = SliceCopy::new(arena, from.to_vec(), to);
        loop {
            let copied = copy.step().unwrap();
            if copied != Copied::Going {
                return copied;
            }
        }
    }

    #[test]
    fn a_slice_becomes_what_the_others_are_but_for_its_gate() {
        let object = object();
        let places = [BOOKS_OFFSET as u64, (3 << 20) + 5, BYTES - 4];
        for slice in [0, 2] {
            write(&object, slice, 0, b"gate");
            for at in places {
                write(&object, slice, at, b"text");
            }
        }
        assert_eq!(copy(&object, &[0, 2], 1), Copied::Done);
        assert_eq!(read(&object, 1, 0), [0; 4]);
        for at in places {
            assert_eq!(&read(&object, 1, at), b"text", "{at:#x}");
        }
    }

    #[test]
    fn two_that_differ_are_not_copied_and_of_three_the_odd_one_is_not() {
        let object = object();
        write(&object, 0, 4 << 20, b"good");
        write(&object, 1, 4 << 20, b"good");
        write(&object, 2, 4 << 20, b"evil");
        let page = |copied| match copied {
            Copied::Different(at) => at >> 12 << 12,
            other => panic!("{other:?}"),
        };
        assert_eq!(page(copy(&object, &[0, 2], 1)), 4 << 20);
        assert_eq!(copy(&object, &[2, 0, 1], 2), Copied::Done);
        assert_eq!(&read(&object, 2, 4 << 20), b"good");
    }
}

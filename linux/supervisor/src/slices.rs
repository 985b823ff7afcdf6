//! The slices of memory that processes share, as the supervisor sees them: whose turn it is in
//! each, and one made anew as a copy of the others.
//!
//! A page of which most of the others have the same is copied from them. Of two that differ that
//! one is right that alone still has what all had when it was last scrubbed, if anybody knows. At
//! rest a slice can be changed without anybody's noticing, so those that are not right are repaired
//! on the way.
//!
//! Contract: [`SliceCopy`] is stepped while all slices that it reads are at rest, and nobody uses
//! the one that it writes. What of a slice is not memory of the program or kept about it (the gate)
//! it leaves alone.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::Ordering::{Acquire, SeqCst};

use rcoe_linux_abi::PAGE_BYTES;
use rcoe_linux_abi::arena::{BOOKS_OFFSET, CLAIMS_BYTES, Claims, Gate, slice_addr};
use rustix::fs::{SeekFrom, major, minor, seek};
use rustix::io::Errno;
use rustix::thread::futex;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that are compared at a time.
const CHUNK: u64 = 1 << 20;
/// More turns than can be open at a time.
const MOST_OPEN: u32 = 1 << 12;
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

/// Whether a group has claimed a turn that has not been passed where it is this one's.
pub(crate) fn has_open_claim(claims: &Claims, group: usize, turn: u32) -> bool {
    let open = low(claims.next()).wrapping_sub(turn);
    // A gate that is shut stands nowhere.
    let open = if open.cast_signed() < 0 { 0 } else { open };
    (0..open.min(MOST_OPEN)).any(|later| claims.owner(turn.wrapping_add(later)) == Some(group))
}

/// Passes turns on that groups have claimed which are gone, as nobody else does it.
pub(crate) fn skip(claims: &Claims, gate: &Gate, is_gone: impl Fn(usize) -> bool) {
    let turn = turn_of(gate);
    let next = first_kept(claims, turn, is_gone);
    if next != turn {
        open(gate, u64::from(next));
    }
}

/// The first turn from this one on whose claimant is not gone, or that nobody has claimed.
fn first_kept(claims: &Claims, mut turn: u32, is_gone: impl Fn(usize) -> bool) -> u32 {
    let is_claimed = |turn: u32| low(claims.next()).wrapping_sub(turn).cast_signed() > 0;
    while is_claimed(turn) && claims.owner(turn).is_some_and(&is_gone) {
        turn = turn.wrapping_add(1);
    }
    turn
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
    pub(crate) fn data(&self, slice: usize, at: u64) -> io::Result<Option<u64>> {
        let start = self.start(slice);
        let found = match seek(&self.file, SeekFrom::Data(start + at)) {
            Ok(found) => found - start,
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok((found < self.bytes).then_some(found))
    }

    /// The ranges of a slice within `within` that have content, counted from its beginning.
    pub(crate) fn content(&self, slice: usize, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let start = self.start(slice);
        let mut found = Vec::new();
        let mut at = within.start;
        while let Some(data) = self.data(slice, at)?.filter(|data| *data < within.end) {
            let hole = seek(&self.file, SeekFrom::Hole(start + data))? - start;
            at = hole.min(within.end).max(data + 1);
            found.push(data..at);
        }
        Ok(found)
    }

    /// What of a slice is compared, counted from its beginning: all but its gate.
    pub(crate) const fn compared(&self) -> Range<u64> {
        BOOKS_OFFSET as u64..self.bytes
    }
}

/// The number of the page at this offset of the slices, by its place in the first of them: orders
/// and what is known of pages name it so.
pub(crate) fn page_number(offset: u64) -> u64 {
    (slice_addr(0) as u64 + offset) / PAGE_BYTES as u64
}

/// Which of several that differ, by the digest of what they have, has in a page of this number what
/// all had before, if anybody knows.
pub(crate) type Knows<'a> = dyn Fn(u64, &[u64]) -> Option<usize> + 'a;

/// A page of a slice that was not right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mended {
    pub(crate) slice: usize,
    /// Address of the first byte that was not right, where the slice's replicas have it.
    pub(crate) address: u64,
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
    /// What was repaired on the way.
    pub(crate) mended: Vec<Mended>,
}

impl SliceCopy {
    /// Slice `to` as a copy of what most of `from` have; it is empty now but for its gate.
    pub(crate) fn new(arena: Arena, from: Vec<usize>, to: usize) -> Self {
        let buffers = vec![Vec::new(); from.len()];
        Self {
            at: arena.compared().start,
            arena,
            from,
            to,
            buffers,
            mended: Vec::new(),
        }
    }

    /// A little more of it.
    ///
    /// # Errors
    /// The object cannot be read or written: there is no memory left.
    pub(crate) fn step(&mut self, knows: &Knows<'_>) -> io::Result<Copied> {
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
            if let Some(odd) = self.copy(next, end, knows)? {
                return Ok(Copied::Different(odd));
            }
            self.at = end;
        }
        Ok(Copied::Going)
    }

    /// Copies a range; tells of a page of which nobody knows who has it right.
    fn copy(&mut self, start: u64, end: u64, knows: &Knows<'_>) -> io::Result<Option<u64>> {
        let len = usize::try_from(end - start).unwrap_or(0);
        for (&slice, buffer) in self.from.iter().zip(&mut self.buffers) {
            buffer.resize(len, 0);
            let offset = self.arena.start(slice) + start;
            self.arena.file.read_exact_at(buffer, offset)?;
        }
        let all_alike = self.buffers.windows(2).all(|pair| pair[0] == pair[1]);
        let to = self.arena.start(self.to);
        for (offset, at) in (start..end)
            .step_by(PAGE_BYTES)
            .zip((0..len).step_by(PAGE_BYTES))
        {
            let page = at..len.min(at + PAGE_BYTES);
            let Some(right) = self.right(offset, &page, all_alike, knows) else {
                return Ok(Some(offset));
            };
            if !all_alike {
                self.mend(offset, &page, right)?;
            }
            let page = &self.buffers[right][page];
            if page.iter().any(|&byte| byte != 0) {
                self.arena.file.write_all_at(page, to + offset)?;
            }
        }
        Ok(None)
    }

    /// Which of the slices has a page right.
    fn right(
        &self,
        offset: u64,
        page: &Range<usize>,
        all_alike: bool,
        knows: &Knows<'_>,
    ) -> Option<usize> {
        if all_alike {
            return Some(0);
        }
        let pages = self.buffers.iter().map(|it| &it[page.clone()]);
        let pages: Vec<&[u8]> = pages.collect();
        majority(&pages).or_else(|| {
            let digests = pages.iter().map(|it| xxh3_64(it));
            knows(page_number(offset), &digests.collect::<Vec<_>>())
        })
    }

    /// Gives all slices what the one at `right` has in a page.
    fn mend(&mut self, offset: u64, page: &Range<usize>, right: usize) -> io::Result<()> {
        let wanted = &self.buffers[right][page.clone()];
        for (&slice, own) in self.from.iter().zip(&self.buffers) {
            let own = &own[page.clone()];
            let differs = own.iter().zip(wanted).position(|(own, right)| own != right);
            let Some(first) = differs else { continue };
            let place = self.arena.start(slice) + offset;
            self.arena.file.write_all_at(wanted, place)?;
            let first = u64::try_from(first).unwrap_or(0);
            self.mended.push(Mended {
                slice,
                address: slice_addr(slice) as u64 + offset + first,
            });
        }
        Ok(())
    }
}

/// Which has what more than half of them have; of two both.
fn majority(all: &[&[u8]]) -> Option<usize> {
    let supporters = |one: &[u8]| all.iter().filter(|it| **it == one).count();
    all.iter().position(|one| 2 * supporters(one) > all.len())
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
        copy_knowing(object, from, to, &|_, _| None).0
    }

    fn copy_knowing(
        object: &SharedObject,
        from: &[usize],
        to: usize,
        knows: &Knows<'_>,
    ) -> (Copied, Vec<Mended>) {
        let arena = Arena::new(object.as_fd(), BYTES).unwrap();
        let mut copy = SliceCopy::new(arena, from.to_vec(), to);
        loop {
            let copied = copy.step(knows).unwrap();
            if copied != Copied::Going {
                return (copied, copy.mended);
            }
        }
    }

    #[test]
    fn a_claim_is_open_where_its_turn_has_not_been_passed() {
        let claims = Claims::new();
        let mine = u32::try_from(claims.claim(7)).expect("a first turn");
        claims.claim(8);
        assert!(has_open_claim(&claims, 7, mine));
        assert!(has_open_claim(&claims, 8, mine), "a turn behind the other");
        assert!(!has_open_claim(&claims, 7, mine + 1));
        assert!(has_open_claim(&claims, 8, mine + 1));
        assert!(!has_open_claim(&claims, 8, mine + 2));
        assert!(!has_open_claim(&claims, 9, mine));
    }

    #[test]
    fn turns_of_who_is_gone_are_passed_up_to_the_first_of_who_is_not() {
        let claims = Claims::new();
        let first = low(claims.claim(7));
        for group in [7, 8, 7] {
            claims.claim(group);
        }
        let kept = |turn, gone| first_kept(&claims, turn, |group| group == gone);
        assert_eq!(kept(first, 9), first);
        assert_eq!(kept(first, 7), first + 2, "the turn of a living group");
        assert_eq!(kept(first + 3, 7), first + 4, "nobody has claimed more");
        assert_eq!(kept(first + 4, 7), first + 4);
        let shut = first.wrapping_add(1 << 31);
        assert_eq!(kept(shut, 7), shut);
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
    #[test]
    fn of_two_the_one_that_is_known_is_copied_and_the_other_repaired() {
        let object = object();
        write(&object, 0, 4 << 20, b"good");
        write(&object, 2, 4 << 20, b"goad");
        let mut page = [0; PAGE_BYTES];
        page[..4].copy_from_slice(b"good");
        let known = xxh3_64(&page);
        let knows = |number: u64, digests: &[u64]| {
            assert_eq!(number, page_number(4 << 20));
            digests.iter().position(|digest| *digest == known)
        };
        let (copied, mended) = copy_knowing(&object, &[2, 0], 1, &knows);
        assert_eq!(copied, Copied::Done);
        let address = slice_addr(2) as u64 + (4 << 20) + 2;
        assert_eq!(mended, [Mended { slice: 2, address }]);
        for slice in 0..3 {
            assert_eq!(&read(&object, slice, 4 << 20), b"good");
        }
    }

    #[test]
    fn what_has_content_is_found() {
        let object = object();
        write(&object, 1, 4 << 20, b"text");
        let arena = Arena::new(object.as_fd(), BYTES).unwrap();
        let content = |slice, within| arena.content(slice, within).unwrap();
        assert_eq!(content(0, 0..BYTES), []);
        let (start, end) = (4 << 20, (4 << 20) + PAGE_BYTES as u64);
        assert_eq!(content(1, 0..BYTES), vec![start..end]);
        assert_eq!(content(1, 0..start), []);
        assert_eq!(content(1, end..BYTES), []);
    }
}

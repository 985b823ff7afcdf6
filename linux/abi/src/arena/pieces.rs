//! Which parts of a slice's memory are used.
//!
//! A piece is a range that processes map: shared anonymous memory, what a file holds, a System V
//! segment. It lives as long as a process maps it, a segment until it is removed, too.

use crate::layout::PAGE;

/// Most pieces at a time.
const MOST: usize = 8192;

/// What a piece holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Memory without a name.
    Anonymous = 0,
    /// The content of a file, which its device and inode name.
    File = 1,
    /// A System V segment, which its identifier names.
    Segment = 2,
}

/// One piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// Where it begins, in bytes from the start of the slice's memory.
    pub start: u64,
    /// Its bytes: whole pages.
    pub len: u64,
    /// Device of the file.
    pub device: u64,
    /// Inode of the file, or the segment's identifier.
    pub inode: u64,
    /// [`Kind`].
    kind: u32,
    /// Processes that map it, and one for a segment that exists.
    pub users: u32,
}

impl Piece {
    const NONE: Self = Self {
        start: 0,
        len: 0,
        device: 0,
        inode: 0,
        kind: 0,
        users: 0,
    };

    /// Does it hold a file's content?
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.kind == Kind::File as u32
    }

    /// The end of it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// All pieces, in the order of their places.
#[repr(C)]
#[derive(Debug)]
pub struct Pieces {
    count: u64,
    files: u64,
    list: [Piece; MOST],
}

impl Pieces {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            count: 0,
            files: 0,
            list: [Piece::NONE; MOST],
        }
    }

    fn live(&self) -> &[Piece] {
        let len = usize::try_from(self.count).map_or(MOST, |count| count.min(MOST));
        &self.list[..len]
    }

    /// Does any piece hold a file's content?
    #[must_use]
    pub const fn has_files(&self) -> bool {
        self.files > 0
    }

    /// Takes `len` bytes out of `room` for something new, without users yet. `None` if there is no
    /// place for them.
    pub fn add(&mut self, kind: Kind, len: u64, name: (u64, u64), room: u64) -> Option<Piece> {
        let len = len.checked_next_multiple_of(PAGE).filter(|len| *len > 0)?;
        let count = self.live().len();
        let mut start = 0;
        let mut at = 0;
        while at < count && self.list[at].start - start < len {
            start = self.list[at].end();
            at += 1;
        }
        if count == MOST || room.checked_sub(start)? < len {
            return None;
        }
        self.list.copy_within(at..count, at + 1);
        self.list[at] = Piece {
            start,
            len,
            device: name.0,
            inode: name.1,
            kind: kind as u32,
            users: 0,
        };
        self.count += 1;
        self.files += u64::from(kind == Kind::File);
        Some(self.list[at])
    }

    /// The piece that begins here.
    #[must_use]
    pub fn at(&self, start: u64) -> Option<&Piece> {
        self.live().iter().find(|it| it.start == start)
    }

    /// The piece of a file.
    #[must_use]
    pub fn of_file(&self, device: u64, inode: u64) -> Option<Piece> {
        let mut files = self.live().iter().filter(|it| it.is_file());
        files
            .find(|it| it.device == device && it.inode == inode)
            .copied()
    }

    /// One more uses the piece that begins here.
    pub fn hold(&mut self, start: u64) {
        if let Some(at) = self.live().iter().position(|it| it.start == start) {
            self.list[at].users += 1;
        }
    }

    /// One less uses it. Returns the piece if it was the last: it is no more.
    pub fn release(&mut self, start: u64) -> Option<Piece> {
        let at = self.live().iter().position(|it| it.start == start)?;
        let piece = &mut self.list[at];
        piece.users = piece.users.saturating_sub(1);
        if piece.users > 0 {
            return None;
        }
        let piece = *piece;
        let count = self.live().len();
        self.list.copy_within(at + 1..count, at);
        self.count -= 1;
        self.files -= u64::from(piece.is_file());
        Some(piece)
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;

    use super::*;

    const ROOM: u64 = 16 * PAGE;

    fn add(pieces: &mut Pieces, pages: u64) -> Option<u64> {
        let piece = pieces.add(Kind::Anonymous, pages * PAGE - 5, (0, 0), ROOM)?;
        pieces.hold(piece.start);
        Some(piece.start / PAGE)
    }

    #[test]
    fn pieces_lie_side_by_side_and_holes_are_used_again() {
        let mut pieces = Box::new(Pieces::new());
        assert_eq!(add(&mut pieces, 2), Some(0));
        assert_eq!(add(&mut pieces, 3), Some(2));
        assert_eq!(add(&mut pieces, 1), Some(5));
        assert_eq!(pieces.release(2 * PAGE).map(|it| it.len), Some(3 * PAGE));
        assert_eq!(add(&mut pieces, 4), Some(6));
        assert_eq!(add(&mut pieces, 2), Some(2));
        assert_eq!(add(&mut pieces, 1), Some(4));
        assert_eq!(add(&mut pieces, 6), Some(10));
        assert_eq!(add(&mut pieces, 1), None);
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        let mut pieces = Box::new(Pieces::new());
        for len in [0, ROOM + 1, u64::MAX] {
            assert_eq!(pieces.add(Kind::Anonymous, len, (0, 0), ROOM), None);
        }
    }

    #[test]
    fn a_piece_lives_as_long_as_somebody_uses_it() {
        let mut pieces = Box::new(Pieces::new());
        let file = pieces.add(Kind::File, 10, (3, 4), ROOM).expect("room");
        pieces.hold(file.start);
        pieces.hold(file.start);
        assert!(pieces.has_files());
        assert_eq!(pieces.of_file(3, 4).map(|it| it.users), Some(2));
        assert_eq!(pieces.of_file(4, 3), None);
        assert_eq!(pieces.release(file.start), None);
        assert_eq!(pieces.release(file.start).map(|it| it.inode), Some(4));
        assert!(!pieces.has_files() && pieces.at(file.start).is_none());
    }

    #[test]
    fn there_is_an_end_to_pieces() {
        let mut pieces = Box::new(Pieces::new());
        let made = (0..2 * MOST)
            .take_while(|_| pieces.add(Kind::Anonymous, 1, (0, 0), u64::MAX).is_some());
        assert_eq!(made.count(), MOST);
    }
}

//! The ring in which an RTL8139 leaves the frames that it received.
//!
//! A frame has a header of four bytes before it: its state, and its length with the checksum that
//! follows it. The next header is at the next multiple of four. A frame that begins in the ring may
//! end behind it, where there is room for that; the one after it then begins where the same number
//! of bytes round the ring are.
//!
//! Whatever is in the ring came from outside the sphere: [`Frames`] gives out nothing that does not
//! lie within what the card says it wrote, and ends at the first header that makes no sense, from
//! where on nobody can tell where frames are.

use rcoe_abi::service::NIC_RING;

use super::{FRAME_MAX, FRAME_MIN};

/// Bytes of a header, and of the checksum behind a frame.
const HEADER: usize = 4;
const CHECKSUM: usize = 4;

/// In the state: the frame is good; and all that says that it is not.
const GOOD: u16 = 1;
const BAD: u16 = 0x3e;

/// Bytes behind the ring that a frame may take.
pub const BEHIND: usize = 2048;

/// A header makes no sense, so nobody knows where the next one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// A frame, by its place in the ring and the room behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its first byte.
    pub at: usize,
    /// Bytes, without checksum.
    pub len: usize,
}

/// The frames between two places of the ring, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    next: usize,
    left: usize,
}

impl Frames {
    /// The frames from `first` to `end`, which are the same if there are none.
    ///
    /// # Errors
    /// If these are no places for headers.
    pub fn between(first: usize, end: usize) -> Result<Self, Malformed> {
        let is_place = |place: usize| place < NIC_RING && place.is_multiple_of(HEADER);
        if !is_place(first) || !is_place(end) {
            return Err(Malformed);
        }
        let left = (end + NIC_RING - first) % NIC_RING;
        Ok(Self { next: first, left })
    }

    /// Are there none left?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next frame; `header` reads the four bytes at a place of the ring.
    ///
    /// # Errors
    /// If its header makes no sense. There are no frames behind it.
    pub fn next(
        &mut self,
        header: impl Fn(usize) -> [u8; HEADER],
    ) -> Result<Option<Frame>, Malformed> {
        if self.left == 0 {
            return Ok(None);
        }
        let [a, b, c, d] = header(self.next);
        let (state, len) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let whole = usize::from(len);
        let taken = (HEADER + whole).next_multiple_of(HEADER);
        let fits = (FRAME_MIN..=FRAME_MAX).contains(&whole.saturating_sub(CHECKSUM));
        if state & GOOD == 0 || state & BAD != 0 || !fits || taken > self.left {
            *self = Self::default();
            return Err(Malformed);
        }
        let frame = Frame {
            at: self.next + HEADER,
            len: whole - CHECKSUM,
        };
        self.next = (self.next + taken) % NIC_RING;
        self.left -= taken;
        Ok(Some(frame))
    }
}

/// The pieces of the ring that hold what is between two places of it, as first byte and end: at
/// most two, each of whole words. The first may lie behind the ring in part.
#[must_use]
pub fn pieces(first: usize, end: usize) -> [(usize, usize); 2] {
    let whole = |first: usize, end: usize| (first / 8 * 8, end.next_multiple_of(8));
    if first <= end {
        [whole(first, end), (0, 0)]
    } else {
        [whole(first, NIC_RING + BEHIND), whole(0, end)]
    }
}

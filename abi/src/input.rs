//! What comes in by the line of the input: how host and driver speak.
//!
//! The driver asks for each *portion* by its number, as often as it likes, and the host answers
//! with that portion once it has one. So a portion that got lost with a primary, or was damaged on
//! its way, is asked for again, and none is had twice.
//!
//! A portion travels as a *frame* of [`FRAME`] bytes, which a serial line's queue holds: its
//! number, how many bytes it has and whether more were given at once with them, these bytes filled
//! up with zeroes, and a checksum of all that.
//!
//! *Not covered*: bytes that are damaged before the host has them.

/// Bytes of a frame.
pub const FRAME: usize = 16;
/// Most bytes of a portion.
pub const PORTION: usize = FRAME - 4;

/// In the byte that says how many there are: more were given at once with these.
const GOES_ON: u8 = 0x80;

/// A portion of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    bytes: [u8; PORTION],
    len: usize,
    goes_on: bool,
}

impl Portion {
    /// What follows the last byte.
    pub const END: Self = Self {
        bytes: [0; PORTION],
        len: 0,
        goes_on: false,
    };

    /// These bytes, with which more were given at once or not; `None` if they are too many.
    #[must_use]
    pub fn new(content: &[u8], goes_on: bool) -> Option<Self> {
        let mut portion = Self::END;
        portion
            .bytes
            .get_mut(..content.len())?
            .copy_from_slice(content);
        (portion.len, portion.goes_on) = (content.len(), goes_on);
        Some(portion)
    }

    /// Its bytes; none if it is the end.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Were more bytes given at once with these?
    #[must_use]
    pub const fn goes_on(&self) -> bool {
        self.goes_on
    }
}

/// The frame of a portion of this number.
#[must_use]
pub fn frame(number: u8, portion: &Portion) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    let len = portion.len.to_le_bytes()[0];
    let marked = if portion.goes_on { len | GOES_ON } else { len };
    frame[..2].copy_from_slice(&[number, marked]);
    frame[2..2 + PORTION].copy_from_slice(&portion.bytes);
    let sum = checksum(&frame[..2 + PORTION]);
    frame[2 + PORTION..].copy_from_slice(&sum);
    frame
}

/// The number and the portion of a frame; `None` if it is damaged, or none.
#[must_use]
pub fn open(frame: &[u8; FRAME]) -> Option<(u8, Portion)> {
    let (content, sum) = frame.split_at(2 + PORTION);
    let (number, len) = (content[0], usize::from(content[1] & !GOES_ON));
    let bytes = &content[2..];
    let is_filled = bytes.get(len..)?.iter().all(|&byte| byte == 0);
    if checksum(content) != sum || !is_filled {
        return None;
    }
    let goes_on = content[1] & GOES_ON != 0;
    Some((number, Portion::new(&bytes[..len], goes_on)?))
}

/// Fletcher's checksum, begun with ones so that zeroes alone are no frame.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let (mut sum, mut sums) = (1_u16, 1_u16);
    for &byte in bytes {
        sum = (sum + u16::from(byte)) % 255;
        sums = (sums + sum) % 255;
    }
    [sum.to_le_bytes()[0], sums.to_le_bytes()[0]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_which_portion_it_has() {
        for content in [&b""[..], b"x", b"eleven byte", b"twelve bytes"] {
            let portion = Portion::new(content, content.len() == 12).unwrap();
            let (number, opened) = open(&frame(7, &portion)).unwrap();
            assert_eq!((number, opened.bytes()), (7, content));
            assert_eq!(opened.goes_on(), content.len() == 12);
        }
        assert_eq!(Portion::new(b"thirteen byte", false), None);
    }

    #[test]
    fn a_damaged_frame_is_none() {
        let whole = frame(255, &Portion::new(b"line\n", true).unwrap());
        for bit in 0..FRAME * 8 {
            let mut damaged = whole;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&damaged), None, "bit {bit}");
        }
        assert_eq!(open(&[0; FRAME]), None);
    }

    #[test]
    fn no_part_of_two_frames_is_one() {
        let first = frame(1, &Portion::new(b"abc", false).unwrap());
        let second = frame(2, &Portion::END);
        let both = [first, second].concat();
        for start in 1..FRAME {
            let part = both[start..start + FRAME].try_into().unwrap();
            assert_eq!(open(part), None, "from {start}");
        }
    }
}

//! Virtual processors (AArch64): threads whose address space is a guest's.
//!
//! Such a thread runs a system of its own, on the processor's levels 1 and 0. What that takes for
//! physical memory is its address space, of which there are [`SPACE_BITS`] bits. It makes no calls
//! of this kernel: whatever it does that is not its own to do is a fault, of which its handler, the
//! *monitor*, is told as an exception or, for memory that is not there, as a page fault with the
//! physical address. The instruction pointer is that of the instruction itself in each case, so the
//! monitor goes on behind it or has it executed again. Registers go with its answers, as with those
//! of a thread whose calls are faults.
//!
//! Beside a thread's registers it has words of its own, which its monitor reads and writes
//! ([`crate::Label::TcbReadGuest`], [`crate::Label::TcbWriteGuest`]).

use crate::object::LARGE;

/// Bits of an address in a guest's space.
pub const SPACE_BITS: u32 = 39;

/// A word of a virtual processor, by its place: registers of level 1, but for [`Self::Lines`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Word {
    /// `VBAR_EL1`: where exceptions lead.
    Vectors = 0,
    /// `ELR_EL1`: where the last one came from.
    Link = 1,
    /// `SPSR_EL1`: the state it came from.
    State = 2,
    /// `ESR_EL1`: why it came.
    Syndrome = 3,
    /// `FAR_EL1`: its address.
    Address = 4,
    /// `SCTLR_EL1`: translation, caches, alignment. Others follow that a monitor need not know.
    Control = 5,
    /// Is an interrupt pending? It is taken when the guest does not mask it.
    Lines = 21,
}

/// How many there are.
pub const WORDS: usize = 22;

/// Classes of exceptions of which a monitor is told: waiting for an interrupt, a call of the
/// hypervisor, one of the firmware, a register that is not the guest's own, and a breakpoint
/// instruction.
pub const WAIT: u64 = 0x01;
/// See [`WAIT`].
pub const HYPERVISOR_CALL: u64 = 0x16;
/// See [`WAIT`].
pub const FIRMWARE_CALL: u64 = 0x17;
/// See [`WAIT`].
pub const SYSTEM_REGISTER: u64 = 0x18;
/// See [`WAIT`].
pub const BREAKPOINT: u64 = 0x3c;

/// Number of the breakpoint instruction by which a guest reads the clock, in place of the virtual
/// counter, which the processor tells nobody of: its last five bits are the register.
pub const CLOCK: u64 = 0xc7a0;

/// Where a guest finds its board: both parts of the interrupt controller (GICv2), the serial line
/// (PL011), and memory.
pub const CONTROLLER: u64 = 0x0800_0000;
/// See [`CONTROLLER`].
pub const SERIAL: u64 = 0x0900_0000;
/// See [`CONTROLLER`].
pub const MEMORY: u64 = 0x4000_0000;

/// Large frames of a guest's memory at most.
pub const MOST_FRAMES: u64 = 192;

/// First word of what the host packs for a monitor.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rcoegst1");

/// A word of that, by its place. Behind them stand records of three words, one for each piece of
/// the guest's memory: its address, where its bytes are in the bundle, and how many there are, a
/// multiple of eight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Packed {
    /// [`MAGIC`].
    Magic = 0,
    /// Bytes of the whole.
    Bytes = 1,
    /// Large frames of the guest's memory.
    Frames = 2,
    /// Where it begins.
    Entry = 3,
    /// Number of pieces.
    Pieces = 4,
}

/// Words before the records, and of a record.
pub const PACKED_WORDS: usize = 5;
/// See [`PACKED_WORDS`].
pub const PIECE_WORDS: usize = 3;

/// A piece of a guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// Its address.
    pub address: u64,
    /// What it holds.
    pub content: &'a [u8],
}

/// What the host packed, if every offset leads into it and every piece into the guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct Bundle<'a>(&'a [u8]);

impl<'a> Bundle<'a> {
    /// These bytes, if they are such a bundle.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let bundle = Self(bytes);
        let sound = bundle.word(Packed::Magic)? == MAGIC
            && bundle.word(Packed::Bytes)? == bytes.len() as u64
            && bundle.word(Packed::Frames)? <= MOST_FRAMES
            && bundle.word(Packed::Pieces)? <= 8
            && (0..bundle.word(Packed::Pieces)?).all(|index| bundle.piece(index).is_some());
        sound.then_some(bundle)
    }

    fn at(&self, index: usize) -> Option<u64> {
        let bytes = self.0.get(index * 8..index * 8 + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// A word.
    #[must_use]
    pub fn word(&self, word: Packed) -> Option<u64> {
        self.at(word as usize)
    }

    /// Bytes of the guest's memory.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.word(Packed::Frames)?.checked_mul(LARGE)
    }

    /// A piece.
    #[must_use]
    pub fn piece(&self, index: u64) -> Option<Piece<'a>> {
        let first = PACKED_WORDS + usize::try_from(index).ok()? * PIECE_WORDS;
        let [address, offset, bytes] = [self.at(first)?, self.at(first + 1)?, self.at(first + 2)?];
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(bytes).ok()?)?;
        let content = self.0.get(start..end)?;
        let end = address.checked_sub(MEMORY)?.checked_add(bytes)?;
        let fits = end <= self.memory()? && (address | bytes).is_multiple_of(8);
        fits.then_some(Piece { address, content })
    }

    /// All pieces.
    pub fn pieces(self) -> impl Iterator<Item = Piece<'a>> {
        let count = self.word(Packed::Pieces).unwrap_or(0);
        (0..count).filter_map(move |index| self.piece(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn bundle(words: [u64; 10]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const WHOLE: [u64; 10] = [MAGIC, 80, 1, MEMORY, 1, MEMORY + 8, 64, 16, 5, 6];

    #[test]
    fn a_bundle_says_what_it_holds() {
        let bytes = bundle(WHOLE);
        let bundle = Bundle::new(&bytes).unwrap();
        assert_eq!(bundle.word(Packed::Entry), Some(MEMORY));
        let pieces: Vec<_> = bundle.pieces().collect();
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].address, MEMORY + 8);
        assert_eq!(pieces[0].content[..9], [5, 0, 0, 0, 0, 0, 0, 0, 6]);
    }

    #[test]
    fn a_damaged_bundle_is_none() {
        for (at, value) in [
            (0, 1),
            (1, 72),
            (2, 0),
            (2, MOST_FRAMES + 1),
            (2, u64::MAX),
            (4, 2),
            (4, u64::MAX),
            (5, 0),
            (5, MEMORY + LARGE),
            (5, MEMORY + 4),
            (5, u64::MAX - 7),
            (6, 72),
            (6, u64::MAX),
            (7, 24),
            (7, 12),
            (7, u64::MAX - 7),
        ] {
            let mut words = WHOLE;
            words[at] = value;
            let bytes = bundle(words);
            assert!(Bundle::new(&bytes).is_none(), "word {at} = {value:#x}");
        }
        for len in 0..80 {
            assert!(Bundle::new(&bundle(WHOLE)[..len]).is_none());
        }
    }
}

//! Machine code of the stub, an instruction a function.
//!
//! While a stub compares, `rax` names its data; all other operands are registers or fields of it.

use core::ops::Range;

use crate::coupling::state::Source;

/// Most bytes of code.
pub(crate) const ROOM: usize = 2048;
/// Branches to places that are not known yet.
const FORWARD: usize = 48;

/// Where the stub goes on when something differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// All but `rax` and flags is the program's.
    Whole,
    /// `rcx` is in use, too.
    Counting,
}

/// Code under construction.
pub(crate) struct Code {
    bytes: [u8; ROOM],
    len: usize,
    forward: [(usize, Miss); FORWARD],
    forwards: usize,
}

impl Code {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0xcc; ROOM],
            len: 0,
            forward: [(0, Miss::Whole); FORWARD],
            forwards: 0,
        }
    }

    /// What was written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// These bytes as they are.
    ///
    /// # Panics
    /// There is no room, for which nothing that a stub consists of is long enough.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let at = self.len;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        at..self.len
    }

    fn with_word(&mut self, opcode: &[u8], word: u64) {
        self.put(opcode);
        self.put(&word.to_le_bytes());
    }

    fn with_field(&mut self, opcode: &[u8], field: usize) {
        self.put(opcode);
        let field = i32::try_from(field).expect("the data is small");
        self.put(&field.to_le_bytes());
    }

    /// `mov %rax,address`
    pub(crate) fn store_rax(&mut self, address: u64) {
        self.with_word(&[0x48, 0xa3], address);
    }

    /// `mov address,%rax`
    pub(crate) fn load_rax(&mut self, address: u64) {
        self.with_word(&[0x48, 0xa1], address);
    }

    /// `mov $word,%rax`
    pub(crate) fn set_rax(&mut self, word: u64) {
        self.with_word(&[0x48, 0xb8], word);
    }

    /// `lahf; seto %al`: the arithmetic flags.
    pub(crate) fn flags_to_rax(&mut self) {
        self.put(&[0x9f, 0x0f, 0x90, 0xc0]);
    }

    /// `add $0x7f,%al; sahf`: these flags again.
    pub(crate) fn flags_from_rax(&mut self) {
        self.put(&[0x04, 0x7f, 0x9e]);
    }

    /// `lea 1(%rax),%rax`: the next number, by which no flags change.
    pub(crate) fn next_rax(&mut self) {
        self.put(&[0x48, 0x8d, 0x40, 0x01]);
    }

    /// `incq field(%rax)`
    pub(crate) fn increment(&mut self, field: usize) {
        self.with_field(&[0x48, 0xff, 0x80], field);
    }

    /// `mov field(%rax),%rcx`
    pub(crate) fn load_rcx(&mut self, field: usize) {
        self.with_field(&[0x48, 0x8b, 0x88], field);
    }

    /// `movzwl field(%rax),%ecx`
    pub(crate) fn load_half_word(&mut self, field: usize) {
        self.with_field(&[0x0f, 0xb7, 0x88], field);
    }

    /// `mov (%rcx),%rcx`
    pub(crate) fn follow_rcx(&mut self) -> Range<usize> {
        self.put(&[0x48, 0x8b, 0x09])
    }

    /// `cmp field(%rax),%register`, the field being one of the first sixteen words.
    pub(crate) fn compare(&mut self, register: usize, field: usize) {
        let [register, field] = [register, field].map(|it| u8::try_from(it).expect("small"));
        let (high, low) = (register >> 3, register & 7);
        self.put(&[0x48 | high << 2, 0x3b, 0x40 | low << 3, field]);
    }

    /// `cmp field(%rax),%rcx`
    pub(crate) fn compare_rcx(&mut self, field: usize) {
        self.with_field(&[0x48, 0x3b, 0x88], field);
    }

    /// `lea field(%rax),%rsp; pushfq; pop %rcx; mov saved(%rax),%rsp; and $mask,%ecx`
    pub(crate) fn other_flags(&mut self, stack: usize, saved: usize, mask: u32) {
        self.with_field(&[0x48, 0x8d, 0xa0], stack);
        self.put(&[0x9c, 0x59]);
        self.with_field(&[0x48, 0x8b, 0xa0], saved);
        self.put(&[0x81, 0xe1]);
        self.put(&mask.to_le_bytes());
    }

    /// Saves what holds the word to the field, and loads it into `rcx`.
    pub(crate) fn extended_word(&mut self, source: Source, field: usize) {
        let offset = match source {
            Source::Legacy(offset) => {
                self.with_field(&[0x48, 0x0f, 0xae, 0x80], field);
                usize::try_from(offset).expect("small")
            }
            Source::Mask(register) => {
                let operand = 0x80 | (register & 7) << 3;
                self.with_field(&[0xc4, 0xe1, 0xf8, 0x91, operand], field);
                0
            }
            Source::Vector {
                register,
                bytes,
                offset,
            } => {
                self.store_vector(register, bytes, field);
                usize::from(offset)
            }
        };
        self.load_rcx(field + offset);
    }

    fn store_vector(&mut self, register: u8, bytes: u8, field: usize) {
        let operand = 0x80 | (register & 7) << 3;
        let (eight, sixteen) = (register >> 3 & 1, register >> 4 & 1);
        match bytes {
            16 => self.with_field(&[0x40 | eight << 2, 0x0f, 0x11, operand], field),
            32 => self.with_field(&[0xc5, 0xfe ^ eight << 7, 0x7f, operand], field),
            _ => {
                let registers = 0xf1 ^ eight << 7 ^ sixteen << 4;
                self.with_field(&[0x62, registers, 0xfe, 0x48, 0x7f, operand], field);
            }
        }
    }

    /// `jne` to where the stub goes on.
    pub(crate) fn unless_equal(&mut self, miss: Miss) {
        self.put(&[0x0f, 0x85, 0, 0, 0, 0]);
        self.forward[self.forwards] = (self.len, miss);
        self.forwards += 1;
    }

    /// All branches to there lead here.
    pub(crate) fn land(&mut self, miss: Miss) {
        let here = self.len;
        for (next, wanted) in &self.forward[..self.forwards] {
            if *wanted == miss {
                let distance = i32::try_from(here - next).expect("small");
                self.bytes[next - 4..*next].copy_from_slice(&distance.to_le_bytes());
            }
        }
    }

    /// `jmp *slot`, with a slot behind it that holds the address.
    pub(crate) fn jump_far(&mut self, to: u64) {
        self.with_word(&[0xff, 0x25, 0, 0, 0, 0], to);
    }
}

//! The frame of a handler, as the ABI of x86-64 lays it out.
//!
//! Below the stack's red zone lie the floating-point state (`fxsave`, at a multiple of 64 bytes),
//! and below that return address, `ucontext` and `siginfo`. The processor has no `xsave`, so
//! nothing else is saved, and no flag says that there is more.

use super::registers::{CALL_WORDS, FLOAT_WORDS, IP, SP, STATUS, first_floats};
use crate::linux::arch::kept::{Restored, Saved, Wrong};
use crate::linux::{Answer, Errno};

/// Bytes below a stack that a function may use without saying so.
pub(crate) const RED_ZONE: u64 = 128;
/// Bytes of the floating-point state, and what it begins at a multiple of.
const FLOAT_BYTES: u64 = 8 * FLOAT_WORDS as u64;
const FLOAT_ALIGN: u64 = 64;
/// Words of it that `fxsave` does not write.
const UNUSED_FLOATS: usize = 58;

/// Words of `ucontext`, and where in it what stands.
const CONTEXT: usize = 38;
const STACK: usize = 2;
const REGISTERS: usize = 5;
const SEGMENTS: usize = 23;
const TRAP: usize = 24;
const OLD_MASK: usize = 26;
const ADDRESS: usize = 27;
const FLOATS: usize = 28;
const MASK: usize = 37;
/// Bytes of `siginfo`, and of the frame: the return address, `ucontext`, `siginfo`.
const INFO_BYTES: u64 = 128;
const FRAME_BYTES: u64 = 8 + 8 * CONTEXT as u64 + INFO_BYTES;
const _: () = assert!(FRAME_BYTES == 440);
/// What `ucontext` says of itself: its stack segment counts.
const CONTEXT_FLAGS: u64 = 6;
/// The code segment and the stack segment that programs of Linux have.
const CODE: u64 = 0x33;
const CODE_AND_STACK: u64 = CODE | 0x2b << 48;

/// The registers of a context, by their places among a thread's.
const ORDER: [usize; 18] = [
    7, 8, 9, 10, 11, 12, 13, 14, 5, 4, 6, 1, 3, 0, 2, SP, IP, STATUS,
];
const AX: usize = 0;
const DX: usize = 3;
const SI: usize = 4;
const DI: usize = 5;

/// Bits of the flags: of what a handler begins without, and of what it can change.
const STEP: u64 = 1 << 8;
const BACKWARDS: u64 = 1 << 10;
const RESUME: u64 = 1 << 16;
const CHANGEABLE: u64 = 0x5_0dd5;

/// Where the parts of a frame are.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// Where it begins: the stack pointer of the handler.
    pub(crate) frame: u64,
    context: u64,
    /// Where `siginfo` is.
    pub(crate) info: u64,
    floats: u64,
}

impl Places {
    /// Those of a frame below this.
    pub(crate) const fn below(sp: u64) -> Self {
        let floats = sp.wrapping_sub(FLOAT_BYTES) & !(FLOAT_ALIGN - 1);
        // As behind a call, whose return address is eight bytes below a multiple of 16.
        let frame = (floats.wrapping_sub(FRAME_BYTES) & !15).wrapping_sub(8);
        let context = frame.wrapping_add(8);
        Self {
            frame,
            context,
            info: context.wrapping_add(8 * CONTEXT as u64),
            floats,
        }
    }

    /// Has a thread with these registers begin a handler.
    pub(crate) fn enter(
        &self,
        registers: &mut [u64; CALL_WORDS],
        (signal, handler): (u32, u64),
        _way_back: u64,
    ) {
        registers[AX] = 0;
        registers[DI] = signal.into();
        registers[SI] = self.info;
        registers[DX] = self.context;
        registers[IP] = handler;
        registers[STATUS] &= !(STEP | BACKWARDS | RESUME);
        registers[SP] = self.frame;
    }
}

impl Saved<'_> {
    /// Writes a frame but for its `siginfo`, by what puts words at an address.
    pub(crate) fn write(
        &self,
        places: &Places,
        way_back: u64,
        mut put: impl FnMut(u64, &[u64]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut floats = self.floats;
        floats[UNUSED_FLOATS..].fill(0);
        put(places.floats, &floats)?;
        let mut context = [0; CONTEXT];
        context[0] = CONTEXT_FLAGS;
        context[STACK..REGISTERS].copy_from_slice(&self.stack);
        for (place, register) in context[REGISTERS..].iter_mut().zip(ORDER) {
            *place = self.registers[register];
        }
        let [code, vector, address] = self.trap;
        context[SEGMENTS] = CODE_AND_STACK;
        context[TRAP..OLD_MASK].copy_from_slice(&[code, vector]);
        (context[OLD_MASK], context[MASK]) = (self.mask, self.mask);
        context[ADDRESS] = address;
        context[FLOATS] = places.floats;
        put(places.context, &context)?;
        put(places.frame, &[way_back])
    }
}

impl Restored {
    /// What a thread with these registers goes on with, by what gets a word of its memory.
    pub(crate) fn read(
        before: &[u64; CALL_WORDS],
        get: impl Fn(u64) -> Answer,
    ) -> Result<Self, Wrong> {
        // The handler has taken the return address.
        let mut context = [0; CONTEXT];
        for (index, word) in context.iter_mut().enumerate() {
            *word = get(before[SP].wrapping_add(8 * index as u64))?;
        }
        let mut registers = *before;
        for (&word, register) in context[REGISTERS..].iter().zip(ORDER) {
            registers[register] = word;
        }
        let wanted = registers[STATUS];
        if wanted & STEP != 0 && before[STATUS] & STEP == 0 || context[SEGMENTS] & 0xffff != CODE {
            return Err(Wrong::Refused(
                "neither steps programs nor has code of 32 bits",
            ));
        }
        registers[STATUS] = before[STATUS] & !CHANGEABLE | wanted & CHANGEABLE;
        let mut floats = first_floats();
        if context[FLOATS] != 0 {
            for (index, word) in floats.iter_mut().enumerate() {
                *word = get(context[FLOATS].wrapping_add(8 * index as u64))?;
            }
        }
        Ok(Self {
            registers,
            floats,
            stack: [0, 1, 2].map(|index| context[STACK + index]),
            mask: context[MASK],
        })
    }
}

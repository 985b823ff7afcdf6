//! The frame of a handler, as the ABI of AArch64 lays it out.
//!
//! From its lowest address on lie `siginfo`, `ucontext`, which ends with room for records, and the
//! frame of a function, by which what unwinds stacks finds the way. Records are the floating-point
//! state, the processor's code of a fault, and an end.

use super::registers::{CALL_WORDS, FLOAT_WORDS, FRAME, IP, LINK, SP, STATUS, first_floats};
use crate::linux::arch::kept::{Restored, Saved, Wrong};
use crate::linux::{Answer, Errno};

use linux_raw_sys::errno::EFAULT;

/// Bytes below a stack that a function may use without saying so: none.
pub(crate) const RED_ZONE: u64 = 0;
/// Bytes of `siginfo`, and of that and `ucontext` with the room for its records.
const INFO_BYTES: u64 = 128;
const FRAME_BYTES: u64 = 4688;
/// Bytes of the frame of a function.
const LINK_BYTES: u64 = 16;

/// Words of `ucontext` up to its records, and where in it what stands.
const CONTEXT: usize = 58;
const STACK: usize = 2;
const MASK: usize = 5;
const ADDRESS: usize = 22;
const REGISTERS: usize = 23;
/// Registers there: x0 to x30, then stack pointer, instruction pointer and state.
const GENERAL: usize = 31;
const LAST: [usize; 3] = [SP, IP, STATUS];

/// Words of records: of the floating-point state, of a fault's code, and of the end.
const FLOATS: usize = 66;
const FAULT: usize = 2;
const END: usize = 2;
const ALL: usize = CONTEXT + FLOATS + FAULT + END;
const _: () = assert!(8 * ALL as u64 + INFO_BYTES <= FRAME_BYTES && FLOATS == FLOAT_WORDS);
/// How records begin: kind, and bytes in the upper half.
const OF_FLOATS: u64 = 0x4650_8001 | (8 * FLOATS as u64) << 32;
const OF_FAULT: u64 = 0x4553_5201 | (8 * FAULT as u64) << 32;
/// Bytes of the room for records.
const ROOM: u64 = 4096;

/// Where control and status are in the floating-point state.
const CONTROL: usize = 64;
const FLOAT_STATUS: usize = 65;
/// What a handler can change of the processor's state: conditions, and one about speculation.
const CHANGEABLE: u64 = 0xf << 28 | 1 << 12;
/// The state of other modes, which nobody is in: 32 bits, or another level.
const MODE: u64 = 0x1f;

/// Where the parts of a frame are.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// Where it begins: the stack pointer of the handler.
    pub(crate) frame: u64,
    /// Where `siginfo` is.
    pub(crate) info: u64,
    context: u64,
    link: u64,
}

impl Places {
    /// Those of a frame below this.
    pub(crate) const fn below(sp: u64) -> Self {
        let link = sp.wrapping_sub(LINK_BYTES) & !15;
        let frame = link.wrapping_sub(FRAME_BYTES) & !15;
        Self {
            frame,
            info: frame,
            context: frame.wrapping_add(INFO_BYTES),
            link,
        }
    }

    /// Has a thread with these registers begin a handler.
    pub(crate) fn enter(
        &self,
        registers: &mut [u64; CALL_WORDS],
        (signal, handler): (u32, u64),
        way_back: u64,
    ) {
        registers[0] = signal.into();
        registers[1] = self.info;
        registers[2] = self.context;
        registers[FRAME] = self.link;
        registers[LINK] = way_back;
        registers[IP] = handler;
        registers[SP] = self.frame;
    }
}

impl Saved<'_> {
    /// Writes a frame but for its `siginfo`, by what puts words at an address.
    pub(crate) fn write(
        &self,
        places: &Places,
        _way_back: u64,
        mut put: impl FnMut(u64, &[u64]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut words = [0; ALL];
        let [code, _, address] = self.trap;
        words[STACK..STACK + 3].copy_from_slice(&self.stack);
        words[MASK] = self.mask;
        words[ADDRESS] = address;
        words[REGISTERS..][..GENERAL].copy_from_slice(&self.registers[..GENERAL]);
        for (place, register) in words[REGISTERS + GENERAL..].iter_mut().zip(LAST) {
            *place = self.registers[register];
        }
        let floats = &mut words[CONTEXT..][..FLOATS];
        floats[0] = OF_FLOATS;
        floats[1] = self.floats[FLOAT_STATUS] & 0xffff_ffff | self.floats[CONTROL] << 32;
        floats[2..].copy_from_slice(&self.floats[..CONTROL]);
        if address != 0 {
            words[CONTEXT + FLOATS..][..FAULT].copy_from_slice(&[OF_FAULT, code]);
        }
        put(places.context, &words)?;
        let frame = [self.registers[FRAME], self.registers[LINK]];
        put(places.link, &frame)
    }
}

impl Restored {
    /// What a thread with these registers goes on with, by what gets a word of its memory.
    pub(crate) fn read(
        before: &[u64; CALL_WORDS],
        get: impl Fn(u64) -> Answer,
    ) -> Result<Self, Wrong> {
        let context = before[SP].wrapping_add(INFO_BYTES);
        if !context.is_multiple_of(16) {
            return Err(Wrong::Absent(Errno(EFAULT)));
        }
        let word = |index: usize| get(context.wrapping_add(8 * index as u64));
        let mut registers = *before;
        for (index, register) in registers[..GENERAL].iter_mut().enumerate() {
            *register = word(REGISTERS + index)?;
        }
        for (index, register) in LAST.into_iter().enumerate() {
            registers[register] = word(REGISTERS + GENERAL + index)?;
        }
        if registers[STATUS] & MODE != 0 {
            return Err(Wrong::Refused(
                "has neither code of 32 bits nor other levels",
            ));
        }
        registers[STATUS] &= CHANGEABLE;
        let stack = [word(STACK)?, word(STACK + 1)?, word(STACK + 2)?];
        Ok(Self {
            registers,
            floats: floats(context.wrapping_add(8 * CONTEXT as u64), &get)?,
            stack,
            mask: word(MASK)?,
        })
    }
}

/// The floating-point state among the records that begin there. There has to be one.
fn floats(records: u64, get: &impl Fn(u64) -> Answer) -> Result<[u64; FLOAT_WORDS], Wrong> {
    let wrong = || Wrong::Absent(Errno(EFAULT));
    let (mut at, mut found) = (0, None);
    while at + 16 <= ROOM {
        let head = get(records.wrapping_add(at))?;
        let (kind, bytes) = (head & 0xffff_ffff, head >> 32);
        if kind == 0 {
            break;
        }
        if bytes < 16 || !bytes.is_multiple_of(16) || bytes > ROOM - at {
            return Err(wrong());
        }
        if head == OF_FLOATS {
            let mut floats = first_floats();
            let state = get(records.wrapping_add(at + 8))?;
            (floats[FLOAT_STATUS], floats[CONTROL]) = (state & 0xffff_ffff, state >> 32);
            for (index, word) in floats[..CONTROL].iter_mut().enumerate() {
                *word = get(records.wrapping_add(at + 16 + 8 * index as u64))?;
            }
            found = Some(floats);
        }
        at += bytes;
    }
    found.ok_or_else(wrong)
}

//! The frame of a handler, as the ABI of x86-64 lays it out: what the thread was at lies on its
//! stack, where the handler can look at it and change it, until it returns (`rt_sigreturn`).
//!
//! Below the stack's red zone lie the floating-point state (`fxsave`, at a multiple of 64 bytes),
//! and below that return address, `ucontext` and `siginfo`. The processor has no `xsave`, so
//! nothing else is saved, and no flag says that there is more.

use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general::{__NR_rt_sigreturn, SA_NODEFER, SA_ONSTACK, SA_RESTORER, SA_SIGINFO};

use super::info::INFO_BYTES;
use super::stack::Stack;
use super::{Action, FIXED, Info, Set, bit};
use crate::linux::identity::{CALL_WORDS, FLOAT_WORDS, IP, SP, STATUS};
use crate::linux::{Errno, Machine, Process};

/// Bytes below a stack that a function may use without saying so.
const RED_ZONE: u64 = 128;
/// Bytes of the floating-point state, and what it begins at a multiple of.
const FLOAT_BYTES: u64 = 8 * FLOAT_WORDS as u64;
const FLOAT_ALIGN: u64 = 64;
/// Words of it that `fxsave` does not write.
const UNUSED_FLOATS: usize = 58;
/// A state that is not zero there: all exceptions masked.
const FIRST_FLOATS: [(usize, u64); 2] = [(0, 0x037f), (3, 0x1f80)];

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
/// Bytes of the frame: the return address, `ucontext`, `siginfo`.
const FRAME_BYTES: u64 = 8 + 8 * CONTEXT as u64 + INFO_BYTES as u64;
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
const ANSWER: usize = 0;
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
struct Places {
    frame: u64,
    context: u64,
    info: u64,
    floats: u64,
}

/// Where a frame is to be on a stack; none if the alternate stack has no room for it.
fn places(sp: u64, stack: &Stack, action: &Action) -> Option<Places> {
    let was_on = stack.has(sp);
    let mut sp = sp.wrapping_sub(RED_ZONE);
    let enters = action.has(SA_ONSTACK) && stack.state(sp) == 0;
    if enters {
        sp = stack.end();
    }
    let floats = sp.wrapping_sub(FLOAT_BYTES) & !(FLOAT_ALIGN - 1);
    // As behind a call, whose return address is eight bytes below a multiple of 16.
    let frame = (floats.wrapping_sub(FRAME_BYTES) & !15).wrapping_sub(8);
    let fits = !(was_on || enters) || stack.spans(frame);
    let context = frame.wrapping_add(8);
    fits.then_some(Places {
        frame,
        context,
        info: context.wrapping_add(8 * CONTEXT as u64),
        floats,
    })
}

/// The floating-point state that programs and handlers begin with.
pub(crate) fn first_floats() -> [u64; FLOAT_WORDS] {
    let mut floats = [0; FLOAT_WORDS];
    for (index, word) in FIRST_FLOATS {
        floats[index] = word;
    }
    floats
}

impl<M: Machine> Process<'_, M> {
    /// Has the current thread, which had these registers, begin the handler of a signal.
    ///
    /// # Errors
    /// If there is no room for its frame, or the program names no way back.
    pub(super) fn begin_handler(
        &mut self,
        info: &Info,
        action: Action,
        registers: &[u64; CALL_WORDS],
    ) -> Result<(), Errno> {
        let own = self.threads.current().signals;
        let places = places(registers[SP], &own.stack, &action).ok_or(Errno(EFAULT))?;
        if !action.has(SA_RESTORER) {
            return Err(Errno(EFAULT));
        }
        let mask = own.saved.unwrap_or(own.mask);
        self.save(places, info, action, registers, mask)?;
        let own = &mut self.threads.current().signals;
        own.stack.entered();
        own.saved = None;
        own.mask |= action.mask;
        if !action.has(SA_NODEFER) {
            own.mask |= bit(info.signal);
        }
        self.set_floats(&first_floats())?;
        let mut registers = *registers;
        registers[ANSWER] = 0;
        registers[DI] = info.signal.into();
        registers[SI] = places.info;
        registers[DX] = places.context;
        registers[IP] = action.handler;
        registers[STATUS] &= !(STEP | BACKWARDS | RESUME);
        registers[SP] = places.frame;
        self.threads.set_registers(registers);
        Ok(())
    }

    /// Writes a frame.
    fn save(
        &mut self,
        places: Places,
        info: &Info,
        action: Action,
        registers: &[u64; CALL_WORDS],
        mask: Set,
    ) -> Result<(), Errno> {
        let own = self.threads.current().signals;
        let mut floats = self.machine.floats(self.threads.index());
        floats[UNUSED_FLOATS..].fill(0);
        self.write_words(places.floats, &floats)?;
        let mut context = [0; CONTEXT];
        context[0] = CONTEXT_FLAGS;
        context[STACK..REGISTERS].copy_from_slice(&own.stack.kept());
        for (place, register) in context[REGISTERS..].iter_mut().zip(ORDER) {
            *place = registers[register];
        }
        let [code, vector, address] = own.trap;
        context[SEGMENTS] = CODE_AND_STACK;
        context[TRAP..OLD_MASK].copy_from_slice(&[code, vector]);
        (context[OLD_MASK], context[MASK]) = (mask, mask);
        context[ADDRESS] = address;
        context[FLOATS] = places.floats;
        if action.has(SA_SIGINFO) {
            self.write(places.info, &info.bytes())?;
        }
        self.write_words(places.context, &context)?;
        self.write_words(places.frame, &[action.restorer])
    }

    /// Ends a handler: the current thread goes on as its frame says.
    ///
    /// # Errors
    /// If that is none.
    pub(super) fn end_handler(&mut self) -> Result<(), Errno> {
        let before = *self.threads.registers();
        // The handler has taken the return address.
        let mut context = [0; CONTEXT];
        for (index, word) in context.iter_mut().enumerate() {
            *word = self.word(before[SP].wrapping_add(8 * index as u64))?;
        }
        let mut registers = before;
        for (&word, register) in context[REGISTERS..].iter().zip(ORDER) {
            registers[register] = word;
        }
        let wanted = registers[STATUS];
        if wanted & STEP != 0 && before[STATUS] & STEP == 0 || context[SEGMENTS] & 0xffff != CODE {
            let text = format_args!(
                "the system sphere neither steps programs nor has code of 32 bits, which a \
                 handler of a signal wants: it ends as with a wrong frame"
            );
            self.tell_once(__NR_rt_sigreturn.into(), text);
            return Err(Errno(EFAULT));
        }
        registers[STATUS] = before[STATUS] & !CHANGEABLE | wanted & CHANGEABLE;
        let floats = match context[FLOATS] {
            0 => first_floats(),
            place => self.floats_at(place)?,
        };
        self.set_floats(&floats)?;
        let own = &mut self.threads.current().signals;
        own.mask = context[MASK] & !FIXED;
        let [at, flags, bytes] = [0, 1, 2].map(|index| context[STACK + index]);
        // What is wrong with it is nobody's concern here.
        let _ = own
            .stack
            .set([at, flags & 0xffff_ffff, bytes], registers[SP]);
        self.threads.set_registers(registers);
        Ok(())
    }

    fn floats_at(&self, place: u64) -> Result<[u64; FLOAT_WORDS], Errno> {
        let mut floats = [0; FLOAT_WORDS];
        for (index, word) in floats.iter_mut().enumerate() {
            *word = self.word(place.wrapping_add(8 * index as u64))?;
        }
        Ok(floats)
    }

    fn set_floats(&mut self, floats: &[u64; FLOAT_WORDS]) -> Result<(), Errno> {
        let set = self.machine.set_floats(self.threads.index(), floats);
        set.then_some(()).ok_or(Errno(EFAULT))
    }
}

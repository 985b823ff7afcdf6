//! What a thread does that the processor does not allow: a signal that cannot wait. Blocked or
//! ignored it ends the program.

use linux_raw_sys::general::{SI_KERNEL, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};

use super::{ENDED_BY, Effect, Info, bit};
use crate::linux::identity::{CALL_WORDS, FLOAT_WORDS, IP};
use crate::linux::space::Space;
use crate::linux::threads::Turn;
use crate::linux::{Machine, Process};

/// Exceptions, by their vectors.
const DIVISION: u64 = 0;
const STEPPED: u64 = 1;
const BREAKPOINT: u64 = 3;
const UNDEFINED: u64 = 6;
const ABSENT: u64 = 11;
const STACK: u64 = 12;
const PAGE: u64 = 14;
const FLOAT: u64 = 16;
const ALIGNMENT: u64 = 17;
const VECTOR: u64 = 19;

/// Where signals say that they are from.
const DIVIDED_BY_ZERO: u32 = 1;
const TRACED: u32 = 2;
const NO_OPERATION: u32 = 2;
const NOT_ALIGNED: u32 = 1;
const NOT_MAPPED: u32 = 1;
const NOT_ALLOWED: u32 = 2;
const NO_SUCH_PAGE: u32 = 2;

/// The end of what programs can have, and what the processor says of an address above it.
const PROGRAMS_END: u64 = 0x7fff_ffff_f000;
const IS_THERE: u64 = 1;

/// What the processor stopped a thread for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// It used this address; the processor's code.
    Page {
        /// The address.
        address: u64,
        /// See there.
        code: u64,
    },
    /// It had an exception.
    Exception {
        /// Which one.
        vector: u64,
        /// The processor's code.
        code: u64,
    },
}

/// Why floating-point arithmetic has an exception, of those that are not masked: bits for invalid
/// operations, unnormalized operands, division by zero, overflow, underflow and inexact results.
fn float_code(vector: u64, floats: &[u64; FLOAT_WORDS]) -> u32 {
    let unmasked = if vector == FLOAT {
        (floats[0] >> 16) & !floats[0]
    } else {
        floats[3] & !(floats[3] >> 7)
    };
    match unmasked & 0x3f {
        it if it & 1 != 0 => 7,
        it if it & 4 != 0 => 3,
        it if it & 8 != 0 => 4,
        it if it & 0x12 != 0 => 5,
        it if it & 0x20 != 0 => 6,
        _ => 0,
    }
}

impl<M: Machine> Process<'_, M> {
    /// The thread at this place, which had these registers, was stopped: how it goes on.
    pub fn trapped(&mut self, place: usize, trap: Trap, registers: &[u64; CALL_WORDS]) -> Turn {
        let process = self.threads.at(place).process;
        self.enter(process);
        self.threads.stopped(place, *registers);
        let info = match trap {
            Trap::Page { address, .. } if self.page_fault(address) => return Turn::Same,
            Trap::Page { address, code } => self.page_info(address, code),
            Trap::Exception { vector, code } => match self.exception(vector, registers) {
                Some(after) => return Turn::Resume(after),
                None => self.exception_info(vector, code, registers[IP]),
            },
        };
        let Some(info) = info else {
            let ended = self.end_by(SIGSEGV, trap);
            return self.ended(place, ended);
        };
        let done = self.force(info);
        match done.and_then(|()| self.take_signals().map_or(Ok(()), Err)) {
            Ok(()) => self.answer(),
            Err(0) => {
                let ended = self.end_by(info.signal, trap);
                self.ended(place, ended)
            }
            Err(ended) => self.ended(place, ended),
        }
    }

    /// What is told of a page fault; nothing if there is no memory for what is the program's.
    fn page_info(&mut self, address: u64, code: u64) -> Option<Info> {
        if Space::has_promised(&self.store, address) {
            return None;
        }
        if Space::is_beyond(&self.store, address) {
            return Some(Info::of_fault(SIGBUS, NO_SUCH_PAGE, address));
        }
        let is_there = Space::has(&self.store, address);
        let beyond = if address >= PROGRAMS_END { IS_THERE } else { 0 };
        self.threads.current().signals.trap = [code | beyond, PAGE, address];
        let why = if is_there { NOT_ALLOWED } else { NOT_MAPPED };
        Some(Info::of_fault(SIGSEGV, why, address))
    }

    fn exception_info(&mut self, vector: u64, code: u64, ip: u64) -> Option<Info> {
        let place = self.threads.index();
        let trap = &mut self.threads.current().signals.trap;
        *trap = [code, vector, trap[2]];
        Some(match vector {
            DIVISION => Info::of_fault(SIGFPE, DIVIDED_BY_ZERO, ip),
            STEPPED => Info::of_fault(SIGTRAP, TRACED, ip),
            BREAKPOINT => Info::of_fault(SIGTRAP, SI_KERNEL, 0),
            UNDEFINED => Info::of_fault(SIGILL, NO_OPERATION, ip),
            ABSENT | STACK => Info::of_fault(SIGBUS, SI_KERNEL, 0),
            FLOAT | VECTOR => {
                let floats = self.machine.floats(place);
                Info::of_fault(SIGFPE, float_code(vector, &floats), ip)
            }
            ALIGNMENT => Info::of_fault(SIGBUS, NOT_ALIGNED, 0),
            _ => Info::of_fault(SIGSEGV, SI_KERNEL, 0),
        })
    }

    /// Has the current thread take a signal now.
    ///
    /// # Errors
    /// The status of a program that ends by it; 0 if it does by this very signal.
    pub(super) fn force(&mut self, info: Info) -> Result<(), u64> {
        let blocked = self.threads.current().signals.mask & bit(info.signal) != 0;
        if blocked || self.task.signals.effect(info.signal) != Effect::Handle {
            return Err(0);
        }
        self.handle(&info)
    }

    /// The program ends by what it did, and the user is told.
    fn end_by(&mut self, signal: u32, trap: Trap) -> u64 {
        let ip = self.threads.registers()[IP];
        match trap {
            Trap::Page { address, .. } => self.machine.note(format_args!(
                "the program has no access to {address:#x}, at {ip:#x}"
            )),
            Trap::Exception { vector, .. } => self.machine.note(format_args!(
                "the program had exception {vector} at {ip:#x}"
            )),
        }
        ENDED_BY + u64::from(signal)
    }
}

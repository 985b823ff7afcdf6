//! What a thread does that the processor does not allow: a signal that cannot wait. Blocked or
//! ignored it ends the program.

use linux_raw_sys::general::{SIGBUS, SIGSEGV};

use super::{ENDED_BY, Effect, Info, bit};
use crate::linux::arch::{CALL_WORDS, IP, exception_fault, is_misaligned, page_words};
use crate::linux::space::Space;
use crate::linux::threads::Turn;
use crate::linux::{Machine, Process};

/// Where signals say that they are from.
const NOT_MAPPED: u32 = 1;
const NOT_ALLOWED: u32 = 2;
const NO_SUCH_PAGE: u32 = 2;
const NOT_ALIGNED: u32 = 1;

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

impl<M: Machine> Process<'_, M> {
    /// The thread at this place, which had these registers, was stopped: how it goes on.
    pub fn trapped(&mut self, place: usize, trap: Trap, registers: &[u64; CALL_WORDS]) -> Turn {
        let process = self.threads.at(place).process;
        self.enter(process);
        self.threads.stopped(place, *registers);
        let info = match trap {
            Trap::Page { address, code } if is_misaligned(code) => {
                self.threads.current().signals.trap = page_words(code, address);
                Some(Info::of_fault(SIGBUS, NOT_ALIGNED, address))
            }
            Trap::Page { address, .. } if self.page_fault(address) => return Turn::Same,
            Trap::Page { address, code } => self.page_info(address, code),
            Trap::Exception { vector, code } => match self.exception((vector, code), registers) {
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
        self.threads.current().signals.trap = page_words(code, address);
        let why = if is_there { NOT_ALLOWED } else { NOT_MAPPED };
        Some(Info::of_fault(SIGSEGV, why, address))
    }

    fn exception_info(&mut self, vector: u64, code: u64, ip: u64) -> Option<Info> {
        let place = self.threads.index();
        let trap = &mut self.threads.current().signals.trap;
        *trap = [code, vector, trap[2]];
        let floats = || self.machine.floats(place);
        let (signal, from, address) = exception_fault(vector, ip, floats);
        Some(Info::of_fault(signal, from, address))
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

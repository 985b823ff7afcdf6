//! What is of the processor: its registers, the numbers of calls, what lies in memory otherwise
//! than on another one, the frame of a signal's handler, and exceptions. Each folder has the same
//! names, and nothing outside of them knows which one is built.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod kept;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as own;
#[cfg(target_arch = "x86_64")]
use x86_64 as own;

pub(crate) use kept::{Restored, Saved, Wrong};
pub(crate) use own::calls::{call_of, clone_order, is_quiet, name_of, nr};
pub(crate) use own::cpu::Cpu;
pub(crate) use own::fault::{exception_fault, is_misaligned, page_words};
pub(crate) use own::frame::{Places, RED_ZONE};
pub(crate) use own::layout::{EVENT, EVENT_DATA, REPLACED, TRAMPOLINE, file_words};
pub use own::registers::{CALL_WORDS, FLOAT_WORDS};
pub(crate) use own::registers::{
    FIRST_STATUS, IP, MACHINE, SP, call_again, features, first_floats, set_pointer,
};

//! What programs on the microkernel are made with: system calls, invocations, memory, the console.
//!
//! A program is a binary that names its main function by [`program!`]. It gets one number, and
//! begins with the capabilities listed in [`rcoe_abi::service`]. Programs have no heap and no
//! threads unless they make them.
//!
//! Programs must be free of data races that preemption would show: replicas are preempted at the
//! same event, not at the same instruction, unless they are closely coupled.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod alarm;
mod arch;
pub mod clock;
pub mod console;
pub mod disk;
pub mod input;
#[cfg(any(test, feature = "linux"))]
pub mod linux;
#[cfg(any(test, feature = "guests"))]
pub mod monitor;
pub mod network;
pub mod object;
#[cfg(feature = "bare")]
mod panic;
pub mod pci;
pub mod quiet;
pub mod registers;
pub mod share;
pub mod socket;
pub mod squeeze;
mod sys;
pub mod virtio;

pub use arch::{counter, fault, foreign, identity, line, serial, timer};
pub use sys::{
    Received, accept, add_trace, add_trace_by, boot_image, boot_page, bundle, call, call_with,
    fill_scratch, now_message, recv, reply_recv, reply_recv_with, reply_with, send,
    set_window_word, window_word, yield_now,
};

use rcoe_abi::{MessageInfo, ObjectType, service};

/// Ends the program with this exit status.
pub fn exit(status: u64) -> ! {
    call(service::SLOT_ROOT, service::ROOT_EXIT, &[status]);
    // Nobody answers that, unless this is the root task.
    fault::undefined()
}

/// Starts another program of the boot image, which shares [`service::SLOT_PEER`] with this one.
/// Tells whether there is one of that name.
#[must_use]
pub fn spawn(name: &str, argument: u64) -> bool {
    let Some(words) = rcoe_abi::image::name_words(name.as_bytes()) else {
        return false;
    };
    let [a, b, c, d] = words;
    let answer = call(
        service::SLOT_ROOT,
        service::ROOT_SPAWN,
        &[a, b, c, d, argument],
    );
    answer.label == 0
}

/// Zeroed memory of so many words that nobody else has; `None` if there is not enough.
#[must_use]
pub fn memory(words: usize) -> Option<&'static mut [u64]> {
    let pages = words.div_ceil(512) as u64;
    let answer = call(service::SLOT_ROOT, service::ROOT_MAP, &[pages]);
    (answer.label == 0).then(|| sys::fresh(answer.words[0], words))
}

/// As [`memory`], of so many bytes.
#[must_use]
pub fn memory_bytes(bytes: usize) -> Option<&'static mut [u8]> {
    memory(bytes.div_ceil(8)).map(|words| sys::as_bytes(words, bytes))
}

/// A new endpoint, notification, frame or thread in `slot` of the own table. Tells whether there is
/// one.
#[must_use]
pub fn make(kind: ObjectType, slot: u64) -> bool {
    make_sized(kind, 0, slot)
}

/// As [`make`], of an object of `1 << bits` bytes: untyped memory.
#[must_use]
pub fn make_sized(kind: ObjectType, bits: u32, slot: u64) -> bool {
    make_in(service::SLOT_CNODE, kind, bits, slot)
}

/// As [`make_sized`], in `slot` of a table.
#[must_use]
pub fn make_in(table: u64, kind: ObjectType, bits: u32, slot: u64) -> bool {
    accept(table, slot, 1);
    let words = [kind as u64, bits.into()];
    let answer = call(service::SLOT_ROOT, service::ROOT_MAKE, &words);
    accept(table, slot, 0);
    answer.label == 0 && answer.caps == 1
}

/// A message's label and length, for the register.
#[must_use]
pub const fn info(label: u64, len: usize) -> MessageInfo {
    MessageInfo::new(label, len)
}

/// The note that tells a program's name to whoever looks into a machine's memory: there the file's
/// first page, with its notes, is what a program's space begins with.
#[derive(Debug)]
#[repr(C)]
pub struct NameNote {
    /// Bytes of the owner's name and of this one, and the kind of note.
    sizes: [u32; 3],
    owner: [u8; 8],
    name: [u8; Self::BYTES],
}

impl NameNote {
    const BYTES: usize = 24;
    const SIZE: u32 = 24;
    /// Of notes of this owner: 1 says what a program is made for.
    const KIND: u32 = 2;

    /// A note of this name.
    ///
    /// # Panics
    /// If the name is too long.
    #[must_use]
    pub const fn new(name: &str) -> Self {
        let (from, mut to, mut at) = (name.as_bytes(), [0; Self::BYTES], 0);
        assert!(from.len() <= Self::BYTES, "a short name");
        while at < from.len() {
            to[at] = from[at];
            at += 1;
        }
        Self {
            sizes: [5, Self::SIZE, Self::KIND],
            owner: *b"rcoe\0\0\0\0",
            name: to,
        }
    }
}

/// Names a program's main function.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[used]
        #[unsafe(link_section = ".note.rcoe")]
        static NAME: $crate::NameNote = $crate::NameNote::new(env!("CARGO_BIN_NAME"));

        #[unsafe(no_mangle)]
        extern "C" fn rcoe_program(argument: u64) -> ! {
            let main: fn(u64) -> u64 = $main;
            $crate::exit(main(argument))
        }
    };
}

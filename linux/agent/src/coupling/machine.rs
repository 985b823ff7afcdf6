//! A replica's state as the protocol compares it: where it was interrupted, or at a call.
//!
//! Replicas that are interrupted are compared in registers, extended state, and all memory that the
//! program can write. At a call only the trace counts: the calls that follow compare the rest, as
//! they always do.

use rcoe_core::coupling::{EVERYTHING, Extra, Machine, SHEET, Standing, Stub, VECTORS};
use rcoe_core::coupling::{REGISTERS, list_digest};
use xxhash_rust::xxh3::xxh3_64;

use crate::arch::frames::SigContext;
use crate::convert::size;
use crate::coupling::blocks::{Block, Memory};
use crate::coupling::state::{Extended, GENERAL, General, Layout};
use crate::coupling::stub::{Place, WORDS};
use crate::memory::guest;
use crate::one_thread::OneThread;

/// Where the extended state of an interrupted replica is looked at.
#[unsafe(link_section = ".bss.own.1")]
static EXTENDED: OneThread<Extended> = OneThread::new(Extended::EMPTY);

/// Offset in a handler's frame of how much of the extended state it holds.
const HELD: u64 = 480;

/// A replica that a handler has interrupted.
pub(crate) struct Interrupted {
    standing: Standing,
    general: General,
    image: &'static [u8],
    memory: Memory,
}

impl Interrupted {
    /// The replica of this number, by its registers.
    pub(crate) fn new(
        standing: Standing,
        machine: &SigContext,
        bases: [u64; 2],
        layout: &Layout,
        number: usize,
    ) -> Self {
        // SAFETY: one kernel thread, and one replica is looked at at a time.
        let room = unsafe { (*EXTENDED.get()).room() };
        Self {
            standing,
            general: General::new(&machine.cpu(), bases),
            image: image_of(machine, layout, room),
            memory: Memory::of(number),
        }
    }

    /// The words of the registers, in the order of [`general_of`].
    fn words(&self) -> [u64; REGISTERS] {
        let General {
            registers,
            rip,
            flags,
            bases: [fs, gs],
        } = self.general;
        let mut words = [0; REGISTERS];
        words[..GENERAL].copy_from_slice(&registers);
        words[GENERAL..].copy_from_slice(&[rip, flags, fs, gs]);
        words
    }

    /// Has it, beside registers, the words by which replicas were refused?
    pub(crate) fn has(&self, wanted: &Stub) -> bool {
        let mut vectors = [0; SHEET];
        let count = self.vectors(&mut vectors);
        wanted.extra().iter().all(|word| match word.area {
            VECTORS => vectors[..count].get(word.at) == Some(&word.value),
            area => {
                let at = Block::of_area(area).address(word.at);
                at.is_none_or(|at| guest::read::<u64>(at) == Ok(word.value))
            }
        })
    }

    /// Takes one more of the digests that siblings will ask for, now that there is time; false if
    /// there is none left.
    pub(crate) fn digest_ahead(&self) -> bool {
        self.memory.digest_ahead()
    }

    /// The extended state as words; what does not fit into a sheet stands for itself by a digest.
    fn vectors(&self, out: &mut [u64]) -> usize {
        let (words, _) = self.image.as_chunks::<8>();
        let count = words.len().min(SHEET - 1);
        for (word, bytes) in out.iter_mut().zip(&words[..count]) {
            *word = u64::from_le_bytes(*bytes);
        }
        if count == words.len() {
            return count;
        }
        out[count] = xxh3_64(&self.image[8 * count..]);
        count + 1
    }
}

/// Copies the extended state out of a handler's frame, and normalises it.
fn image_of(
    machine: &SigContext,
    layout: &Layout,
    room: &'static mut [u8; Extended::ROOM],
) -> &'static [u8] {
    let image = &mut room[..layout.bytes()];
    image.fill(0);
    // SAFETY: the kernel's own frame on the agent's stack, which says there how long it is.
    unsafe {
        let held = ((machine.fpstate + HELD) as *const u32).read();
        let held = size(u64::from(held)).min(image.len());
        let from = machine.fpstate as *const u8;
        core::ptr::copy_nonoverlapping(from, image.as_mut_ptr(), held);
    }
    layout.normalise(image);
    image
}

impl Machine for Interrupted {
    fn standing(&self) -> Standing {
        self.standing
    }

    fn registers(&self, out: &mut [u64]) {
        let len = out.len();
        out.copy_from_slice(&self.words()[..len]);
    }

    fn written(&mut self, list: &mut [u64]) -> Option<usize> {
        self.memory.list(list)
    }

    fn seal(&mut self, room: usize) -> Option<u64> {
        self.memory.seal(room)
    }

    fn area(&self, area: u64, out: &mut [u64]) -> usize {
        match area {
            VECTORS => self.vectors(out),
            EVERYTHING => 0,
            _ => self.memory.words(Block::of_area(area), out),
        }
    }

    fn within(&self, area: u64, at: usize) -> Option<u64> {
        match area {
            VECTORS | EVERYTHING => None,
            _ => Block::of_area(area).part(at).map(Block::area),
        }
    }

    fn content(&self, area: u64) -> Option<u64> {
        match area {
            VECTORS | EVERYTHING => None,
            _ => Some(self.memory.digest(Block::of_area(area))),
        }
    }

    fn everything(&self) -> u64 {
        self.memory.unknown()
    }
}

/// A replica at a call, or waiting within one.
pub(crate) struct AtCall(pub(crate) Standing);

impl Machine for AtCall {
    fn standing(&self) -> Standing {
        self.0
    }

    fn registers(&self, out: &mut [u64]) {
        out.fill(0);
    }

    fn written(&mut self, _: &mut [u64]) -> Option<usize> {
        Some(0)
    }

    fn seal(&mut self, _: usize) -> Option<u64> {
        Some(list_digest(&[]))
    }

    fn area(&self, _: u64, _: &mut [u64]) -> usize {
        0
    }

    fn within(&self, _: u64, _: usize) -> Option<u64> {
        None
    }

    fn everything(&self) -> u64 {
        0
    }
}

/// The registers that a search compares.
pub(crate) fn general_of(stub: &Stub) -> General {
    let words = &stub.registers;
    let mut registers = [0; GENERAL];
    registers.copy_from_slice(&words[..GENERAL]);
    General {
        registers,
        rip: words[GENERAL],
        flags: words[GENERAL + 1],
        bases: [words[GENERAL + 2], words[GENERAL + 3]],
    }
}

/// The words beside them that a stub can look at, the newest, and how many.
pub(crate) fn places_of(stub: &Stub, layout: &Layout) -> ([(Place, u64); WORDS], usize) {
    let mut places = [(Place::Memory(0), 0); WORDS];
    let mut count = 0;
    let known = stub.extra().iter().rev();
    for place in known.filter_map(|word| place_of(word, layout)).take(WORDS) {
        places[count] = place;
        count += 1;
    }
    (places, count)
}

fn place_of(word: &Extra, layout: &Layout) -> Option<(Place, u64)> {
    let place = match word.area {
        VECTORS => Place::Extended(layout.source(8 * word.at)?),
        area => Place::Memory(Block::of_area(area).address(word.at)?),
    };
    Some((place, word.value))
}

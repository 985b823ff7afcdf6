//! What drivers of virtio devices on the PCI bus have in common (Virtual I/O Device version 1.2,
//! sections 2.7, 3.1 and 4.1): where registers are, how features are agreed on, and queues.
//!
//! Such a device finds addresses in memory, in *descriptors*. They lie in transfer memory, of which
//! every replica has its own; each kernel stores there where its own is. A device that was told of
//! the memory of one primary is to be reset, and told anew, as soon as there is another one: who
//! tells it learns of which *generation* the primary was.
//!
//! Contract: whatever is written to registers is voted, and can be written twice. What lies in
//! transfer memory the device may fetch at any time once it runs.
//!
//! Not covered: devices in which anything but version 1 is to be had, and more than 8 descriptors.

use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, layout, service};

use crate::object::{self, Outcome};
use crate::pci;
use crate::registers::{set, status, wait_for};

/// Vendor of all such devices.
const VENDOR: u64 = 0x1af4;
/// Registers of the base address of the device's memory, and of the first of its capabilities; how
/// many of those are looked at.
const BASE_NUMBER: u64 = 4;
const BASE: u64 = pci::BASE + 4 * BASE_NUMBER;
const CAPABILITIES: u64 = 0x34;
const CAPABILITIES_MOST: u32 = 16;
/// A capability that says where registers are.
const VENDORS: u64 = 9;
/// Bytes of the device's memory.
const MEMORY: u64 = 4 * PAGE;

/// Registers that all have.
mod register {
    pub(crate) const OFFERED_SELECT: u64 = 0;
    pub(crate) const OFFERED: u64 = 4;
    pub(crate) const TAKEN_SELECT: u64 = 8;
    pub(crate) const TAKEN: u64 = 0xc;
    pub(crate) const STATE: u64 = 0x14;
    pub(crate) const QUEUE: u64 = 0x16;
    pub(crate) const SIZE: u64 = 0x18;
    pub(crate) const ENABLE: u64 = 0x1c;
    pub(crate) const NOTIFIED_AT: u64 = 0x1e;
    pub(crate) const DESCRIPTORS: u64 = 0x20;
    pub(crate) const ASKED: u64 = 0x28;
    pub(crate) const DONE: u64 = 0x30;
}

/// States: seen, driven, features settled, running.
const SEEN: u64 = 1;
const DRIVEN: u64 = 2;
const SETTLED: u64 = 8;
const RUNS: u64 = 4;
/// Of the features, the upper half: it is of version 1.
const VERSION_1: u64 = 1;

/// Bytes of a descriptor; in one: another one follows, the device writes.
pub const DESCRIPTOR: usize = 16;
/// See [`DESCRIPTOR`].
pub const FOLLOWED: u16 = 1;
/// See [`DESCRIPTOR`].
pub const WRITTEN: u16 = 2;

/// What a descriptor says beside its address, behind that.
#[must_use]
pub fn described(len: u32, flags: u16, next: u16) -> [u8; 8] {
    let mut words = [0; 8];
    words[..4].copy_from_slice(&len.to_le_bytes());
    words[4..6].copy_from_slice(&flags.to_le_bytes());
    words[6..].copy_from_slice(&next.to_le_bytes());
    words
}

/// A queue: where its descriptors, what is asked, and what is done lie in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Its number.
    pub number: u64,
    /// How many descriptors it has.
    pub size: u64,
    /// Its descriptors.
    pub descriptors: u64,
    /// The ring of what is asked.
    pub asked: u64,
    /// The ring of what is done.
    pub done: u64,
}

/// Of a device: where registers are; and bytes from one queue's bell to the next.
#[derive(Debug)]
pub struct Virtio {
    /// Where its memory is in device memory.
    registers: u64,
    common: u64,
    notify: u64,
    cause: u64,
    own: u64,
    stride: u64,
}

impl Virtio {
    /// Finds the device of a kind (section 5) in a slot of the bus, and has its memory be in that
    /// page of the window, which is at `registers` in device memory.
    ///
    /// # Errors
    /// The kernel's; `FailedLookup` if there is none, and others if it cannot be used.
    pub fn find(slot: u64, kind: u64, page: u64, registers: u64) -> Result<Self, Error> {
        if pci::read(slot, pci::IDENTITY)? != (0x1040 + kind) << 16 | VENDOR {
            return Err(Error::FailedLookup);
        }
        let base = u64::from(layout::PCI_WINDOW) + page * PAGE;
        pci::write(slot, BASE, base)?;
        pci::write(slot, BASE + 4, 0)?;
        pci::write(slot, pci::COMMAND, pci::MEMORY | pci::MASTER)?;
        let mut virtio = Self {
            registers,
            common: 0,
            notify: 0,
            cause: 0,
            own: 0,
            stride: 0,
        };
        virtio.look(slot)?;
        Ok(virtio)
    }

    /// Where registers are, by the capabilities of the device (section 4.1.4).
    fn look(&mut self, slot: u64) -> Outcome {
        let mut found = 0;
        let mut next = pci::read(slot, CAPABILITIES)? & 0xfc;
        for _ in 0..CAPABILITIES_MOST {
            if next == 0 {
                break;
            }
            let head = pci::read(slot, next)?;
            if head & 0xff == VENDORS {
                found |= self.note(slot, next, head >> 24)?;
            }
            next = head >> 8 & 0xfc;
        }
        match found {
            0x1e => Ok(()),
            _ => Err(Error::IllegalOperation),
        }
    }

    /// Notes what a capability of this type says; the type as a bit, if it is one that is needed.
    fn note(&mut self, slot: u64, at: u64, kind: u64) -> Result<u64, Error> {
        let place = match kind {
            1 => &mut self.common,
            2 => &mut self.notify,
            3 => &mut self.cause,
            4 => &mut self.own,
            _ => return Ok(0),
        };
        let (base, offset) = (pci::read(slot, at + 4)? & 0xff, pci::read(slot, at + 8)?);
        if base != BASE_NUMBER || offset > MEMORY - 64 || !offset.is_multiple_of(8) {
            return Err(Error::RangeError);
        }
        *place = self.registers + offset;
        if kind == 2 {
            self.stride = pci::read(slot, at + 16)?;
        }
        Ok(1 << kind)
    }

    /// Where what only a device of this kind has is in device memory.
    #[must_use]
    pub const fn own(&self) -> u64 {
        self.own
    }

    /// Resets it, and agrees with it on features (section 3.1): these of the lower half, and
    /// version 1. It does not run yet, and has no queues.
    ///
    /// # Errors
    /// The kernel's; `IllegalOperation` if it does not have them.
    pub fn settle(&self, features: u64) -> Outcome {
        let state = self.common + register::STATE;
        set(state, 1, 0)?;
        wait_for(state, 1, 0xff, 0)?;
        set(state, 1, SEEN | DRIVEN)?;
        for (half, features) in [(0, features), (1, VERSION_1)] {
            set(self.common + register::OFFERED_SELECT, 4, half)?;
            if status(self.common + register::OFFERED, 4)? & features != features {
                return Err(Error::IllegalOperation);
            }
            set(self.common + register::TAKEN_SELECT, 4, half)?;
            set(self.common + register::TAKEN, 4, features)?;
        }
        set(state, 1, SEEN | DRIVEN | SETTLED)?;
        match status(state, 1)? & SETTLED {
            0 => Err(Error::IllegalOperation),
            _ => Ok(()),
        }
    }

    /// Tells it where a queue is. The bell by which it is told that there is something, and the
    /// generation of the primary whose memory that is, if it was one all the time.
    ///
    /// # Errors
    /// The kernel's; others if it cannot have such a queue.
    pub fn place(&self, queue: &Queue) -> Result<(u64, Option<u64>), Error> {
        self.choose(queue.number)?;
        if status(self.common + register::SIZE, 2)? < queue.size {
            return Err(Error::IllegalOperation);
        }
        set(self.common + register::SIZE, 2, queue.size)?;
        let at = status(self.common + register::NOTIFIED_AT, 2)?;
        let bell = self.notify + at * self.stride;
        if bell > self.registers + MEMORY - 2 {
            return Err(Error::RangeError);
        }
        let mut all = [0; 3];
        for (generation, (register, target)) in all.iter_mut().zip([
            (register::DESCRIPTORS, queue.descriptors),
            (register::ASKED, queue.asked),
            (register::DONE, queue.done),
        ]) {
            let register = self.common + register;
            *generation = object::device_address_short(service::SLOT_DEVICE, register, target)?;
            set(register + 4, 4, 0)?;
        }
        set(self.common + register::ENABLE, 2, 1)?;
        let [first, ..] = all;
        Ok((bell, all.iter().all(|&it| it == first).then_some(first)))
    }

    /// Where it was told that a queue's descriptors are: an address, which is to be compared only.
    ///
    /// # Errors
    /// The kernel's.
    pub fn told(&self, queue: u64) -> Result<u64, Error> {
        self.choose(queue)?;
        let register = self.common + register::DESCRIPTORS;
        Ok(status(register, 4)? | status(register + 4, 4)? << 32)
    }

    /// From here on it runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(&self) -> Outcome {
        let state = self.common + register::STATE;
        set(state, 1, SEEN | DRIVEN | SETTLED | RUNS)
    }

    /// Says which queue is meant. As a register's write is voted, and this one may be written
    /// again and again, it is where all agree before anything is handed over.
    ///
    /// # Errors
    /// The kernel's.
    pub fn choose(&self, queue: u64) -> Outcome {
        set(self.common + register::QUEUE, 2, queue)
    }

    /// Asked why it interrupts, it wants no more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn quieten(&self) -> Outcome {
        status(self.cause, 1).map(|_| ())
    }
}

/// A device says that more was done than was asked for, or something that was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// The next of what is done, by the first descriptor of it and the bytes that were written, of a
/// queue whose ring this is, if the device has done more than the `seen` ones.
///
/// # Errors
/// If what the device stored makes no sense.
///
/// # Panics
/// If the ring is shorter than a queue of that size has it.
pub fn next_done(ring: &[u8], size: u16, seen: u16) -> Result<Option<(u16, u32)>, Malformed> {
    let word = |at: usize| u16::from_le_bytes([ring[at], ring[at + 1]]);
    let more = word(2).wrapping_sub(seen);
    if more == 0 {
        return Ok(None);
    }
    let at = 4 + usize::from(seen % size) * 8;
    let (first, upper) = (word(at), word(at + 2));
    if more > size || first >= size || upper != 0 {
        return Err(Malformed);
    }
    let len = u32::from(word(at + 4)) | u32::from(word(at + 6)) << 16;
    Ok(Some((first, len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of eight in which that many were done, the last of them this one.
    fn ring(done: u16, first: u32, len: u32) -> [u8; 68] {
        let mut ring = [0; 68];
        ring[2..4].copy_from_slice(&done.to_le_bytes());
        let at = 4 + usize::from(done.wrapping_sub(1) % 8) * 8;
        ring[at..at + 4].copy_from_slice(&first.to_le_bytes());
        ring[at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
        ring
    }

    #[test]
    fn what_is_done_is_told_in_turn() {
        assert_eq!(next_done(&ring(0, 0, 0), 8, 0), Ok(None));
        assert_eq!(next_done(&ring(1, 5, 70_000), 8, 0), Ok(Some((5, 70_000))));
        assert_eq!(next_done(&ring(1, 5, 7), 8, 1), Ok(None));
        // The count goes round.
        assert_eq!(next_done(&ring(0, 3, 9), 8, u16::MAX), Ok(Some((3, 9))));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (ring, seen) in [
            (ring(1, 8, 1), 0),
            (ring(1, 1 << 16, 1), 0),
            (ring(10, 1, 1), 1),
            (ring(1, 1, 1), 2),
        ] {
            assert_eq!(next_done(&ring, 8, seen), Err(Malformed), "{seen}");
        }
    }

    #[test]
    fn a_descriptor_says_how_long_it_is_and_what_follows() {
        let bytes = described(0x0403_0201, FOLLOWED | WRITTEN, 7);
        assert_eq!(bytes, [1, 2, 3, 4, 3, 0, 7, 0]);
    }
}

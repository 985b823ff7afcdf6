//! The driver of QEMU's device for exercises, `edu`: registers, interrupts, and memory access of
//! its own. Serves [`service::EDU_FACTORIAL`] and [`service::EDU_COPY`] at the endpoint of its
//! group.
//!
//! All replicas run it. What it writes to registers is voted, and the primary writes it. Data goes
//! from a client's frame to transfer memory, where the device fetches it, and what the device
//! stored goes from the primary's transfer memory into a frame of all: the driver maps neither.
//! With a new primary a transfer begins again.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, layout, service};
use rcoe_user::{Received, accept, object, pci, println, recv, reply_recv};

rcoe_user::program!(main);

const DEVICE: u64 = service::SLOT_DEVICE;

/// Own slots: the frames of a client.
const CLIENT: u64 = service::SLOT_FREE;

/// In device memory: what the device fetches, and what it stores.
const OUT: u64 = layout::EDU_TRANSFER;
const IN: u64 = OUT + PAGE;

/// Vendor and device on the bus, and what the device says of itself.
const IDENTITY: u64 = 0x11e8_1234;
const HERE: u64 = 0x0100_00ed;

/// Registers.
mod register {
    use rcoe_abi::layout::EDU_REGISTERS;

    pub(crate) const IDENTITY: u64 = EDU_REGISTERS;
    pub(crate) const LIVENESS: u64 = EDU_REGISTERS + 0x04;
    pub(crate) const FACTORIAL: u64 = EDU_REGISTERS + 0x08;
    pub(crate) const STATUS: u64 = EDU_REGISTERS + 0x20;
    pub(crate) const RAISED: u64 = EDU_REGISTERS + 0x24;
    pub(crate) const LOWER: u64 = EDU_REGISTERS + 0x64;
    pub(crate) const SOURCE: u64 = EDU_REGISTERS + 0x80;
    pub(crate) const TARGET: u64 = EDU_REGISTERS + 0x88;
    pub(crate) const COUNT: u64 = EDU_REGISTERS + 0x90;
    pub(crate) const COMMAND: u64 = EDU_REGISTERS + 0x98;
}

/// In the status: interrupt when a factorial is done. Interrupts: that, and the end of a transfer.
const INTERRUPT: u64 = 0x80;
/// In the status: it computes.
const COMPUTES: u64 = 1;
const COMPUTED: u64 = 1;
const MOVED: u64 = 0x100;
/// Commands: move; towards memory; interrupt at the end.
const MOVE: u64 = 1;
const STORE: u64 = 2;
const TELL: u64 = 4;
/// The device's own memory, as the device counts.
const BUFFER: u64 = 0x4_0000;

/// Times that a transfer is begun anew because the primary changed.
const ATTEMPTS: u32 = 8;
/// Interrupts that may be of no use before the device counts as broken.
const IN_VAIN: u32 = 64;

fn main(_argument: u64) -> u64 {
    if let Err(error) = begin() {
        println!("edu: no device, or one that does not work ({error:?})");
        return 1;
    }
    let mut message = recv(service::SLOT_PEER);
    loop {
        let answer = match message.label {
            service::EDU_FACTORIAL => factorial(message.words[0]),
            service::EDU_COPY => copy(&message),
            _ => Err(Error::IllegalOperation),
        };
        message = match answer {
            Ok(word) => reply_recv(service::SLOT_PEER, 0, &[word]),
            Err(error) => reply_recv(service::SLOT_PEER, error as u64, &[]),
        };
    }
}

/// Finds the device, places it, and makes sure that it is there.
fn begin() -> Result<(), Error> {
    let slot = layout::EDU_SLOT;
    if pci::read(slot, pci::IDENTITY)? != IDENTITY {
        return Err(Error::FailedLookup);
    }
    pci::write(slot, pci::BASE, u64::from(layout::PCI_WINDOW))?;
    pci::write(slot, pci::COMMAND, pci::MEMORY | pci::MASTER)?;
    let present = object::device_status(DEVICE, register::IDENTITY, 4)? == HERE;
    object::device_set(DEVICE, register::LIVENESS, 4, 0x1234_5678)?;
    let alive = object::device_status(DEVICE, register::LIVENESS, 4)? == 0xedcb_a987;
    if !present || !alive {
        return Err(Error::FailedLookup);
    }
    object::device_set(DEVICE, register::STATUS, 4, INTERRUPT)?;
    object::irq_notification(service::SLOT_IRQ, service::SLOT_NOTIFICATION)?;
    accept(service::SLOT_CNODE, CLIENT, 2);
    Ok(())
}

/// Waits for one of the device's interrupts. There may be more than the device made: a new primary
/// raises those that its predecessor may have taken.
fn wait_for(interrupt: u64) -> Result<(), Error> {
    for _ in 0..IN_VAIN {
        let _ = recv(service::SLOT_NOTIFICATION);
        let raised = object::device_status(DEVICE, register::RAISED, 4)?;
        if raised != 0 {
            object::device_set(DEVICE, register::LOWER, 4, raised)?;
        }
        object::irq_ack(service::SLOT_IRQ)?;
        if raised & interrupt != 0 {
            return Ok(());
        }
    }
    Err(Error::IllegalOperation)
}

fn factorial(number: u64) -> Result<u64, Error> {
    object::device_set(DEVICE, register::FACTORIAL, 4, number)?;
    finish(COMPUTED, register::STATUS, COMPUTES)?;
    object::device_status(DEVICE, register::FACTORIAL, 4)
}

/// Waits for an interrupt until the device is no longer at it. A new primary may have told it to
/// begin once more.
fn finish(interrupt: u64, state: u64, busy: u64) -> Result<(), Error> {
    for _ in 0..IN_VAIN {
        wait_for(interrupt)?;
        if object::device_status(DEVICE, state, 4)? & busy == 0 {
            return Ok(());
        }
    }
    Err(Error::IllegalOperation)
}

/// Copies a client's frame to another one by way of the device's own memory.
fn copy(message: &Received) -> Result<u64, Error> {
    let copied = if message.caps == 2 {
        copy_frames(message.words[0])
    } else {
        Err(Error::InvalidCapability)
    };
    for slot in [CLIENT, CLIENT + 1] {
        object::delete(service::SLOT_CNODE, slot)?;
    }
    copied
}

fn copy_frames(bytes: u64) -> Result<u64, Error> {
    let whole = bytes.next_multiple_of(8);
    if whole > service::EDU_BYTES as u64 {
        return Err(Error::RangeError);
    }
    object::copy_out(DEVICE, OUT, CLIENT, 0, whole)?;
    for _ in 0..ATTEMPTS {
        let fetched = fetch(whole)?;
        let stored = store(whole)?;
        // What it fetched from a primary that was lost may be anything.
        if fetched == stored && object::copy_in(DEVICE, IN, CLIENT + 1, whole, stored)? {
            return Ok(bytes);
        }
    }
    Err(Error::IllegalOperation)
}

/// Has the device fetch; the generation of the primary from whose memory.
fn fetch(bytes: u64) -> Result<u64, Error> {
    let generation = object::device_address(DEVICE, register::SOURCE, OUT)?;
    object::device_set(DEVICE, register::TARGET, 8, BUFFER)?;
    run(bytes, MOVE | TELL)?;
    Ok(generation)
}

/// Has the device store; the generation of the primary into whose memory.
fn store(bytes: u64) -> Result<u64, Error> {
    object::device_set(DEVICE, register::SOURCE, 8, BUFFER)?;
    let generation = object::device_address(DEVICE, register::TARGET, IN)?;
    run(bytes, MOVE | STORE | TELL)?;
    Ok(generation)
}

fn run(bytes: u64, command: u64) -> Result<(), Error> {
    object::device_set(DEVICE, register::COUNT, 8, bytes)?;
    object::device_set(DEVICE, register::COMMAND, 8, command)?;
    finish(MOVED, register::COMMAND, MOVE)
}

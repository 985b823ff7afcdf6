//! The driver of QEMU's device for exercises, `edu`: registers, interrupts, and memory access of
//! its own. Serves [`service::EDU_FACTORIAL`] and [`service::EDU_COPY`] at the endpoint of its
//! group.
//!
//! All replicas run it. What it writes to registers is voted, and the primary writes it; the device
//! fetches data from the primary's memory, which was voted too, and stores data there, which the
//! kernel then gives to all. With a new primary a transfer begins again.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{Error, ObjectType, Rights, layout, service};
use rcoe_user::share::Page;
use rcoe_user::{Received, accept, make, object, pci, println, recv, reply_recv};

rcoe_user::program!(main);

const DEVICE: u64 = service::SLOT_DEVICE;

/// Own slots: the frames that the device fetches from and stores into, then those of a client.
const FETCHED: u64 = service::SLOT_FREE;
const STORED: u64 = FETCHED + 1;
const CLIENT: u64 = FETCHED + 2;

/// Where they are mapped.
const OUT: Page = Page(0);
const IN: Page = Page(1);
const SOURCE: Page = Page(2);
const TARGET: Page = Page(3);

/// Vendor and device on the bus, and what the device says of itself.
const IDENTITY: u64 = 0x11e8_1234;
const HERE: u64 = 0x0100_00ed;

/// Registers.
mod register {
    pub(crate) const IDENTITY: u64 = 0;
    pub(crate) const LIVENESS: u64 = 0x04;
    pub(crate) const FACTORIAL: u64 = 0x08;
    pub(crate) const STATUS: u64 = 0x20;
    pub(crate) const RAISED: u64 = 0x24;
    pub(crate) const LOWER: u64 = 0x64;
    pub(crate) const SOURCE: u64 = 0x80;
    pub(crate) const TARGET: u64 = 0x88;
    pub(crate) const COUNT: u64 = 0x90;
    pub(crate) const COMMAND: u64 = 0x98;
}

/// In the status: interrupt when a factorial is done. Interrupts: that, and the end of a transfer.
const INTERRUPT: u64 = 0x80;
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
    object::device_write(DEVICE, register::LIVENESS, 4, 0x1234_5678)?;
    let alive = object::device_status(DEVICE, register::LIVENESS, 4)? == 0xedcb_a987;
    if !present || !alive {
        return Err(Error::FailedLookup);
    }
    object::device_write(DEVICE, register::STATUS, 4, INTERRUPT)?;
    object::irq_notification(service::SLOT_IRQ, service::SLOT_NOTIFICATION)?;
    for (slot, page) in [(FETCHED, OUT), (STORED, IN)] {
        if !make(ObjectType::Frame, slot) {
            return Err(Error::NotEnoughMemory);
        }
        page.map(slot, Rights::READ_WRITE)?;
    }
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
            object::device_write(DEVICE, register::LOWER, 4, raised)?;
        }
        object::irq_ack(service::SLOT_IRQ)?;
        if raised & interrupt != 0 {
            return Ok(());
        }
    }
    Err(Error::IllegalOperation)
}

fn factorial(number: u64) -> Result<u64, Error> {
    object::device_write(DEVICE, register::FACTORIAL, 4, number)?;
    wait_for(COMPUTED)?;
    object::device_status(DEVICE, register::FACTORIAL, 4)
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
    let mut data = [0; service::EDU_BYTES];
    let len = usize::try_from(bytes).map_err(|_| Error::RangeError)?;
    let data = data.get_mut(..len).ok_or(Error::RangeError)?;
    SOURCE.map(CLIENT, Rights::READ)?;
    TARGET.map(CLIENT + 1, Rights::READ_WRITE)?;
    SOURCE.read(data);
    // The device may write whatever it knows the address of: its frames are none of the clients'.
    OUT.write(data);
    let whole = bytes.next_multiple_of(8);
    for _ in 0..ATTEMPTS {
        let fetched = fetch(whole)?;
        let stored = store(whole)?;
        // What it fetched last from a primary that was lost was not voted.
        if fetched == stored && object::replicate(STORED, 0, whole, stored)? {
            IN.read(data);
            TARGET.write(data);
            return Ok(bytes);
        }
    }
    Err(Error::IllegalOperation)
}

/// Has the device fetch from the one frame; the generation of the primary whose frame that was.
fn fetch(bytes: u64) -> Result<u64, Error> {
    let generation = object::device_address(DEVICE, register::SOURCE, FETCHED, 0, bytes)?;
    object::device_write(DEVICE, register::TARGET, 8, BUFFER)?;
    run(bytes, MOVE | TELL)?;
    Ok(generation)
}

/// Has the device store into the other frame; the generation as above.
fn store(bytes: u64) -> Result<u64, Error> {
    object::device_write(DEVICE, register::SOURCE, 8, BUFFER)?;
    let generation = object::device_address(DEVICE, register::TARGET, STORED, 0, 0)?;
    run(bytes, MOVE | STORE | TELL)?;
    Ok(generation)
}

fn run(bytes: u64, command: u64) -> Result<(), Error> {
    object::device_write(DEVICE, register::COUNT, 8, bytes)?;
    object::device_write(DEVICE, register::COMMAND, 8, command)?;
    wait_for(MOVED)
}

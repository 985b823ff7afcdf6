//! The driver of the network card, an RTL8139, for the TCP/IP stack of its group
//! ([`service::NIC_JOIN`] and what follows).
//!
//! All replicas run it. What it writes to registers is voted, and the primary writes it. What is to
//! be sent goes from the stack's frame into the transfer memory of each replica, and its digest
//! into the trace; the card fetches it when it is told its length, which is voted. What the card
//! received lies in a ring in the primary's transfer memory and comes from there into frames of
//! all. The driver looks at neither.
//!
//! The card moves data to and from the memory of one primary. With another *generation* the driver
//! tells it again where that is. If the card's register holds what it held before, a follower was
//! lost or is back, and all goes on. Else there is a new primary, and the card is reset: what it
//! held is lost, as frames may be, and TCP sends it again.
//!
//! The card's own timer is the stack's alarm: all that it takes can be written twice, which is not
//! so with the machine's.
//!
//! The card is asked what it wants until it wants nothing: where the line's edge triggers its
//! interrupt, there is none for what was wanted all the time. That it wants nothing is asked
//! twice ([`rcoe_user::quiet`]).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::object::PAGE;
use rcoe_abi::service::{NIC_FRAMES, NIC_RING};
use rcoe_abi::{Error, ObjectType, Rights, layout, service};
use rcoe_user::network::{FRAME_MAX, FRAME_MIN, Shown, ring};
use rcoe_user::quiet::Quiet;
use rcoe_user::registers::{set, status, wait_for};
use rcoe_user::{Received, line, make, object, pci, println, recv, reply_recv, send};

rcoe_user::program!(main);

const DEVICE: u64 = service::SLOT_DEVICE;

/// Own slots: the endpoint, what others get of it, the notification to be signalled, the frame of
/// what is sent, and those of what was received.
const REQUESTS: u64 = service::SLOT_FREE;
const REQUESTER: u64 = REQUESTS + 1;
const SIGNAL: u64 = REQUESTS + 2;
const SENT: u64 = REQUESTS + 3;
const RECEIVED: u64 = REQUESTS + 4;

/// Badge of the card's interrupts, which the root task gave, and of the stack.
const INTERRUPT: u64 = 1;
const STACK: u64 = 2;

/// In device memory: the ring with the room behind it, then a place for each frame that goes out.
const RING: u64 = layout::NIC_TRANSFER;
const OUT: u64 = RING + NIC_FRAMES * PAGE;
const PLACES: u64 = 4;
const PLACE: u64 = 2048;
const _: () = assert!(NIC_RING as u64 + ring::BEHIND as u64 <= NIC_FRAMES * PAGE);
const _: () = assert!(NIC_FRAMES + PLACES * PLACE / PAGE <= layout::NIC_TRANSFER_PAGES);

/// Vendor and device on the bus, and the register of the base address of the card's memory.
const IDENTITY: u64 = 0x8139_10ec;
const BASE: u64 = pci::BASE + 4;

/// Registers.
mod register {
    use rcoe_abi::layout::NIC_REGISTERS;

    pub(crate) const ADDRESS: u64 = NIC_REGISTERS;
    pub(crate) const SEND: u64 = NIC_REGISTERS + 0x10;
    pub(crate) const SOURCE: u64 = NIC_REGISTERS + 0x20;
    pub(crate) const RING: u64 = NIC_REGISTERS + 0x30;
    pub(crate) const COMMAND: u64 = NIC_REGISTERS + 0x37;
    /// Up to where the ring was read, less [`super::READ_LESS`]; and up to where it was written.
    pub(crate) const READ: u64 = NIC_REGISTERS + 0x38;
    pub(crate) const WRITTEN: u64 = NIC_REGISTERS + 0x3a;
    pub(crate) const MASK: u64 = NIC_REGISTERS + 0x3c;
    pub(crate) const RAISED: u64 = NIC_REGISTERS + 0x3e;
    pub(crate) const SENDING: u64 = NIC_REGISTERS + 0x40;
    pub(crate) const RECEIVING: u64 = NIC_REGISTERS + 0x44;
    pub(crate) const COUNTER: u64 = NIC_REGISTERS + 0x48;
    pub(crate) const ALARM: u64 = NIC_REGISTERS + 0x54;
}

/// Commands: reset; receive and send.
const RESET: u64 = 0x10;
const RUN: u64 = 0x0c;
/// Where a frame goes out: the card is done with it.
const DONE: u64 = 1 << 13;
/// Sends in bursts of 1024 bytes with the usual gap.
const SENDING: u64 = 0x0300_0600;
/// Receives what is for this card or for all, unbounded bursts, a ring of 16 KiB behind which
/// there is room.
const RECEIVING: u64 = 0xef8a;
/// Interrupts: a frame came, one came that is damaged, the alarm.
const CAME: u64 = 1;
const DAMAGED: u64 = 2;
const RANG: u64 = 1 << 14;
/// See [`register::READ`].
const READ_LESS: u64 = 16;
/// Ticks of the card's counter in a microsecond; the most microseconds that it counts.
const TICKS: u64 = 33;
const LONGEST: u64 = 100_000_000;

/// Times that the card is told anew because the primary changed, and looks at a register before the
/// card counts as broken.
const ATTEMPTS: u32 = 8;
const PATIENCE: u32 = 1000;

fn main(_argument: u64) -> u64 {
    let (mut card, address) = match Card::find() {
        Ok(found) => found,
        Err(Error::FailedLookup) => {
            send(service::SLOT_PEER, service::NIC_ABSENT, &[]);
            return 1;
        }
        Err(error) => {
            println!("rtl8139: the card does not work ({error:?})");
            send(service::SLOT_PEER, service::NIC_ABSENT, &[]);
            return 1;
        }
    };
    if let Err(error) = join(address) {
        println!("rtl8139: the stack cannot be reached ({error:?})");
        return 1;
    }
    let mut message = recv(REQUESTS);
    loop {
        if message.badge == INTERRUPT {
            if let Err(error) = card.interrupted() {
                println!("rtl8139: the card is stuck ({error:?})");
            }
            message = recv(REQUESTS);
            continue;
        }
        message = match card.serve(&message) {
            Ok([first, second]) => reply_recv(REQUESTS, 0, &[first, second]),
            Err(error) => reply_recv(REQUESTS, error as u64, &[]),
        };
    }
}

/// Gives the stack what it needs, and learns what to signal.
fn join(address: u64) -> Result<(), Error> {
    let table = service::SLOT_CNODE;
    let made = make(ObjectType::Endpoint, REQUESTS) && make(ObjectType::Frame, SENT);
    let frames = (0..NIC_FRAMES).all(|index| make(ObjectType::Frame, RECEIVED + index));
    if !made || !frames {
        return Err(Error::NotEnoughMemory);
    }
    object::mint(table, REQUESTER, REQUESTS, Rights::WRITE, STACK)?;
    object::irq_notification(service::SLOT_IRQ, service::SLOT_NOTIFICATION)?;
    object::bind(service::SLOT_TCB, service::SLOT_NOTIFICATION)?;
    let shown = Shown {
        requester: REQUESTER,
        sent: SENT,
        received: RECEIVED,
    };
    shown.join(address, SIGNAL)
}

/// The card, as far as it was told.
struct Card {
    /// Of the primary whose memory it knows.
    generation: u64,
    /// Up to where the ring was read.
    read: u64,
    /// The place of the next frame that goes out.
    place: u64,
}

impl Card {
    /// Finds the card, places it, and has it run; its address in the network.
    fn find() -> Result<(Self, u64), Error> {
        let slot = layout::NIC_SLOT;
        if pci::read(slot, pci::IDENTITY)? != IDENTITY {
            return Err(Error::FailedLookup);
        }
        let base = u64::from(layout::PCI_WINDOW) + layout::NIC_PAGE * PAGE;
        pci::write(slot, BASE, base)?;
        pci::write(slot, pci::COMMAND, pci::MEMORY | pci::MASTER)?;
        let mut card = Self {
            generation: 0,
            read: 0,
            place: 0,
        };
        card.reset()?;
        let low = status(register::ADDRESS, 4)?;
        let high = status(register::ADDRESS + 4, 4)?;
        Ok((card, low | (high & 0xffff) << 32))
    }

    /// Has it begin anew, with the memory of the present primary.
    fn reset(&mut self) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            set(register::COMMAND, 1, RESET)?;
            wait_for(register::COMMAND, 1, RESET, 0)?;
            let generation = object::device_address_short(DEVICE, register::RING, RING)?;
            let mut same = true;
            for place in 0..PLACES {
                same &= Self::tell(place)? == generation;
            }
            set(register::COMMAND, 1, RUN)?;
            set(register::RECEIVING, 4, RECEIVING)?;
            set(register::SENDING, 4, SENDING)?;
            set(register::READ, 2, 0x1_0000 - READ_LESS)?;
            set(register::MASK, 2, CAME | DAMAGED | RANG)?;
            (self.generation, self.read, self.place) = (generation, 0, 0);
            if same {
                return Ok(());
            }
        }
        Err(Error::IllegalOperation)
    }

    /// After a change among replicas: begins anew if there is a new primary, whose memory is
    /// elsewhere. What the register holds is compared, and used for nothing else.
    fn renew(&mut self) -> Result<(), Error> {
        let before = status(register::RING, 4)?;
        let generation = object::device_address_short(DEVICE, register::RING, RING)?;
        if status(register::RING, 4)? != before {
            return self.reset_and_tell();
        }
        self.generation = generation;
        Ok(())
    }

    /// Tells the card where a frame that goes out is; the generation of the primary whose memory
    /// that is.
    fn tell(place: u64) -> Result<u64, Error> {
        let register = register::SOURCE + 4 * place;
        object::device_address_short(DEVICE, register, OUT + place * PLACE)
    }

    /// The card wants something, or a new primary cannot know whether it does.
    fn interrupted(&mut self) -> Result<(), Error> {
        let wanted = line::attend(Self::quieten)?;
        if wanted.is_none() {
            self.reset()?;
        } else if wanted == Some(false) {
            // Nothing came, so nothing else would show soon that there is a new primary.
            self.renew()?;
        }
        signal();
        Ok(())
    }

    /// Acknowledges all that the card wants, until it wants nothing. Tells whether a frame came, if
    /// it came to an end.
    fn quieten() -> Result<Option<bool>, Error> {
        let (mut came, mut quiet) = (false, Quiet::default());
        for _ in 0..PATIENCE {
            let raised = status(register::RAISED, 2)?;
            let wanted = raised & (CAME | DAMAGED | RANG) != 0;
            if quiet.after(wanted) {
                return Ok(Some(came));
            }
            if !wanted {
                continue;
            }
            came |= raised & CAME != 0;
            set(register::RAISED, 2, raised)?;
            if raised & RANG != 0 {
                // Once is enough.
                set(register::ALARM, 4, 0)?;
            }
        }
        Ok(None)
    }

    fn serve(&mut self, message: &Received) -> Result<[u64; 2], Error> {
        match message.label {
            service::NIC_RECEIVE => self.receive(),
            service::NIC_SEND => self.send(message.words[0]).map(|()| [0; 2]),
            service::NIC_ALARM => {
                let ticks = message.words[0].clamp(1, LONGEST) * TICKS;
                set(register::COUNTER, 4, 0)?;
                set(register::ALARM, 4, ticks)?;
                Ok([0; 2])
            }
            service::NIC_RESET => self.reset_and_tell().map(|()| [0; 2]),
            _ => Err(Error::IllegalOperation),
        }
    }

    /// A reset ends the stack's alarm too.
    fn reset_and_tell(&mut self) -> Result<(), Error> {
        self.reset()?;
        signal();
        Ok(())
    }

    /// Takes over what came; from where to where in the ring.
    fn receive(&mut self) -> Result<[u64; 2], Error> {
        for _ in 0..ATTEMPTS {
            let first = self.read;
            let end = status(register::WRITTEN, 2)?;
            if end == first {
                return Ok([first; 2]);
            }
            if end >= NIC_RING as u64 {
                self.reset_and_tell()?;
            } else if self.copy(first, end)? {
                self.read = end;
                let told = end.wrapping_sub(READ_LESS) & 0xffff;
                set(register::READ, 2, told)?;
                return Ok([first, end]);
            } else {
                self.renew()?;
            }
        }
        Err(Error::IllegalOperation)
    }

    /// Copies what is between two places of the ring, where that is the card's word, into frames of
    /// all. Tells whether it is the present primary's.
    fn copy(&self, first: u64, end: u64) -> Result<bool, Error> {
        let place = |word: u64| usize::try_from(word).map_err(|_| Error::RangeError);
        for (first, end) in ring::pieces(place(first)?, place(end)?) {
            let (mut next, end) = (first as u64, end as u64);
            while next < end {
                let bytes = (PAGE - next % PAGE).min(end - next);
                let to = (RECEIVED + next / PAGE, next % PAGE);
                let generation = self.generation;
                if !object::copy_in_at(DEVICE, RING + next, to, bytes, generation)? {
                    return Ok(false);
                }
                next += bytes;
            }
        }
        Ok(true)
    }

    fn send(&mut self, bytes: u64) -> Result<(), Error> {
        if !(FRAME_MIN as u64..=FRAME_MAX as u64).contains(&bytes) {
            return Err(Error::RangeError);
        }
        for _ in 0..ATTEMPTS {
            let place = self.place;
            let register = register::SEND + 4 * place;
            if wait_for(register, 4, DONE, DONE).is_err() {
                self.reset_and_tell()?;
                continue;
            }
            let whole = bytes.next_multiple_of(8);
            object::copy_out(DEVICE, OUT + place * PLACE, SENT, 0, whole)?;
            if Self::tell(place)? != self.generation {
                self.renew()?;
                continue;
            }
            // The output itself: voted, and then the card fetches.
            set(register, 4, bytes)?;
            self.place = (place + 1) % PLACES;
            return Ok(());
        }
        Err(Error::IllegalOperation)
    }
}

/// Has the stack look.
fn signal() {
    send(SIGNAL, 0, &[]);
}

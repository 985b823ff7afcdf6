//! The driver of a network card that is a virtio network device (Virtual I/O Device version 1.2,
//! section 5.1), for the TCP/IP stack of its group ([`service::NIC_JOIN`] and what follows).
//!
//! All replicas run it. The card finds frames by descriptors in the transfer memory of one primary
//! ([`rcoe_user::virtio`]). What is to be sent goes from the stack's frame into that of each
//! replica, and its digest into the trace; all agree before the descriptor is handed over. What
//! came lies in buffers in the primary's, and is copied from there into frames of all.
//!
//! With another *generation* the driver looks whether there is a new primary. If so, the card is
//! reset: what it held is lost, as frames may be, and TCP sends it again. Else a follower was lost
//! or is back, and all goes on.
//!
//! The stack knows what came as the image of another card's ring ([`rcoe_user::network::ring`]).
//! There each buffer stands at its place, and the driver writes that ring's header where the end of
//! the card's own was.
//!
//! Not covered: what such a card could do beside: checksums, segments, several queues.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::ops::RangeInclusive;

use rcoe_abi::object::PAGE;
use rcoe_abi::service::{NIC_FRAMES, NIC_RING};
use rcoe_abi::{Error, ObjectType, Rights, layout, service};
use rcoe_user::alarm::{self, Alarm};
use rcoe_user::network::{FRAME_MAX, FRAME_MIN, Shown};
use rcoe_user::object::Outcome;
use rcoe_user::quiet::Quiet;
use rcoe_user::registers::{set, status};
use rcoe_user::share::{BYTES, Page};
use rcoe_user::virtio::{DESCRIPTOR, FOLLOWED, Queue, Virtio, WRITTEN, described, next_done};
use rcoe_user::{Received, line, make, object, println, recv, reply_recv, send};

rcoe_user::program!(main);

const DEVICE: u64 = service::SLOT_DEVICE;

/// Own slots: the endpoint, what the stack gets of it, what the driver waits at and by what it is
/// signalled, what it signals; the frame of what is sent, those of what goes into transfer memory
/// and what came from there, those of what was received; and those of the alarm.
const REQUESTS: u64 = service::SLOT_FREE;
const REQUESTER: u64 = REQUESTS + 1;
const WAKE: u64 = REQUESTS + 2;
const INTERRUPTED: u64 = REQUESTS + 3;
const RANG: u64 = REQUESTS + 4;
const SIGNAL: u64 = REQUESTS + 5;
const SENT: u64 = REQUESTS + 6;
const TOLD: u64 = REQUESTS + 7;
const SAID: u64 = REQUESTS + 8;
const RECEIVED: u64 = REQUESTS + 9;
const ALARM: u64 = RECEIVED + NIC_FRAMES;
const _: () = assert!(ALARM + alarm::SLOTS <= 1 << service::CNODE_BITS);

/// Pages of the window: what goes into transfer memory, what came from there, what was received.
const TELLING: Page = Page(0);
const SAYING: Page = Page(1);
const CAME: Page = Page(2);

/// Badges: signals, and the stack.
const BY_INTERRUPT: u64 = 1;
const BY_ALARM: u64 = 2;
const STACK: u64 = 4;
/// The alarm's priority: the driver's own, as none can be higher.
const PRIORITY: u64 = 30;
/// Microseconds of a tick of the interval timer.
const TICK: u64 = 10_000;

/// Such a card among virtio devices, and a feature: it has an address.
const KIND: u64 = 1;
const ADDRESS: u64 = 1 << 5;

/// In device memory: buffers for what comes, a page for the queues, and a place for each frame that
/// goes out.
const BUFFERS: u64 = layout::NIC_TRANSFER;
const BUFFER: u32 = 2048;
const QUEUES: u64 = BUFFERS + NIC_RING as u64;
const OUT: u64 = QUEUES + PAGE;
const PLACES: u16 = 4;
const PLACE: u64 = 2048;
const _: () = assert!(NIC_RING == COUNT * BUFFER as usize);
const _: () = assert!(OUT + PLACES as u64 * PLACE <= BUFFERS + layout::NIC_TRANSFER_PAGES * PAGE);

/// Queues: of what comes, and of what goes out; descriptors of each, of which a frame that goes out
/// takes two.
const INTO: usize = 0;
const OUTOF: usize = 1;
const SIZE: u16 = 8;
const COUNT: usize = SIZE as usize;
/// In the page of the queues: bytes from one queue to the next, and in each its descriptors, the
/// ring of what is asked and that of what is done; then the header of all that goes out.
const STRIDE: usize = 256;
const ASKED: usize = COUNT * DESCRIPTOR;
const ASKED_BYTES: usize = 24;
const DONE: usize = ASKED + ASKED_BYTES;
const DONE_BYTES: usize = 72;
const HEADER: usize = 2 * STRIDE;
const HEADER_BYTES: u32 = 12;
const END: usize = HEADER + 16;
/// Behind that the present primary stores where it has a queue.
const OWN: u64 = QUEUES + END as u64;
const _: () = assert!(DONE + DONE_BYTES <= STRIDE);

/// All buffers, by their descriptors; the first descriptors of frames that go out, each from its
/// place, one after the other.
const ALL: [u16; COUNT] = [0, 1, 2, 3, 4, 5, 6, 7];
const HEADS: [u16; COUNT] = [0, 2, 4, 6, 0, 2, 4, 6];
/// Bytes of frames that come, with the header.
const FRAMES: RangeInclusive<u32> = HEADER_BYTES + 1..=HEADER_BYTES + 1514;
const _: () = assert!(FRAME_MAX == 1514);
/// Of what is asked: no interrupt is wanted.
const SILENT: u16 = 1;
/// Where the stack's header is in a buffer, and what it says: the frame is good.
const STACKS: usize = 8;
const GOOD: u16 = 1;
/// Bytes of a checksum, which such a card leaves out.
const CHECKSUM: usize = 4;

/// Times that the card is told anew, and buffers that are handed back at once.
const ATTEMPTS: u32 = 8;
const AT_ONCE: u16 = 4;
/// Looks whether a frame is out before an interrupt is waited for, and interrupts and ticks before
/// the card counts as broken.
const SOON: u32 = 16;
const PATIENCE: u32 = 400;

fn main(_argument: u64) -> u64 {
    let found = Card::find().and_then(|card| Ok((card.address()?, card)));
    let (address, mut card) = match found {
        Ok(found) => found,
        Err(error) => {
            if error != Error::FailedLookup {
                println!("virtio-net: the card does not work ({error:?})");
            }
            send(service::SLOT_PEER, service::NIC_ABSENT, &[]);
            return 1;
        }
    };
    let shown = Shown {
        requester: REQUESTER,
        sent: SENT,
        received: RECEIVED,
    };
    if let Err(error) = shown.join(address, SIGNAL) {
        println!("virtio-net: the stack cannot be reached ({error:?})");
        return 1;
    }
    let mut message = recv(REQUESTS);
    loop {
        if message.badge & STACK == 0 {
            if let Err(error) = card.attend(message.badge) {
                println!("virtio-net: the card is stuck ({error:?})");
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

/// Makes what the driver, and the stack by it, waits at, is signalled by, and shares.
fn make_all() -> Outcome {
    let frames = [SENT, TOLD, SAID].into_iter().chain(RECEIVED..ALARM);
    let made = make(ObjectType::Endpoint, REQUESTS)
        && make(ObjectType::Notification, WAKE)
        && frames.into_iter().all(|slot| make(ObjectType::Frame, slot));
    if !made {
        return Err(Error::NotEnoughMemory);
    }
    let table = service::SLOT_CNODE;
    object::mint(table, REQUESTER, REQUESTS, Rights::WRITE, STACK)?;
    object::mint(table, INTERRUPTED, WAKE, Rights::ALL, BY_INTERRUPT)?;
    object::mint(table, RANG, WAKE, Rights::ALL, BY_ALARM)?;
    object::bind(service::SLOT_TCB, WAKE)?;
    TELLING.map(TOLD, Rights::READ_WRITE)?;
    SAYING.map(SAID, Rights::READ)?;
    for part in 0..NIC_FRAMES {
        Page(CAME.0 + part).map(RECEIVED + part, Rights::READ_WRITE)?;
    }
    object::irq_notification(service::SLOT_IRQ, INTERRUPTED)
}

/// A place in the page of the queues, in device memory.
const fn within(queue: usize, place: usize) -> u64 {
    QUEUES + (queue * STRIDE + place) as u64
}

/// A ring of what is asked, as it lies in transfer memory.
fn asked(flags: u16, count: u16, ring: &[u16; COUNT]) -> [u8; ASKED_BYTES] {
    let mut bytes = [0; ASKED_BYTES];
    let words = [flags, count].into_iter().chain(*ring);
    for (bytes, word) in bytes.chunks_exact_mut(2).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The ring by which frames go out, when so many were handed over.
fn going(flags: u16, count: u16) -> [u8; ASKED_BYTES] {
    asked(flags, count, &HEADS)
}

/// Puts bytes, whole words, into transfer memory.
fn tell(to: u64, bytes: &[u8]) -> Outcome {
    TELLING.write(bytes);
    object::copy_out(DEVICE, to, TOLD, 0, bytes.len() as u64)
}

/// The card, as far as it was told.
struct Card {
    virtio: Virtio,
    bells: [u64; 2],
    /// Of the primary whose memory it knows.
    generation: u64,
    /// Frames that came since the last reset; buffers that were handed over, which ones lately, and
    /// how many of them the card knows of.
    came: u16,
    given: u16,
    buffers: [u16; COUNT],
    known: u16,
    /// Frames that were handed over to go out, and those of which it is known that they did.
    sent: u16,
    out: u16,
    alarm: Alarm,
    /// Ticks until the stack is to be signalled, if it wants to be.
    left: u64,
}

impl Card {
    /// Finds the card, places it, and has it run.
    fn find() -> Result<Self, Error> {
        let (slot, page) = (layout::NIC_SLOT, layout::NIC_PAGE);
        let virtio = Virtio::find(slot, KIND, page, layout::NIC_REGISTERS)?;
        make_all()?;
        let mut card = Self {
            virtio,
            bells: [0; 2],
            generation: 0,
            came: 0,
            given: 0,
            buffers: ALL,
            known: 0,
            sent: 0,
            out: 0,
            alarm: Alarm::start(ALARM, RANG, PRIORITY)?,
            left: 0,
        };
        card.reset()?;
        Ok(card)
    }

    /// Its address in the network.
    fn address(&self) -> Result<u64, Error> {
        let own = self.virtio.own();
        Ok(status(own, 4)? | status(own + 4, 2)? << 32)
    }

    /// Has it begin anew, with the memory of the present primary and all buffers.
    fn reset(&mut self) -> Outcome {
        for _ in 0..ATTEMPTS {
            self.virtio.settle(ADDRESS)?;
            self.buffers = ALL;
            (self.came, self.given, self.known) = (0, SIZE, SIZE);
            (self.sent, self.out) = (0, 0);
            let mut generations = [self.lay_out()?, None, None];
            for queue in [INTO, OUTOF] {
                let (bell, generation) = self.virtio.place(&Queue {
                    number: queue as u64,
                    size: SIZE.into(),
                    descriptors: within(queue, 0),
                    asked: within(queue, ASKED),
                    done: within(queue, DONE),
                })?;
                self.bells[queue] = bell;
                generations[1 + queue] = generation;
            }
            self.virtio.run()?;
            let [first, second, third] = generations;
            if let Some(generation) = first
                && second == first
                && third == first
            {
                self.generation = generation;
                // Buffers are there from the beginning on, but it may look only when it is told.
                return self.ring(INTO);
            }
        }
        Err(Error::IllegalOperation)
    }

    /// Lays the queues out. The generation of the primary whose memory that is, if it was one all
    /// the time.
    fn lay_out(&self) -> Result<Option<u64>, Error> {
        let mut told = [0; END];
        let mut put = |queue: usize, place: usize, bytes: &[u8]| {
            let at = queue * STRIDE + place;
            told[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for index in 0..SIZE {
            let behind = usize::from(index) * DESCRIPTOR + 8;
            put(INTO, behind, &described(BUFFER, WRITTEN, 0));
            let header = described(HEADER_BYTES, FOLLOWED, index + 1);
            put(
                OUTOF,
                behind,
                if index % 2 == 0 { &header } else { &[0; 8] },
            );
        }
        put(INTO, ASKED, &asked(0, self.given, &self.buffers));
        put(OUTOF, ASKED, &going(SILENT, 0));
        tell(QUEUES, &told)?;
        let mut first = None;
        let mut same = true;
        for index in 0..u64::from(SIZE) {
            let out = match index % 2 {
                0 => QUEUES + HEADER as u64,
                _ => OUT + index / 2 * PLACE,
            };
            for (queue, target) in [(INTO, BUFFERS + index * u64::from(BUFFER)), (OUTOF, out)] {
                let at = within(queue, 0) + index * DESCRIPTOR as u64;
                let generation = object::store_address(DEVICE, at, target)?;
                same &= *first.get_or_insert(generation) == generation;
            }
        }
        Ok(first.filter(|_| same))
    }

    /// The card wants something, a new primary cannot know whether it does, or a tick is over.
    fn attend(&mut self, signals: u64) -> Outcome {
        if signals & BY_ALARM != 0 {
            self.tick();
        }
        if signals & BY_INTERRUPT != 0 {
            line::attend(|| self.virtio.quieten())?;
            if !self.fetch(INTO, 8)? {
                self.renew()?;
            }
            signal();
        }
        Ok(())
    }

    /// After a change among replicas: begins anew if there is a new primary, whose memory is
    /// elsewhere. Where the card was told that a queue is, and where that of the present primary
    /// is, is compared, and used for nothing else.
    fn renew(&mut self) -> Outcome {
        let generation = object::store_address(DEVICE, OWN, within(INTO, 0))?;
        let told = self.virtio.told(INTO as u64)?;
        let is_own = object::copy_in(DEVICE, OWN, SAID, 8, generation)?;
        let mut own = [0; 8];
        SAYING.read(&mut own);
        if !is_own || own != told.to_le_bytes() {
            return self.reset_and_tell();
        }
        self.generation = generation;
        Ok(())
    }

    /// Has the card interrupt when a frame is out, and waits for that, or for a tick.
    fn wait(&mut self) -> Outcome {
        tell(within(OUTOF, ASKED), &going(0, self.sent))?;
        if self.looks_empty()? {
            return Ok(());
        }
        self.alarm.set();
        let signals = recv(WAKE).badge;
        self.attend(signals)
    }

    fn tick(&mut self) {
        self.alarm.rang();
        match self.left {
            0 => {}
            1 => {
                self.left = 0;
                signal();
            }
            _ => {
                self.left -= 1;
                self.alarm.set();
            }
        }
    }

    /// Copies what is done of a queue, so many bytes of it, where all can read it. Tells whether
    /// that is the present primary's.
    fn fetch(&self, queue: usize, bytes: usize) -> Result<bool, Error> {
        let from = within(queue, DONE);
        object::copy_in(DEVICE, from, SAID, bytes as u64, self.generation)
    }

    fn serve(&mut self, message: &Received) -> Result<[u64; 2], Error> {
        match message.label {
            service::NIC_RECEIVE => self.receive(),
            service::NIC_SEND => self.send(message.words[0]).map(|()| [0; 2]),
            service::NIC_ALARM => {
                // The tick that is under way is no whole one.
                self.left = message.words[0].div_ceil(TICK) + 1;
                self.alarm.set();
                Ok([0; 2])
            }
            service::NIC_RESET => self.reset_and_tell().map(|()| [0; 2]),
            _ => Err(Error::IllegalOperation),
        }
    }

    fn reset_and_tell(&mut self) -> Outcome {
        self.reset()?;
        signal();
        Ok(())
    }

    /// Takes over the next frame that came; from where to where in the image of the ring.
    fn receive(&mut self) -> Result<[u64; 2], Error> {
        let mut quiet = Quiet::default();
        for _ in 0..ATTEMPTS {
            if !self.fetch(INTO, DONE_BYTES)? {
                self.renew()?;
                continue;
            }
            let mut ring = [0; DONE_BYTES];
            SAYING.read(&mut ring);
            match next_done(&ring, SIZE, self.came) {
                Ok(None) if quiet.after(false) => {
                    self.give_back()?;
                    return Ok([0; 2]);
                }
                Ok(None) => {}
                Ok(Some((buffer, bytes))) if FRAMES.contains(&bytes) => {
                    match self.copy(buffer, bytes)? {
                        Some(frame) => return Ok(frame),
                        None => self.renew()?,
                    }
                }
                Ok(Some(_)) | Err(_) => self.reset_and_tell()?,
            }
        }
        Err(Error::IllegalOperation)
    }

    /// Copies a frame out of its buffer, which may be had again; where it is in the image of the
    /// ring, unless the card said so to a primary that is no more.
    fn copy(&mut self, buffer: u16, bytes: u32) -> Result<Option<[u64; 2]>, Error> {
        let len = (bytes - HEADER_BYTES) as usize;
        let at = usize::from(buffer) * BUFFER as usize;
        let from = BUFFERS + at as u64;
        let to = (RECEIVED + (at / BYTES) as u64, (at % BYTES) as u64);
        let whole = u64::from(bytes).next_multiple_of(8);
        if !object::copy_in_at(DEVICE, from, to, whole, self.generation)? {
            return Ok(None);
        }
        let place = at + STACKS;
        let taken = frame(place, len);
        self.came = self.came.wrapping_add(1);
        self.buffers[usize::from(self.given % SIZE)] = buffer;
        self.given = self.given.wrapping_add(1);
        if self.given.wrapping_sub(self.known) >= AT_ONCE {
            self.give_back()?;
        }
        Ok(Some([place as u64, (place + taken) as u64]))
    }

    /// Tells the card that a queue has something for it.
    fn ring(&self, queue: usize) -> Outcome {
        set(self.bells[queue], 2, queue as u64)
    }

    /// Hands buffers over that were copied out.
    fn give_back(&mut self) -> Outcome {
        if self.known == self.given {
            return Ok(());
        }
        self.known = self.given;
        tell(within(INTO, ASKED), &asked(0, self.given, &self.buffers))?;
        self.ring(INTO)
    }

    fn send(&mut self, bytes: u64) -> Outcome {
        if !(FRAME_MIN as u64..=FRAME_MAX as u64).contains(&bytes) {
            return Err(Error::RangeError);
        }
        let len = u32::try_from(bytes).map_err(|_| Error::RangeError)?;
        for _ in 0..ATTEMPTS {
            if !self.has_place()? {
                self.reset_and_tell()?;
                continue;
            }
            let place = self.sent % PLACES;
            let behind = usize::from(HEADS[usize::from(place)]) + 1;
            let descriptor = within(OUTOF, behind * DESCRIPTOR);
            let out = OUT + u64::from(place) * PLACE;
            let whole = bytes.next_multiple_of(8);
            object::copy_out(DEVICE, out, SENT, 0, whole)?;
            tell(descriptor + 8, &described(len, 0, 0))?;
            if object::store_address(DEVICE, descriptor, out)? != self.generation {
                self.renew()?;
                continue;
            }
            // The output itself: from here on the card may fetch it, so all agree before.
            self.virtio.choose(OUTOF as u64)?;
            self.sent = self.sent.wrapping_add(1);
            tell(within(OUTOF, ASKED), &going(SILENT, self.sent))?;
            return self.ring(OUTOF);
        }
        Err(Error::IllegalOperation)
    }

    /// Waits until the next place is empty again; false if the card does not say so.
    fn has_place(&mut self) -> Result<bool, Error> {
        for look in 0..SOON + PATIENCE {
            if self.looks_empty()? {
                return Ok(true);
            }
            if look >= SOON {
                self.wait()?;
            }
        }
        Ok(false)
    }

    /// Looks whether the next place is empty. What the card says to a primary that is no more, or
    /// without sense, has it begin anew.
    fn looks_empty(&mut self) -> Result<bool, Error> {
        if self.sent.wrapping_sub(self.out) < PLACES {
            return Ok(true);
        }
        let mut ring = [0; 8];
        if !self.fetch(OUTOF, ring.len())? {
            self.renew()?;
            return Ok(self.sent == self.out);
        }
        SAYING.read(&mut ring);
        let out = u16::from_le_bytes([ring[2], ring[3]]);
        if out.wrapping_sub(self.out) > PLACES {
            self.reset_and_tell()?;
        } else {
            self.out = out;
        }
        Ok(self.sent.wrapping_sub(self.out) < PLACES)
    }
}

/// Makes what lies there a frame of the image of the ring, which has a header before it, and zeros
/// behind it if it is shorter than frames are. How much it takes.
fn frame(place: usize, len: usize) -> usize {
    for next in len..FRAME_MIN {
        put(place + 4 + next, &[0]);
    }
    let whole = len.max(FRAME_MIN) + CHECKSUM;
    let [state, _] = GOOD.to_le_bytes();
    let [low, high, ..] = whole.to_le_bytes();
    put(place, &[state, 0, low, high]);
    (4 + whole).next_multiple_of(4)
}

/// Writes a few bytes within one word into the image of the ring.
fn put(at: usize, bytes: &[u8]) {
    let (page, index) = (CAME.0 + (at / BYTES) as u64, at % BYTES / 8);
    let mut word = rcoe_user::window_word(page, index).to_le_bytes();
    word[at % 8..at % 8 + bytes.len()].copy_from_slice(bytes);
    rcoe_user::set_window_word(page, index, u64::from_le_bytes(word));
}

/// Has the stack look.
fn signal() {
    send(SIGNAL, 0, &[]);
}

//! The driver of the disk, a virtio block device (Virtual I/O Device version 1.2, sections 4.1 and
//! 5.2), for one client of its group ([`service::DISK_JOIN`] and what follows).
//!
//! All replicas run it. What it writes to registers is voted, and the primary writes it. What is
//! to be written goes to the transfer memory of each replica, as do the descriptors of a request
//! ([`rcoe_user::virtio`]), and its digest into the trace. Then there is a vote, and only then is
//! the request handed over.
//!
//! There is one request at a time. The device moves data to and from the memory of one primary.
//! With another *generation* it is reset, told where things are now, and asked again: a block that
//! is written twice is as good as one that is written once.
//!
//! Contract: a client is answered that something was written or made to last only if the device
//! said so to the present primary.
//!
//! Not covered: more than one request at a time, and a device that never answers.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::object::PAGE;
use rcoe_abi::service::DISK_BLOCK;
use rcoe_abi::{Error, ObjectType, Rights, layout, service};
use rcoe_user::quiet::Quiet;
use rcoe_user::registers::{set, status};
use rcoe_user::share::Page;
use rcoe_user::virtio::{DESCRIPTOR, FOLLOWED, Queue, Virtio, WRITTEN, described};
use rcoe_user::{Received, call_with, line, make, object, println, recv, reply_recv, send};

rcoe_user::program!(main);

const DEVICE: u64 = service::SLOT_DEVICE;

/// Own slots: the endpoint, what the client gets of it, and the frames of data, of what goes into
/// transfer memory, and of what came from there.
const REQUESTS: u64 = service::SLOT_FREE;
const REQUESTER: u64 = REQUESTS + 1;
const DATA: u64 = REQUESTS + 2;
const TOLD: u64 = REQUESTS + 3;
const SAID: u64 = REQUESTS + 4;

/// Pages of the window: those two frames.
const TELLING: Page = Page(0);
const SAYING: Page = Page(1);

/// Badge of the client.
const CLIENT: u64 = 1;

/// In device memory: a page for the queue, and one for data.
const QUEUE: u64 = layout::DISK_TRANSFER;
const BLOCK: u64 = QUEUE + PAGE;
const _: () = assert!(layout::DISK_TRANSFER_PAGES >= 2 && DISK_BLOCK as u64 == PAGE);

/// In the page of the queue, in bytes from its beginning: descriptors, the request's header, its
/// status, the ring of what is asked, and the ring of what is done.
mod place {
    pub(crate) const DESCRIPTORS: usize = 0;
    pub(crate) const HEADER: usize = 64;
    pub(crate) const STATUS: usize = 80;
    pub(crate) const ASKED: usize = 96;
    pub(crate) const DONE: usize = 128;
    pub(crate) const END: usize = 168;
}
/// Descriptors of the queue.
const DESCRIPTORS: u64 = 4;

/// Kinds of requests, and the status of one that went well.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GOOD: u8 = 0;
/// What the status holds before the device writes it.
const UNKNOWN: u8 = 0xff;
/// Bytes of a block, as a descriptor has them.
const BLOCK_BYTES: u32 = 4096;
const _: () = assert!(BLOCK_BYTES as usize == DISK_BLOCK);
/// Sectors of a block.
const SECTORS: u64 = DISK_BLOCK as u64 / 512;

/// Such a device among those of virtio.
const KIND: u64 = 2;
/// A feature: it can be told to have what was written last.
const LASTS: u64 = 1 << 9;

/// Times that a request is made anew because the primary changed, and interrupts that may be of no
/// use.
const ATTEMPTS: u32 = 8;
const IN_VAIN: u32 = 4096;

fn main(_argument: u64) -> u64 {
    let mut disk = match Disk::find() {
        Ok(found) => found,
        Err(error) => {
            if error != Error::FailedLookup {
                println!("virtio-blk: the disk does not work ({error:?})");
            }
            send(service::SLOT_PEER, service::DISK_ABSENT, &[]);
            return 1;
        }
    };
    if let Err(error) = join(disk.blocks) {
        println!("virtio-blk: the client cannot be reached ({error:?})");
        return 1;
    }
    let mut message = recv(REQUESTS);
    loop {
        message = match disk.serve(&message) {
            Ok(()) => reply_recv(REQUESTS, 0, &[]),
            Err(error) => reply_recv(REQUESTS, error as u64, &[]),
        };
    }
}

/// Gives the client what it needs.
fn join(blocks: u64) -> Result<(), Error> {
    let made = make(ObjectType::Endpoint, REQUESTS) && make(ObjectType::Frame, DATA);
    if !made {
        return Err(Error::NotEnoughMemory);
    }
    let table = service::SLOT_CNODE;
    object::mint(table, REQUESTER, REQUESTS, Rights::WRITE, CLIENT)?;
    let caps = [REQUESTER, DATA];
    let answer = call_with(service::SLOT_PEER, service::DISK_JOIN, &[blocks], &caps);
    match answer.label {
        0 => Ok(()),
        _ => Err(Error::InvalidCapability),
    }
}

/// A place in the page of the queue, in device memory.
const fn queue(place: usize) -> u64 {
    QUEUE + place as u64
}

/// What there is of a request: it waits, it was told to a primary that is no more, or it has this
/// status.
enum Looked {
    Waits,
    Gone,
    Done(u8),
}

/// The disk, as far as it was told.
struct Disk {
    virtio: Virtio,
    /// Where it is told of a request.
    bell: u64,
    blocks: u64,
    /// Of the primary whose memory it knows.
    generation: u64,
    /// Requests since the last reset.
    requests: u16,
}

impl Disk {
    /// Finds the disk, places it, and has it run.
    fn find() -> Result<Self, Error> {
        let (slot, page) = (layout::DISK_SLOT, layout::DISK_PAGE);
        let virtio = Virtio::find(slot, KIND, page, layout::DISK_REGISTERS)?;
        if !make(ObjectType::Frame, TOLD) || !make(ObjectType::Frame, SAID) {
            return Err(Error::NotEnoughMemory);
        }
        TELLING.map(TOLD, Rights::READ_WRITE)?;
        SAYING.map(SAID, Rights::READ)?;
        object::irq_notification(service::SLOT_IRQ, service::SLOT_NOTIFICATION)?;
        let mut disk = Self {
            virtio,
            bell: 0,
            blocks: 0,
            generation: 0,
            requests: 0,
        };
        disk.reset()?;
        let own = disk.virtio.own();
        let sectors = status(own, 4)? | status(own + 4, 4)? << 32;
        disk.blocks = sectors / SECTORS;
        Ok(disk)
    }

    /// Has it begin anew, with the memory of the present primary.
    fn reset(&mut self) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            self.virtio.settle(LASTS)?;
            // Nothing is asked, and nothing done.
            TELLING.write(&[0; place::END]);
            object::copy_out(DEVICE, QUEUE, TOLD, 0, place::END as u64)?;
            let (bell, generation) = self.virtio.place(&Queue {
                number: 0,
                size: DESCRIPTORS,
                descriptors: queue(place::DESCRIPTORS),
                asked: queue(place::ASKED),
                done: queue(place::DONE),
            })?;
            self.virtio.run()?;
            (self.bell, self.requests) = (bell, 0);
            if let Some(generation) = generation {
                self.generation = generation;
                return Ok(());
            }
        }
        Err(Error::IllegalOperation)
    }

    fn serve(&mut self, message: &Received) -> Result<(), Error> {
        let [block, ..] = message.words;
        let kind = match message.label {
            service::DISK_READ => READ,
            service::DISK_WRITE => WRITE,
            service::DISK_FLUSH => return self.ask(FLUSH, 0),
            _ => return Err(Error::IllegalOperation),
        };
        if block >= self.blocks {
            return Err(Error::RangeError);
        }
        self.ask(kind, block * SECTORS)
    }

    /// Makes a request until it was made with the memory of one primary.
    fn ask(&mut self, kind: u32, sector: u64) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            if self.lay_out(kind, sector)? {
                self.hand_over()?;
                match self.wait(kind)? {
                    Some(GOOD) => return Ok(()),
                    Some(_) => return Err(Error::RangeError),
                    None => {}
                }
            }
            self.reset()?;
        }
        Err(Error::IllegalOperation)
    }

    /// Lays a request out in transfer memory (sections 2.7.5 and 5.2.6). Tells whether the device
    /// knows the present primary's.
    fn lay_out(&self, kind: u32, sector: u64) -> Result<bool, Error> {
        let data = (kind != FLUSH).then_some(if kind == READ { WRITTEN } else { 0 });
        let header = (queue(place::HEADER), 16, 0);
        let status = (queue(place::STATUS), 1, WRITTEN);
        let block = data.map(|flags| (BLOCK, BLOCK_BYTES, flags));
        let chain = [Some(header), block, Some(status)];
        let count = chain.iter().flatten().count();
        let mut told = [0; place::ASKED];
        let mut put = |at: usize, bytes: &[u8]| {
            told[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for (index, (_, len, flags)) in (0_u16..).zip(chain.into_iter().flatten()) {
            let at = place::DESCRIPTORS + usize::from(index) * DESCRIPTOR;
            let is_last = usize::from(index) + 1 == count;
            let (flags, next) = if is_last {
                (flags, 0)
            } else {
                (flags | FOLLOWED, index + 1)
            };
            put(at + 8, &described(len, flags, next));
        }
        put(place::HEADER, &kind.to_le_bytes());
        put(place::HEADER + 8, &sector.to_le_bytes());
        put(place::STATUS, &[UNKNOWN]);
        TELLING.write(&told);
        object::copy_out(DEVICE, QUEUE, TOLD, 0, place::ASKED as u64)?;
        if kind == WRITE {
            object::copy_out(DEVICE, BLOCK, DATA, 0, PAGE)?;
        }
        let mut known = true;
        for (index, (target, ..)) in (0..).zip(chain.into_iter().flatten()) {
            let at = queue(place::DESCRIPTORS + index * DESCRIPTOR);
            known &= object::store_address(DEVICE, at, target)? == self.generation;
        }
        Ok(known)
    }

    /// Hands the request over. From then on the device may fetch it, so all agree on it before.
    fn hand_over(&mut self) -> Result<(), Error> {
        self.virtio.choose(0)?;
        self.requests = self.requests.wrapping_add(1);
        let mut asked = [0; 16];
        asked[2..4].copy_from_slice(&self.requests.to_le_bytes());
        TELLING.write(&asked);
        object::copy_out(DEVICE, queue(place::ASKED), TOLD, 0, asked.len() as u64)?;
        set(self.bell, 2, 0)
    }

    /// Waits until the request is done; its status, unless the device told it to a primary that is
    /// no more. There may be interrupts that the device did not make: a new primary raises those
    /// that its predecessor may have taken.
    fn wait(&self, kind: u32) -> Result<Option<u8>, Error> {
        for _ in 0..IN_VAIN {
            let _ = recv(service::SLOT_NOTIFICATION);
            line::attend(|| self.virtio.quieten())?;
            let mut quiet = Quiet::default();
            loop {
                match self.look()? {
                    Looked::Waits if quiet.after(false) => break,
                    Looked::Waits => {}
                    Looked::Gone => return Ok(None),
                    Looked::Done(said) => {
                        let good = said == GOOD && kind == READ;
                        if good && !object::copy_in(DEVICE, BLOCK, DATA, PAGE, self.generation)? {
                            return Ok(None);
                        }
                        return Ok(Some(said));
                    }
                }
            }
        }
        Err(Error::IllegalOperation)
    }

    /// Looks whether the request is done.
    fn look(&self) -> Result<Looked, Error> {
        let from = queue(place::STATUS);
        let mut said = [0; place::END - place::STATUS];
        let bytes = said.len() as u64;
        if !object::copy_in(DEVICE, from, SAID, bytes, self.generation)? {
            return Ok(Looked::Gone);
        }
        SAYING.read(&mut said);
        let done = place::DONE - place::STATUS + 2;
        Ok(if said[done..done + 2] == self.requests.to_le_bytes() {
            Looked::Done(said[0])
        } else {
            Looked::Waits
        })
    }
}

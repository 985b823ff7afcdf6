//! The machine as the microkernel gives it: memory from the root task, made into frames here,
//! threads in an address space of their own, and the TCP/IP stack, once it is needed.
//!
//! Each frame has two capabilities, one for the program's address space, and one by which it is in
//! the personality's own, where it stays. They stand in a table of their own, which the first one
//! cannot hold; both hang in a table of two.

mod disk;
mod network;
mod threads;

pub use threads::thread_of;

use core::fmt::Write as _;

use rcoe_abi::object::{LARGE_BITS, MAX_CNODE_BITS, PAGE, SLOT_BITS};
use rcoe_abi::{Error, ObjectType, Rights, layout, service};

use super::aliases::{ALIASES, Aliases, alias_of};
use super::arch::{CALL_WORDS, FLOAT_WORDS};
use super::machine::Machine;
use super::tables::Tables;
use super::tasks::MEMORIES;
use crate::clock::Clock;
use crate::console::Text;
use crate::disk::Disk;
use crate::input::{Came, Input};
use crate::object::{self, Outcome};
use crate::{call, identity, make_in, memory, sys};
use network::Net;
use threads::Made;

/// Slots of the personality: what calls and faults are told to, the table of threads and their
/// buffer, and the tables of the personality; then those of the disk, the input, the network, and
/// threads.
/// Address spaces stand in the table of frames.
pub const ENDPOINT: u64 = service::SLOT_FREE;
const SMALL: u64 = ENDPOINT + 1;
const TABLE: u64 = ENDPOINT + 4;
const BUFFER: u64 = ENDPOINT + 5;
const TOP: u64 = ENDPOINT + 6;
const FRAMES: u64 = ENDPOINT + 7;
const ROOM: u64 = ENDPOINT + 8;
const DISK: u64 = ENDPOINT + 9;
const INPUT: u64 = ENDPOINT + 11;
const NETWORK: u64 = ENDPOINT + 16;
const THREAD: u64 = ENDPOINT + 112;
const _: () = assert!(THREAD + super::THREADS as u64 <= 1 << service::CNODE_BITS);

/// Logarithm of the bytes of what the small objects are made of, and of the slots of a table.
const SMALL_BITS: u32 = 14;
const TABLE_BITS: u32 = 7;
/// Frames that are made at once: as much as a step of the kernel zeroes.
const BATCH: u64 = 16;
/// Logarithm of the bytes of memory that is asked for at once; and of what is left at the end.
const CHUNK_BITS: [u32; 2] = [LARGE_BITS, 16];
/// Pages that are kept from becoming frames: what threads are made of, and page tables of address
/// spaces. Without them a program that once took all memory would leave none for another's.
const KEPT: u64 = super::THREADS as u64 + 8 * MEMORIES as u64;
/// Logarithms of the bytes of the least and the most that is kept.
const LEAST_KEPT: u32 = 16;
const MOST_KEPT: u32 = LARGE_BITS;
/// Pages that a page table maps.
const PAGE_TABLE: u64 = 512;
/// Nanoseconds of the timer's ticks.
const TICK: u64 = 10_000_000;
/// Ticks of a wait without an end, after which it is begun again.
const LONG: u64 = 1 << 20;
/// Bytes of a note that are written at once.
const NOTE_BYTES: usize = 16;
/// Most frames: so many as the largest table has slots for.
const MOST: u64 = 500_000;
const _: () = assert!(LARGE_BITS > 16 && MOST < layout::SHADOW_PAGES);
const _: () = assert!(2 * MOST + spare_slots(MOST) < 1 << MAX_CNODE_BITS);

/// Slots behind those of so many frames and of aliases: of page tables, and of what they are made
/// of.
const fn table_slots(frames: u64) -> u64 {
    frames / 64 + 1024
}

/// Slots beside those of so many frames.
const fn spare_slots(frames: u64) -> u64 {
    ALIASES as u64 + table_slots(frames)
}

/// The machine.
#[derive(Debug)]
pub struct Kernel {
    /// Logarithm of the slots of the table of frames, and most frames.
    bits: u32,
    most: u64,
    /// Frames that are made, and those that were ever taken.
    made: u64,
    taken: u64,
    /// One more than the first of those that were given back, of which each holds the next, and how
    /// many there are.
    free: u32,
    given: u64,
    /// The next slot behind those of frames and aliases.
    next: u64,
    tables: Tables,
    aliases: Aliases,
    /// The slot of memory that frames are made of, if there is any.
    chunk: Option<u64>,
    /// The slot of memory that is kept from becoming frames.
    kept: u64,
    /// The clock, and what was told of it last, in nanoseconds.
    clock: Clock,
    told: u64,
    threads: Made,
    /// Pointers to address spaces, 0 for those that are not made, and the one at hand.
    spaces: [u64; MEMORIES],
    space: usize,
    net: Net,
    disk: Option<Disk>,
    input: Option<Input>,
}

/// What a machine has, or has not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Devices {
    /// A network.
    pub network: bool,
    /// A disk.
    pub disk: bool,
    /// A line by which its user's input comes.
    pub input: bool,
}

impl Kernel {
    /// A machine with at most so many frames, and with these devices.
    ///
    /// # Errors
    /// The kernel's, or that there is not enough memory.
    pub fn new(frames: u64, devices: Devices) -> Result<Self, Error> {
        let frames = frames.min(MOST);
        let slots = (2 * frames + spare_slots(frames)).next_power_of_two();
        let bits = slots.ilog2();
        let behind = 2 * frames + ALIASES as u64;
        let links = usize::try_from(table_slots(frames)).ok().and_then(memory);
        let links = links.ok_or(Error::NotEnoughMemory)?;
        let mut kernel = Self {
            bits,
            most: frames,
            made: 0,
            taken: 0,
            free: 0,
            given: 0,
            next: behind,
            tables: Tables::new(links, behind),
            aliases: Aliases::default(),
            chunk: None,
            kept: 0,
            clock: Clock::start(service::SLOT_DEVICE)?,
            told: 0,
            threads: Made::default(),
            spaces: [0; MEMORIES],
            space: 0,
            net: Net::default(),
            disk: None,
            input: None,
        };
        kernel.tables()?;
        kernel.keep()?;
        threads::prepare()?;
        if devices.disk {
            kernel.start_disk();
        }
        // Before the stack, which is told by messages to the group, too.
        if devices.input {
            kernel.input = Input::start(INPUT).ok();
        }
        if devices.network {
            kernel.net.start();
        }
        kernel.join_signals();
        Ok(kernel)
    }

    /// Where there are a network and an input, has the latter signal what the former does, so that
    /// both can be waited for.
    fn join_signals(&self) {
        if let (Some(input), Some(signal)) = (&self.input, self.net.other_signal(INPUT + 1)) {
            input.tell(signal);
        }
    }

    /// Makes the tables of the personality.
    fn tables(&self) -> Outcome {
        let own = service::SLOT_CNODE;
        let asked = [
            (ObjectType::Untyped, SMALL_BITS, SMALL),
            (ObjectType::Untyped, self.bits + SLOT_BITS, ROOM),
        ];
        let had = asked
            .into_iter()
            .all(|(kind, bits, slot)| make_in(own, kind, bits, slot));
        if !had {
            return Err(Error::NotEnoughMemory);
        }
        object::retype(SMALL, ObjectType::CNode, TABLE_BITS, own, TABLE, 1)?;
        object::retype(SMALL, ObjectType::CNode, 1, own, TOP, 1)?;
        object::retype(ROOM, ObjectType::CNode, self.bits, own, FRAMES, 1)?;
        // The personality's first table is that of the lower half of all pointers.
        let zeros = u64::from(self.bits) - u64::from(service::CNODE_BITS);
        object::mint(TOP, 0, own, Rights::ALL, zeros)?;
        object::mint(TOP, 1, FRAMES, Rights::ALL, 0)?;
        object::set_table(service::SLOT_TCB, TOP, 63 - u64::from(self.bits))
    }

    /// Has memory kept from becoming frames: less where there is little.
    fn keep(&mut self) -> Outcome {
        let slot = self.spare_slot()?;
        let pages = KEPT + self.most / PAGE_TABLE;
        let bits = (pages * PAGE).next_power_of_two().ilog2();
        let mut sizes = (LEAST_KEPT..=bits.min(MOST_KEPT)).rev();
        if !sizes.any(|bits| make_in(FRAMES, ObjectType::Untyped, bits, slot)) {
            return Err(Error::NotEnoughMemory);
        }
        self.kept = self.pointer(slot);
        Ok(())
    }

    /// A slot in the table of frames, as a pointer.
    const fn pointer(&self, slot: u64) -> u64 {
        1 << self.bits | slot
    }

    /// The slot of an alias, behind those of frames.
    fn alias_slot(&self, alias: u16) -> u64 {
        2 * self.most + u64::from(alias)
    }

    /// What is mapped for a frame or an alias, as a pointer.
    fn mapped(&self, frame: u32) -> u64 {
        let alias = alias_of(frame).map(|alias| self.alias_slot(alias));
        self.pointer(alias.unwrap_or(frame.into()))
    }

    fn spare_slot(&mut self) -> Result<u64, Error> {
        let slot = self.next;
        if !self.tables.has(slot) {
            return Err(Error::NotEnoughMemory);
        }
        self.next += 1;
        Ok(slot)
    }

    /// Makes objects in slots of the table of frames, of memory that is asked for as it is needed.
    fn make(&mut self, kind: ObjectType, slot: u64, count: u64) -> Outcome {
        if let Some(chunk) = self.chunk {
            let made = object::retype(chunk, kind, 0, FRAMES, slot, count);
            if made != Err(Error::NotEnoughMemory) {
                return made;
            }
        }
        let chunk = self.spare_slot()?;
        let bits = CHUNK_BITS.into_iter();
        let had = bits
            .into_iter()
            .any(|bits| make_in(FRAMES, ObjectType::Untyped, bits, chunk));
        if !had {
            self.next = chunk;
            return match kind {
                ObjectType::Frame => Err(Error::NotEnoughMemory),
                _ => object::retype(self.kept, kind, 0, FRAMES, slot, count),
            };
        }
        let chunk = self.pointer(chunk);
        self.chunk = Some(chunk);
        object::retype(chunk, kind, 0, FRAMES, slot, count)
    }

    /// Maps a frame in one of the address spaces, or in the personality's own, with the page tables
    /// that are missing.
    fn map_in(
        &mut self,
        frame: u64,
        space: Option<usize>,
        address: u64,
        rights: Rights,
    ) -> Outcome {
        let place = space.map_or(service::SLOT_VSPACE, |space| self.spaces[space]);
        loop {
            match object::map_frame(frame, place, address, rights) {
                Err(Error::MissingTable) => {
                    let table = self.table()?;
                    if let Err(error) = object::map_table(self.pointer(table), place, address) {
                        self.tables.give(table);
                        return Err(error);
                    }
                    if let Some(space) = space {
                        self.tables.hold(space, table);
                    }
                }
                other => return other,
            }
        }
    }

    /// The slot of a page table that is mapped nowhere.
    fn table(&mut self) -> Result<u64, Error> {
        if let Some(table) = self.tables.take() {
            return Ok(table);
        }
        let table = self.spare_slot()?;
        if let Err(error) = self.make(ObjectType::PageTable, table, 1) {
            self.next = table;
            return Err(error);
        }
        Ok(table)
    }

    fn new_space(&mut self, space: usize) -> Outcome {
        let slot = self.spare_slot()?;
        if let Err(error) = self.make(ObjectType::VSpace, slot, 1) {
            self.next = slot;
            return Err(error);
        }
        self.spaces[space] = self.pointer(slot);
        Ok(())
    }

    /// A frame that nobody ever had.
    fn new_frame(&mut self) -> Result<u32, Error> {
        if self.taken == self.made {
            let count = BATCH.min(self.most - self.made);
            if count == 0 {
                return Err(Error::NotEnoughMemory);
            }
            self.make(ObjectType::Frame, self.made, count)?;
            self.made += count;
        }
        let frame = self.taken;
        let shadow = self.most + frame;
        match object::copy(FRAMES, shadow, self.pointer(frame), Rights::ALL) {
            // It could not be mapped the last time.
            Ok(()) | Err(Error::DeleteFirst) => {}
            other => return other.map(|()| 0),
        }
        let address = layout::SHADOW + frame * PAGE;
        let pointer = self.pointer(shadow);
        self.map_in(pointer, None, address, Rights::READ_WRITE)?;
        self.taken += 1;
        u32::try_from(frame).map_err(|_| Error::RangeError)
    }
}

impl Machine for Kernel {
    fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return self.new_frame().ok();
        }
        let frame = self.take_as_it_is()?;
        sys::zero_shadow(frame.into());
        Some(frame)
    }

    fn take_as_it_is(&mut self) -> Option<u32> {
        let Some(frame) = self.free.checked_sub(1) else {
            return self.new_frame().ok();
        };
        let mut next = [0; 4];
        sys::read_shadow(frame.into(), 0, &mut next);
        self.free = u32::from_le_bytes(next);
        self.given -= 1;
        Some(frame)
    }

    fn give_back(&mut self, frame: u32) {
        sys::write_shadow(frame.into(), 0, &self.free.to_le_bytes());
        self.free = frame + 1;
        self.given += 1;
    }

    fn left(&self) -> u64 {
        self.most - self.taken + self.given
    }

    fn make_space(&mut self, space: usize) -> bool {
        self.spaces[space] != 0 || self.new_space(space).is_ok()
    }

    fn enter(&mut self, space: usize) {
        self.space = space;
    }

    fn leave_space(&mut self, space: usize) {
        let bits = self.bits;
        let unmap = |slot| object::unmap_table(1 << bits | slot);
        let left = self.tables.leave(space, unmap);
        assert!(left.is_ok(), "a table that is mapped can be taken out");
    }

    fn share(&mut self, frame: u32, like: Option<u16>) -> Option<u16> {
        let alias = self.aliases.add(like)?;
        let (slot, from) = (self.alias_slot(alias), self.pointer(frame.into()));
        if object::copy(FRAMES, slot, from, Rights::ALL).is_err() {
            self.aliases.remove(alias);
            return None;
        }
        Some(alias)
    }

    fn unshare(&mut self, alias: u16) -> bool {
        // It was made by `share`.
        let _ = object::delete(FRAMES, self.alias_slot(alias));
        self.aliases.remove(alias)
    }

    fn number_of(&self, alias: u16) -> u32 {
        self.aliases.number(alias)
    }

    fn map(&mut self, frame: u32, address: u64, rights: Rights) -> bool {
        let pointer = self.mapped(frame);
        self.map_in(pointer, Some(self.space), address, rights)
            .is_ok()
    }

    fn unmap(&mut self, frame: u32) {
        // One that is mapped nowhere is unmapped.
        let _ = object::unmap_frame(self.mapped(frame));
    }

    fn read(&self, frame: u32, at: usize, bytes: &mut [u8]) {
        sys::read_shadow(frame.into(), at, bytes);
    }

    fn write(&mut self, frame: u32, at: usize, bytes: &[u8]) {
        sys::write_shadow(frame.into(), at, bytes);
    }

    fn copy(&mut self, from: u32, to: u32) {
        let mut bytes = [0; 4096];
        sys::read_shadow(from.into(), 0, &mut bytes);
        sys::write_shadow(to.into(), 0, &bytes);
    }

    fn console(&mut self, bytes: &[u8]) {
        let mut text = Text::new();
        text.write_bytes(bytes);
        text.flush();
    }

    fn input(&mut self, into: &mut [u8]) -> Came {
        // Where there is no line, nothing will ever come.
        self.input.as_ref().map_or(Came::End, |it| it.take(into))
    }

    fn note(&mut self, text: core::fmt::Arguments<'_>) {
        let mut note = Note::default();
        // What does not fit is left out.
        let _ = writeln!(note, "note {text}");
        for part in note.bytes[..note.len].chunks(NOTE_BYTES) {
            // The personality has this port.
            let _ = object::port_out_bytes(service::SLOT_PORTS, layout::PORT_NOTES, part);
        }
    }

    /// More each time, also while the clock cannot be read.
    fn now(&mut self) -> u64 {
        let since = self.clock.nanoseconds().unwrap_or(0);
        self.told = since.max(self.told + 1);
        self.told
    }

    fn wait(&mut self, until: Option<u64>) {
        let now = self.told;
        if self.net.wait(now, until) {
            return;
        }
        let ticks = until.map(|until| until.saturating_sub(now).div_ceil(TICK));
        match (&self.input, ticks) {
            (_, Some(0)) => {}
            (Some(input), ticks) => input.wait(ticks.unwrap_or(0)),
            (None, ticks) => {
                let ticks = ticks.unwrap_or(LONG);
                call(service::SLOT_TIMER, service::TIMER_SLEEP, &[ticks]);
            }
        }
    }

    fn make_thread(&mut self, number: usize, like: usize) -> bool {
        let space = (self.space, self.spaces[self.space]);
        self.threads.make(number, like, space, self.kept)
    }

    fn go(&mut self, thread: usize, registers: &[u64; CALL_WORDS]) {
        threads::go(thread, registers);
    }

    fn set_pointers(&mut self, thread: usize, pointers: [u64; 2]) -> bool {
        threads::set_pointers(thread, pointers)
    }

    fn floats(&mut self, thread: usize) -> [u64; FLOAT_WORDS] {
        threads::floats(thread)
    }

    fn set_floats(&mut self, thread: usize, floats: &[u64; FLOAT_WORDS]) -> bool {
        threads::set_floats(thread, floats)
    }

    fn identity(&self, leaf: u32, part: u32, kept: [u32; 4]) -> [u32; 4] {
        identity(leaf, part, kept)
    }
}

/// A note that is put together.
struct Note {
    bytes: [u8; 256],
    len: usize,
}

impl Default for Note {
    fn default() -> Self {
        let bytes = [0; 256];
        Self { bytes, len: 0 }
    }
}

impl core::fmt::Write for Note {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.len + text.len();
        let place = self.bytes.get_mut(self.len..end).ok_or(core::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

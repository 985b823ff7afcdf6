//! The stub at which a replica passes by until its registers are those of a published state.
//!
//! A jump in the program's code leads here. The stub saves `rax` and the arithmetic flags in its
//! data, counts the visit, and compares: general registers, flags, then so many words of memory or
//! of the extended state as the agent has asked for. At the first difference everything is put
//! back, the overwritten instructions are executed, and the program goes on behind them. If nothing
//! differs the landing is entered with all registers as they were at the jump. The program's stack
//! is not touched, nor is there need of one.
//!
//! Whoever stops a replica within a stub, by a signal or a fault, asks [`Stub::original`] for the
//! registers that it would have without it.
//!
//! Contract: the data lies in what is the replica's own, at the same address in all; the stub's
//! area is near the window and holds nothing else; while it is written nobody is within.
//!
//! Not covered: a word of memory that is not aligned to eight bytes (its address is cut down).

use core::mem::offset_of;

use crate::arch::entry::Cpu;
use crate::convert::size;
use crate::coupling::decode::{LONGEST_MOVED, Refused, reach};
use crate::coupling::emit::{Code, Miss};
use crate::coupling::place::{JUMP, Window};
use crate::coupling::state::{GENERAL, General, RAX, RCX, RSP, Source};

/// Most words that are compared beside registers.
pub(crate) const WORDS: usize = 20;
/// Bytes of the area of a stub.
pub(crate) const AREA: u64 = rcoe_linux_abi::PAGE;

/// Arithmetic flags: carry, parity, adjust, zero, sign, and overflow.
const ARITHMETIC: u64 = 0x8d5;
const OVERFLOW: u64 = 1 << 11;
/// Flags in the upper byte that `lahf` gives.
const LOW: u64 = 0xd5;
/// Flags that no arithmetic changes: direction, nested task, alignment check, identification.
const OTHERS: u32 = 1 << 10 | 1 << 14 | 1 << 18 | 1 << 21;

/// Where a word is that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory(u64),
    Extended(Source),
}

/// What a replica must have to be stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) general: &'a General,
    /// Words beside them, and their values.
    pub(crate) words: &'a [(Place, u64)],
}

/// When a replica is stopped at a stub.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stops<'a> {
    /// Never: visits are counted.
    Never,
    /// At the first visit.
    First,
    /// When it has what is wanted.
    At(&'a Wanted<'a>),
}

/// What the stub reads and writes.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Data {
    /// Registers of the published state. The stub reaches these by a short displacement.
    registers: [u64; GENERAL],
    arithmetic: u64,
    others: u64,
    /// What the program had.
    rax: u64,
    flags: u64,
    visits: u64,
    places: [u64; WORDS],
    values: [u64; WORDS],
    stack: [u64; 2],
    /// Where the vector registers are looked at.
    room: Room,
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Room([u8; 512]);

impl Data {
    /// Nothing published, nothing counted.
    pub(crate) const ZERO: Self = Self {
        registers: [0; GENERAL],
        arithmetic: 0,
        others: 0,
        rax: 0,
        flags: 0,
        visits: 0,
        places: [0; WORDS],
        values: [0; WORDS],
        stack: [0; 2],
        room: Room([0; 512]),
    };

    fn publish(&mut self, wanted: &Wanted<'_>) {
        self.registers = wanted.general.registers;
        self.arithmetic = packed(wanted.general.flags);
        self.others = wanted.general.flags & u64::from(OTHERS);
        for (index, (place, value)) in wanted.words.iter().enumerate() {
            self.places[index] = match place {
                Place::Memory(address) => address & !7,
                Place::Extended(_) => 0,
            };
            self.values[index] = *value;
        }
    }

    /// Visits since the stub was made. The stub counts them behind the compiler's back.
    pub(crate) fn visits(&self) -> u64 {
        // SAFETY: a field of what is borrowed.
        unsafe { (&raw const self.visits).read_volatile() }
    }

    /// The last visit will come again.
    #[cfg(test)]
    pub(crate) fn forget_visit(&mut self) {
        self.visits = self.visits().wrapping_sub(1);
    }
}

/// Arithmetic flags as `lahf; seto %al` gives them.
fn packed(flags: u64) -> u64 {
    let low = flags & LOW | 2;
    low << 8 | u64::from(flags & OVERFLOW != 0)
}

/// The same back.
const fn unpacked(word: u64) -> u64 {
    let overflow = if word & 1 != 0 { OVERFLOW } else { 0 };
    word >> 8 & LOW | overflow
}

/// Most places within a stub that stand for others.
const PLACES: usize = 3 * JUMP + 1;

/// Offsets of a stub's parts.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    /// From here on `rax` is saved.
    saved: usize,
    /// The arithmetic flags, too, if they are.
    flags_saved: usize,
    /// The visit is counted.
    counted: usize,
    /// All registers but `rax` are those published, and may be in use.
    alike: usize,
    /// Whoever comes here from a difference has `rcx` in use.
    miss_counting: usize,
    /// They are the program's again.
    miss: usize,
    /// Loads of words of memory, one after the other.
    loads: [usize; WORDS],
    /// From here on it is the program that executes.
    displaced: usize,
}

/// A stub for one window.
#[derive(Debug)]
pub(crate) struct Stub {
    /// Where it begins.
    pub(crate) at: u64,
    window: Window,
    parts: Parts,
    /// Offsets of displaced instructions and what they stand for.
    places: [(usize, u64); PLACES],
    count: usize,
}

/// What a stop within the stub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Not in this stub: the registers are as they were.
    Elsewhere,
    /// The program is at the window; the visit is counted already, or not.
    AtWindow { counted: bool },
    /// The program is at an instruction of the window, or behind one.
    Within,
}

impl Stub {
    /// Writes the code of a stub at `area` that stops a replica then, if ever, and enters
    /// `landing`. `data` is where that will be.
    ///
    /// # Errors
    /// The window's instructions cannot be executed there.
    ///
    /// # Panics
    /// More words are wanted than there is room for.
    pub(crate) fn new(
        area: u64,
        window: &Window,
        stops: Stops<'_>,
        data: &mut Data,
        landing: u64,
        code: &mut Code,
    ) -> Result<Self, Refused> {
        // The jump must get here.
        reach(window.at + JUMP as u64, area)?;
        data.visits = 0;
        let mut stub = Self {
            at: area,
            window: *window,
            parts: Parts::default(),
            places: [(0, 0); PLACES],
            count: 0,
        };
        let at = (&raw const *data) as u64;
        match stops {
            Stops::Never => stub.count(code, at),
            Stops::First => {
                stub.begin(code, at);
                stub.land(code, at, false, landing);
            }
            Stops::At(wanted) => {
                assert!(wanted.words.len() <= WORDS, "room for the words");
                data.publish(wanted);
                stub.begin(code, at);
                stub.compare(code, wanted.words);
                stub.land(code, at, true, landing);
            }
        }
        stub.go_on(code)?;
        Ok(stub)
    }

    /// Frees `rax` and the flags, and counts.
    fn begin(&mut self, code: &mut Code, data: u64) {
        code.store_rax(data + offset_of!(Data, rax) as u64);
        self.parts.saved = code.len();
        code.flags_to_rax();
        code.store_rax(data + offset_of!(Data, flags) as u64);
        self.parts.flags_saved = code.len();
        code.set_rax(data);
        code.increment(offset_of!(Data, visits));
        self.parts.counted = code.len();
    }

    /// Counts, and nothing else: no flags change.
    fn count(&mut self, code: &mut Code, data: u64) {
        let visits = data + offset_of!(Data, visits) as u64;
        code.store_rax(data + offset_of!(Data, rax) as u64);
        self.parts.saved = code.len();
        self.parts.flags_saved = usize::MAX;
        code.load_rax(visits);
        code.next_rax();
        code.store_rax(visits);
        self.parts.counted = code.len();
        self.parts.alike = code.len();
        code.load_rax(data + offset_of!(Data, rax) as u64);
        self.parts.displaced = code.len();
    }

    /// Leaves at the first difference.
    fn compare(&mut self, code: &mut Code, words: &[(Place, u64)]) {
        const REGISTERS: usize = offset_of!(Data, registers);
        for register in (0..GENERAL).filter(|it| *it != RAX) {
            code.compare(register, REGISTERS + 8 * register);
            code.unless_equal(Miss::Whole);
        }
        self.parts.alike = code.len();
        code.load_rcx(offset_of!(Data, rax));
        code.compare(RCX, REGISTERS + 8 * RAX);
        code.unless_equal(Miss::Counting);
        code.load_half_word(offset_of!(Data, flags));
        code.compare_rcx(offset_of!(Data, arithmetic));
        code.unless_equal(Miss::Counting);
        let top = offset_of!(Data, stack) + size_of::<[u64; 2]>();
        code.other_flags(top, REGISTERS + 8 * RSP, OTHERS);
        code.compare_rcx(offset_of!(Data, others));
        code.unless_equal(Miss::Counting);
        for (index, (place, _)) in words.iter().enumerate() {
            match place {
                Place::Memory(_) => {
                    code.load_rcx(offset_of!(Data, places) + 8 * index);
                    self.parts.loads[index] = code.follow_rcx().start;
                }
                Place::Extended(source) => {
                    code.extended_word(*source, offset_of!(Data, room));
                }
            }
            code.compare_rcx(offset_of!(Data, values) + 8 * index);
            code.unless_equal(Miss::Counting);
        }
    }

    /// Enters the landing; behind that, all differences come together.
    fn land(&mut self, code: &mut Code, data: u64, is_compared: bool, landing: u64) {
        const OLD_RCX: usize = offset_of!(Data, registers) + 8 * RCX;
        if is_compared {
            code.load_rcx(OLD_RCX);
        } else {
            self.parts.alike = code.len();
        }
        restore(code, data);
        code.jump_far(landing);
        self.parts.miss_counting = code.len();
        code.land(Miss::Counting);
        if is_compared {
            code.load_rcx(OLD_RCX);
        }
        self.parts.miss = code.len();
        code.land(Miss::Whole);
        restore(code, data);
        self.parts.displaced = code.len();
    }

    /// Executes what was overwritten.
    fn go_on(&mut self, code: &mut Code) -> Result<(), Refused> {
        let window = self.window;
        for (at, found, bytes) in window.instructions() {
            let start = code.len();
            let mut moved = [0; LONGEST_MOVED];
            let written = found.moved(bytes, at, self.at + start as u64, &mut moved)?;
            self.stands_for(start, at);
            if let (Some([on, taken]), crate::coupling::decode::Flow::Either(target)) =
                (written.ways, found.flow)
            {
                self.stands_for(start + usize::from(on), at + u64::from(found.len));
                self.stands_for(start + usize::from(taken), target);
            }
            code.put(&moved[..usize::from(written.len)]);
        }
        let next = self.at + (code.len() + JUMP) as u64;
        let displacement = reach(next, window.end())?;
        self.stands_for(code.len(), window.end());
        code.put(&[0xe9]);
        code.put(&displacement);
        Ok(())
    }

    fn stands_for(&mut self, offset: usize, address: u64) {
        self.places[self.count] = (offset, address);
        self.count += 1;
    }

    /// Makes registers of a replica that was stopped within the stub those that it would have had
    /// without it: at the window, or at the instruction that it executes.
    pub(crate) fn original(&self, cpu: &mut Cpu, data: &Data) -> Stop {
        let Some(offset) = self.offset(cpu.rip) else {
            return Stop::Elsewhere;
        };
        let parts = &self.parts;
        if offset >= parts.displaced {
            let places = &self.places[..self.count];
            let place = places.iter().find(|(start, _)| *start == offset);
            let Some((_, address)) = place else {
                return Stop::Elsewhere;
            };
            cpu.rip = *address;
            return Stop::Within;
        }
        if offset >= parts.saved {
            cpu.regs.rax = data.rax;
        }
        if offset >= parts.flags_saved {
            cpu.rflags = cpu.rflags & !ARITHMETIC | unpacked(data.flags);
        }
        let in_use = self.compares() && offset >= parts.alike && offset < parts.miss;
        if in_use {
            cpu.regs.rcx = data.registers[RCX];
            cpu.rsp = data.registers[RSP];
        }
        cpu.rip = self.window.at;
        Stop::AtWindow {
            counted: offset >= parts.counted,
        }
    }

    fn compares(&self) -> bool {
        self.parts.alike > self.parts.counted
    }

    fn offset(&self, rip: u64) -> Option<usize> {
        let offset = rip.checked_sub(self.at)?;
        (offset < AREA).then_some(size(offset))
    }

    /// Where a replica goes on that has faulted at a word of memory, which this one does not have:
    /// it differs. `None` if the fault is the program's own.
    pub(crate) fn after_fault(&self, rip: u64) -> Option<u64> {
        let offset = self.offset(rip)?;
        let is_load = offset >= self.parts.alike && self.parts.loads.contains(&offset);
        is_load.then_some(self.at + self.parts.miss_counting as u64)
    }

    /// Where a replica goes on whose instruction pointer is in the midst of the window while the
    /// jump is in: at what stands for it. Elsewhere it is what it was.
    pub(crate) fn resumed(&self, rip: u64) -> u64 {
        if rip <= self.window.at || rip >= self.window.end() {
            return rip;
        }
        let places = &self.places[..self.count];
        let place = places.iter().find(|(_, address)| *address == rip);
        place.map_or(rip, |(offset, _)| self.at + *offset as u64)
    }

    /// Where a replica goes on that has entered the landing and was refused.
    pub(crate) const fn past(&self) -> u64 {
        self.at + self.parts.displaced as u64
    }

    /// The window whose place it takes.
    pub(crate) const fn window(&self) -> &Window {
        &self.window
    }
}

/// The program's flags and `rax`.
fn restore(code: &mut Code, data: u64) {
    code.load_rax(data + offset_of!(Data, flags) as u64);
    code.flags_from_rax();
    code.load_rax(data + offset_of!(Data, rax) as u64);
}

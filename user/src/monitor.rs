//! The monitor of a guest: the board that it finds, and what is done with each of its exits.
//!
//! The board is laid out as QEMU's virt: an interrupt controller, a serial line, memory. The
//! processor's timer and its firmware are the monitor's too. All of this is computed from the
//! guest's exits, and from a clock of which all replicas have the same readings; so it is alike in
//! all replicas as long as the guest is.
//!
//! *Contract*: an exit that is not understood ends the guest with a line that says which; nothing
//! is made up for it.
//!
//! *Not covered*: more than one processor, devices other than these, and the virtual timer, which
//! the processor has without telling anybody. A breakpoint instruction reads the clock instead, in
//! guests that were made so.

mod firmware;
mod interrupts;
mod serial;
mod syndrome;
mod timer;

use rcoe_abi::guest::{
    self, CLOCK, CONTROLLER, FIRMWARE_CALL, HYPERVISOR_CALL, SERIAL, SYSTEM_REGISTER, WAIT, Word,
};

use firmware::Done;
use interrupts::Interrupts;
use serial::Serial;
use syndrome::{Access, System};
use timer::Timer;

/// Registers of a virtual processor, as they come with a fault: x0 to x30, then instruction
/// pointer, state, and stack pointer of level 0, and its own register.
pub type Registers = [u64; 35];
/// Among them.
const IP: usize = 31;
const STATE: usize = 32;

/// Interrupts of the timer and of the serial line.
const TIMER: u64 = 30;
const SERIAL_LINE: u64 = 33;

/// Bytes of each of both parts of the interrupt controller, and of the serial line.
const PART: u64 = 0x1_0000;
const PAGE: u64 = 0x1000;

/// Why the guest does not go on by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// No memory is where it reads or writes.
    Memory {
        /// What it takes for the physical address.
        address: u64,
        /// What the processor says of it.
        syndrome: u64,
    },
    /// An exception of this class.
    Exception {
        /// See [`rcoe_abi::guest`].
        class: u64,
        /// What the processor says of it.
        syndrome: u64,
    },
}

/// What is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It goes on.
    Go,
    /// It goes on when an interrupt is pending.
    Wait,
    /// It finds an exception on its own level, for this reason.
    Reflect(u64),
    /// It has switched the machine off.
    Off,
    /// It wants the machine to begin anew.
    Reset,
    /// It does what this board has nothing for.
    Lost,
}

/// What the monitor has from outside.
pub trait Outside {
    /// A byte that the guest sends.
    fn send(&mut self, byte: u8);
    /// The present time, in units of the processor's counter.
    fn now(&mut self) -> u64;
}

/// The board of a guest.
#[derive(Clone, Debug, Default)]
pub struct Board<O> {
    /// What is outside of it.
    pub outside: O,
    interrupts: Interrupts,
    serial: Serial,
    timer: Timer,
}

/// A reason for an exception on the guest's own level: it does not know this instruction.
const UNKNOWN: u64 = 1 << 25;

impl<O: Outside> Board<O> {
    /// A board that nobody has touched.
    pub fn new(outside: O) -> Self {
        Self {
            outside,
            interrupts: Interrupts::default(),
            serial: Serial::default(),
            timer: Timer::default(),
        }
    }

    /// Does what the guest wants done, and changes its registers accordingly.
    pub fn serve(&mut self, exit: Exit, registers: &mut Registers) -> Turn {
        let turn = match exit {
            Exit::Memory { address, syndrome } => self.device(address, syndrome, registers),
            Exit::Exception { class, syndrome } => match class {
                WAIT => Turn::Wait,
                HYPERVISOR_CALL | FIRMWARE_CALL if syndrome & 0xffff == 0 => call(registers),
                HYPERVISOR_CALL | FIRMWARE_CALL => Turn::Reflect(UNKNOWN),
                SYSTEM_REGISTER => self.register(System::of(syndrome), registers),
                guest::BREAKPOINT => self.breakpoint(syndrome & 0xffff, registers),
                _ => Turn::Lost,
            },
        };
        if matches!(turn, Turn::Go | Turn::Wait) {
            registers[IP] = registers[IP].wrapping_add(4);
        }
        turn
    }

    /// Is an interrupt pending by now?
    pub fn pending(&mut self) -> bool {
        let due = self.timer.deadline().is_some() && {
            let now = self.outside.now();
            self.timer.interrupts(now)
        };
        self.interrupts.set_line(TIMER, due);
        self.interrupts
            .set_line(SERIAL_LINE, self.serial.interrupts());
        self.interrupts.pending().is_some()
    }

    /// Can an interrupt ever come without the guest?
    #[must_use]
    pub fn expects(&self) -> bool {
        self.timer.deadline().is_some()
    }

    fn device(&mut self, address: u64, syndrome: u64, registers: &mut Registers) -> Turn {
        let Some(access) = Access::of(syndrome) else {
            return Turn::Lost;
        };
        let held = registers[..IP].get(access.register).copied();
        let value = access.stored(held.unwrap_or(0));
        let loaded = if access.writes {
            self.store(address, access.width, value).map(|()| None)
        } else {
            self.load(address, access.width).map(Some)
        };
        let Some(loaded) = loaded else {
            return Turn::Lost;
        };
        if let (Some(word), true) = (loaded, access.register < IP) {
            registers[access.register] = access.loaded(word);
        }
        Turn::Go
    }

    fn load(&mut self, address: u64, width: u64) -> Option<u64> {
        if let Some(place) = within(address, CONTROLLER, PART) {
            return Some(self.interrupts.read(place, width));
        }
        if let Some(place) = within(address, CONTROLLER + PART, PART) {
            return Some(self.interrupts.read_own(place));
        }
        within(address, SERIAL, PAGE).map(|place| self.serial.read(place))
    }

    fn store(&mut self, address: u64, width: u64, value: u64) -> Option<()> {
        if let Some(place) = within(address, CONTROLLER, PART) {
            self.interrupts.write(place, width, value);
        } else if let Some(place) = within(address, CONTROLLER + PART, PART) {
            self.interrupts.write_own(place, value);
        } else {
            let place = within(address, SERIAL, PAGE)?;
            if let Some(byte) = self.serial.write(place, value) {
                self.outside.send(byte);
            }
        }
        Some(())
    }

    /// A breakpoint instruction of this number: the guest's own, or one that reads the clock.
    fn breakpoint(&mut self, number: u64, registers: &mut Registers) -> Turn {
        if number & !0x1f != CLOCK {
            return Turn::Reflect(guest::BREAKPOINT << 26 | UNKNOWN | number);
        }
        let now = self.outside.now();
        if let Some(register) = registers[..IP].get_mut((number & 0x1f) as usize) {
            *register = now;
        }
        Turn::Go
    }

    /// A register of the processor's that is not the guest's own.
    fn register(&mut self, access: System, registers: &mut Registers) -> Turn {
        let held = registers[..IP].get(access.register).copied().unwrap_or(0);
        let done = if Timer::has(access.name) {
            let now = self.outside.now();
            if access.reads {
                self.timer.read(access.name, now)
            } else {
                self.timer.write(access.name, held, now).map(|()| 0)
            }
        } else {
            is_nothing(access.name).then_some(0)
        };
        let Some(word) = done else {
            return Turn::Reflect(UNKNOWN);
        };
        if access.reads && access.register < IP {
            registers[access.register] = word;
        }
        Turn::Go
    }
}

/// Where in a device an address is.
fn within(address: u64, first: u64, bytes: u64) -> Option<u64> {
    address.checked_sub(first).filter(|&place| place < bytes)
}

/// A call of the firmware, in whichever way it is made.
fn call(registers: &mut Registers) -> Turn {
    match firmware::call(registers[0], registers[1]) {
        Done::Answer(answer) => {
            registers[0] = answer;
            Turn::Go
        }
        Done::Wait(answer) => {
            registers[0] = answer;
            Turn::Wait
        }
        Done::Off => Turn::Off,
        Done::Reset => Turn::Reset,
    }
}

/// Registers that read as zero and take anything, as on a processor without what they are for:
/// those of debuggers and counters, of caches by set and way, and the auxiliary control.
const fn is_nothing([op0, op1, n, m, op2]: [u64; 5]) -> bool {
    match (op0, n) {
        (2, _) | (1, 7) => true,
        (3, 9) => m >= 12,
        (3, 14) => m >= 8,
        (3, 1) => op1 == 0 && m == 0 && op2 == 1,
        _ => false,
    }
}

/// Has the guest find an exception on its own level, as the processor would: its words and
/// registers are changed to that.
pub fn reflect(why: u64, words: &mut [u64; guest::WORDS], registers: &mut Registers) {
    let state = registers[STATE];
    // From level 0, or from level 1 with the stack of either.
    let vector = match state & 0xf {
        0 => 0x400,
        5 => 0x200,
        _ => 0,
    };
    words[Word::Link as usize] = registers[IP];
    words[Word::State as usize] = state;
    words[Word::Syndrome as usize] = why;
    registers[IP] = words[Word::Vectors as usize].wrapping_add(vector);
    // On level 1 with its own stack, everything masked; the conditions stay.
    registers[STATE] = state & 0xf << 28 | 0x3c5;
}

#[cfg(test)]
mod tests;

//! The monitor of a guest: gives a virtual processor the memory that the host packed, and serves
//! its exits until it switches itself off. Argument: what the guest finds in its first register.
//!
//! A second thread waits for the interval timer while the guest has its own timer set, and wakes
//! the monitor, so that an interrupt reaches a guest that computes.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::fmt::Write as _;

use rcoe_abi::guest::{self, Bundle, Packed, Word};
use rcoe_abi::invocation::FaultLabel;
use rcoe_abi::object::{LARGE, PAGE};
use rcoe_abi::{Error, ObjectType, Rights, service};
use rcoe_user::alarm::{self, Alarm};
use rcoe_user::console::Text;
use rcoe_user::monitor::{Board, Exit, Outside, Registers, Turn, reflect};
use rcoe_user::share::Large;
use rcoe_user::{Received, counter, make, make_sized, object, println, recv, reply_recv};

rcoe_user::program!(main);

/// Slots: what faults are told to, a buffer that threads have to have, the virtual processor, what
/// the alarm signals, and the same with a badge; what page tables and the space are made of, and
/// they; the alarm's own; then the guest's memory.
const ENDPOINT: u64 = service::SLOT_FREE;
const BUFFER: u64 = ENDPOINT + 1;
const PROCESSOR: u64 = ENDPOINT + 2;
const RANG: u64 = ENDPOINT + 3;
const SIGNAL: u64 = ENDPOINT + 4;
const ROOM: u64 = ENDPOINT + 5;
const SPACE: u64 = ENDPOINT + 6;
const TABLES: u64 = ENDPOINT + 7;
const ALARM: u64 = ENDPOINT + 9;
const FRAMES: u64 = ENDPOINT + 16;
const _: () = assert!(ALARM + alarm::SLOTS <= FRAMES);
const _: () = assert!(FRAMES + guest::MOST_FRAMES <= 1 << service::CNODE_BITS);

/// Logarithm of the bytes of what the space and its two tables are made of.
const ROOM_BITS: u32 = 14;
/// The guest gives way to its monitor, which has a program's priority.
const PRIORITIES: [u64; 2] = [19, 20];
/// Words of a fault's message before the registers.
const BEFORE: usize = 4;
/// The processor's state at the start: level 1 with its own stack, everything masked.
const START: u64 = 0x3c5;

/// Status of a guest that cannot be started, and of one that does what its board has nothing for.
const NOT_STARTED: u64 = 126;
const LOST: u64 = 1;

/// Why nothing goes on.
type Trouble = &'static str;

fn main(argument: u64) -> u64 {
    let started = Bundle::new(rcoe_user::bundle())
        .ok_or("there is none")
        .and_then(|bundle| start(bundle, argument).map_err(told));
    match started {
        Ok(alarm) => Monitor::new(alarm).serve(),
        Err(why) => {
            println!("rcoe: the guest cannot be started: {why}");
            NOT_STARTED
        }
    }
}

const fn told(error: Error) -> Trouble {
    match error {
        Error::NotEnoughMemory => "there is not enough memory: give it more by --memory",
        Error::InvalidArgument => "this processor has no virtual ones",
        _ => "the kernel refuses",
    }
}

/// Makes everything, and lets the guest run.
fn start(bundle: Bundle<'static>, argument: u64) -> Result<Alarm, Error> {
    let made = make(ObjectType::Endpoint, ENDPOINT)
        && make(ObjectType::Frame, BUFFER)
        && make(ObjectType::Tcb, PROCESSOR)
        && make_sized(ObjectType::Untyped, ROOM_BITS, ROOM);
    if !made {
        return Err(Error::NotEnoughMemory);
    }
    let table = service::SLOT_CNODE;
    object::retype(ROOM, ObjectType::GuestSpace, 0, table, SPACE, 1)?;
    object::retype(ROOM, ObjectType::PageTable, 0, table, TABLES, 2)?;
    for slot in [TABLES, TABLES + 1] {
        object::map_table(slot, SPACE, guest::MEMORY)?;
    }
    for frame in 0..bundle.word(Packed::Frames).unwrap_or(0) {
        give(bundle, frame)?;
    }
    let alarm = start_alarm()?;
    counter::start(service::SLOT_DEVICE, PAGE)?;
    object::configure(PROCESSOR, table, SPACE, BUFFER, ENDPOINT)?;
    object::set_priority(PROCESSOR, PRIORITIES[0])?;
    let mut registers = [0; BEFORE + 31];
    registers[0] = argument;
    registers[31] = bundle.word(Packed::Entry).unwrap_or(0);
    registers[32] = START;
    object::write_context(PROCESSOR, &registers)?;
    Ok(alarm)
}

/// Makes a large frame, puts what belongs there into it, and gives it to the guest.
fn give(bundle: Bundle<'static>, frame: u64) -> object::Outcome {
    let slot = FRAMES + frame;
    if frame >= guest::MOST_FRAMES || !make(ObjectType::LargeFrame, slot) {
        return Err(Error::NotEnoughMemory);
    }
    let address = guest::MEMORY + frame * LARGE;
    let window = Large(0);
    window.map(slot, Rights::READ_WRITE)?;
    for piece in bundle.pieces() {
        fill(window, address, piece);
    }
    object::unmap_frame(slot)?;
    object::map_frame(slot, SPACE, address, Rights::ALL)
}

/// Puts what of a piece belongs into the frame at an address there.
fn fill(window: Large, address: u64, piece: guest::Piece<'static>) {
    let from = piece.address.max(address);
    let end = (piece.address + piece.content.len() as u64).min(address + LARGE);
    for place in (from..end.max(from)).step_by(8) {
        let at = usize::try_from(place - piece.address).unwrap_or(usize::MAX);
        let word = piece.content.get(at..at + 8).unwrap_or(&[0; 8]);
        let word = u64::from_le_bytes(word.try_into().unwrap_or([0; 8]));
        window.set_word((place - address) / 8, word);
    }
}

/// Starts the thread that waits for the interval timer.
fn start_alarm() -> Result<Alarm, Error> {
    if !make(ObjectType::Notification, RANG) {
        return Err(Error::NotEnoughMemory);
    }
    object::mint(service::SLOT_CNODE, SIGNAL, RANG, Rights::ALL, 1)?;
    object::bind(service::SLOT_TCB, RANG)?;
    Alarm::start(ALARM, SIGNAL, PRIORITIES[1])
}

/// What the guest has of the machine.
struct Machine {
    text: Text,
    /// The clock's last reading, and what it has counted since the start.
    last: u64,
    count: u64,
}

impl Outside for Machine {
    fn send(&mut self, byte: u8) {
        self.text.write_bytes(&[byte]);
        if byte == b'\n' {
            self.text.flush();
        }
    }

    fn now(&mut self) -> u64 {
        let place = PAGE + counter::COUNTER;
        let reading = object::device_status(service::SLOT_DEVICE, place, 4);
        let reading = reading.unwrap_or(self.last);
        // It has 32 bits.
        self.count += reading.wrapping_sub(self.last) & 0xffff_ffff;
        self.last = reading;
        // From 24 MHz to the 62.5 of the processor's counter.
        self.count * 125 / 48
    }
}

/// The monitor.
struct Monitor {
    board: Board<Machine>,
    alarm: Alarm,
    /// Does the processor know of an interrupt?
    raised: bool,
    /// The registers of a guest that waits.
    waiting: Option<Registers>,
}

impl Monitor {
    fn new(alarm: Alarm) -> Self {
        let machine = Machine {
            text: Text::new(),
            last: 0,
            count: 0,
        };
        Self {
            board: Board::new(machine),
            alarm,
            raised: false,
            waiting: None,
        }
    }

    /// Serves the guest to its end; its status.
    fn serve(&mut self) -> u64 {
        let mut message = recv(ENDPOINT);
        loop {
            let served = if message.label == 0 {
                self.rang().map(|()| None)
            } else {
                self.exit(&message)
            };
            message = match served {
                Ok(Some(registers)) => reply_recv(ENDPOINT, 0, &registers),
                Ok(None) => recv(ENDPOINT),
                Err(status) => return status,
            };
        }
    }

    /// The alarm rang: an interrupt may be pending by now.
    fn rang(&mut self) -> Result<(), u64> {
        self.alarm.rang();
        self.refresh(None)?;
        if self.raised
            && let Some(registers) = self.waiting.take()
        {
            let gone = object::write_context(PROCESSOR, &registers);
            return gone.map_err(|_| self.lost(format_args!("does not go on")));
        }
        Ok(())
    }

    /// Serves an exit: the registers with which the guest goes on, unless it waits.
    fn exit(&mut self, message: &Received) -> Result<Option<Registers>, u64> {
        let mut registers = core::array::from_fn(|index| message.word(BEFORE + index));
        let (first, syndrome) = (message.word(1), message.word(2));
        let place = message.word(0);
        let exit = if message.label == FaultLabel::Page as u64 {
            let address = first;
            Exit::Memory { address, syndrome }
        } else {
            let class = first;
            Exit::Exception { class, syndrome }
        };
        match self.board.serve(exit, &mut registers) {
            Turn::Go => self.refresh(None)?,
            Turn::Wait => return self.wait(registers),
            Turn::Reflect(why) => self.refresh(Some((why, &mut registers)))?,
            Turn::Off => {
                self.board.outside.text.flush();
                return Err(0);
            }
            Turn::Reset => return Err(self.lost(format_args!("wants to begin anew"))),
            Turn::Lost => {
                let what = format_args!("does at {place:#x} what there is nothing for: {exit:x?}");
                return Err(self.lost(what));
            }
        }
        Ok(Some(registers))
    }

    /// The guest waits for an interrupt.
    fn wait(&mut self, registers: Registers) -> Result<Option<Registers>, u64> {
        self.board.outside.text.flush();
        self.refresh(None)?;
        if self.raised {
            return Ok(Some(registers));
        }
        if !self.board.expects() {
            return Err(self.lost(format_args!("waits for an interrupt that cannot come")));
        }
        self.waiting = Some(registers);
        Ok(None)
    }

    /// Tells the processor whether an interrupt is pending, and of an exception that the guest is
    /// to find, with the registers that it has then; and sets the alarm, if it is needed.
    fn refresh(&mut self, reflected: Option<(u64, &mut Registers)>) -> Result<(), u64> {
        let pending = self.board.pending();
        if pending != self.raised || reflected.is_some() {
            let told = self.tell(pending, reflected);
            told.map_err(|_| self.lost(format_args!("has no processor")))?;
            self.raised = pending;
        }
        if self.board.expects() && !pending {
            self.alarm.set();
        }
        Ok(())
    }

    fn tell(&self, pending: bool, reflected: Option<(u64, &mut Registers)>) -> object::Outcome {
        let mut words = [0; guest::WORDS];
        object::read_guest(PROCESSOR, &mut words)?;
        words[Word::Lines as usize] = pending.into();
        if let Some((why, registers)) = reflected {
            reflect(why, &mut words, registers);
        }
        object::write_guest(PROCESSOR, &words)
    }

    /// The guest does not go on; the status.
    fn lost(&mut self, why: core::fmt::Arguments<'_>) -> u64 {
        let text = &mut self.board.outside.text;
        // What the guest wrote last may be without an end.
        let _ = writeln!(text, "\nrcoe: the guest {why}");
        text.flush();
        LOST
    }
}

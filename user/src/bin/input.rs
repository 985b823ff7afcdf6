//! The driver of the input: fetches what the machine's user gives its program to read, for one
//! client of its group ([`service::INPUT_JOIN`] and what follows), by a serial line.
//!
//! All replicas run it. Each byte that comes is read by the primary for all; it is gone from the
//! line then, so one that a primary read that is lost there is lost with it. That shows: the host
//! sends frames ([`rcoe_abi::input`]), and one that stays incomplete, or is damaged, is asked for
//! again. What is asked is voted, and asking twice is as good as once.
//!
//! Nothing is asked before the client wants something, so that the host takes nothing from its user
//! that nobody reads. What the user gave at once the client gets at once, if it has room.
//!
//! Not covered: a line that goes silent for good, which is as if the user gave nothing.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::input::{self, FRAME, PORTION, Portion};
use rcoe_abi::{Error, MAX_MESSAGE, ObjectType, Rights, layout, service};
use rcoe_user::alarm::{self, Alarm};
use rcoe_user::object::{self, Outcome};
use rcoe_user::quiet::Quiet;
use rcoe_user::{Received, accept, call_with, line, make, println, recv, reply_recv, send};

rcoe_user::program!(main);

/// Own slots: the endpoint, what the client gets of it, what interrupts and the alarm signal, by
/// what each does, and what is signalled for the client; then those of the alarm.
const REQUESTS: u64 = service::SLOT_FREE;
const REQUESTER: u64 = REQUESTS + 1;
const WAKE: u64 = REQUESTS + 2;
const INTERRUPTED: u64 = REQUESTS + 3;
const RANG: u64 = REQUESTS + 4;
const CHANGED: u64 = REQUESTS + 5;
const ALARM: u64 = REQUESTS + 6;
const _: () = assert!(ALARM + alarm::SLOTS <= 1 << service::CNODE_BITS);

/// Badges: signals, and the client.
const BY_INTERRUPT: u64 = 1;
const BY_ALARM: u64 = 2;
const CLIENT: u64 = 4;
/// The alarm's priority: the driver's own, as none can be higher.
const PRIORITY: u64 = 30;

/// Registers of the line, from its first port: data, which interrupts there are, queues, how bytes
/// look, lines to the peer, and state; and one that keeps what is written.
const DATA: u16 = 0;
const INTERRUPTS: u16 = 1;
const QUEUES: u16 = 2;
const LOOK: u16 = 3;
const PEER: u16 = 4;
const STATE: u16 = 5;
const KEPT: u16 = 7;
/// In the state: a byte came.
const CAME: u64 = 1;

/// What the register that keeps anything is written with.
const MARK: u64 = 0x5a;
/// Bytes that are read at once, before others have their turn.
const PATIENCE: usize = 4096;
/// Ticks after which what is incomplete is asked for again.
const OVERDUE: u64 = 3;
/// Bytes that are kept for the client: what the user gives at once is no more.
const ROOM: usize = 4096;
/// Words of an answer before its bytes, and bytes of one at most.
const BEFORE: usize = 2;
const MOST: usize = 8 * (MAX_MESSAGE - BEFORE);

fn main(_argument: u64) -> u64 {
    let mut line = match Line::open() {
        Ok(line) => line,
        Err(error) => {
            println!("input: there is no line ({error:?})");
            send(service::SLOT_PEER, service::INPUT_ABSENT, &[]);
            return 1;
        }
    };
    if let Err(error) = join() {
        println!("input: the client cannot be reached ({error:?})");
        return 1;
    }
    let mut message = recv(REQUESTS);
    loop {
        if message.badge & CLIENT == 0 {
            line.attend(message.badge);
            message = recv(REQUESTS);
            continue;
        }
        message = match message.label {
            service::INPUT_TAKE => line.answer(&message),
            service::INPUT_WAIT => {
                line.wait(message.words[0]);
                reply_recv(REQUESTS, 0, &[])
            }
            service::INPUT_TELL if message.caps == 1 => {
                line.tells = true;
                reply_recv(REQUESTS, 0, &[])
            }
            _ => reply_recv(REQUESTS, Error::IllegalOperation as u64, &[]),
        };
    }
}

/// Gives the client what it needs.
fn join() -> Outcome {
    // It may bring what is to be signalled.
    accept(service::SLOT_CNODE, CHANGED, 1);
    let answer = call_with(service::SLOT_PEER, service::INPUT_JOIN, &[], &[REQUESTER]);
    match answer.label {
        0 => Ok(()),
        _ => Err(Error::InvalidCapability),
    }
}

/// What there is of the input.
struct Line {
    alarm: Alarm,
    /// Is the client to be told of what came?
    tells: bool,
    /// The number of the next portion, and whether it was asked for.
    next: u8,
    asked: bool,
    /// The last bytes of the line, and how many of them belong to no frame as yet.
    window: [u8; FRAME],
    loose: usize,
    /// Ticks since something came of what is incomplete.
    silent: u64,
    /// What came for the client, from where on it has not taken it, and whether it is all that was
    /// given at once.
    bytes: [u8; ROOM],
    taken: usize,
    len: usize,
    whole: bool,
    ended: bool,
}

impl Line {
    /// Finds the line, sets it up, and lets its interrupts through.
    fn open() -> Result<Self, Error> {
        set(KEPT, MARK)?;
        if status(KEPT)? != MARK {
            return Err(Error::FailedLookup);
        }
        if !make(ObjectType::Endpoint, REQUESTS) || !make(ObjectType::Notification, WAKE) {
            return Err(Error::NotEnoughMemory);
        }
        let table = service::SLOT_CNODE;
        let asker = Rights::WRITE.or(Rights::GRANT);
        object::mint(table, REQUESTER, REQUESTS, asker, CLIENT)?;
        object::mint(table, INTERRUPTED, WAKE, Rights::ALL, BY_INTERRUPT)?;
        object::mint(table, RANG, WAKE, Rights::ALL, BY_ALARM)?;
        object::bind(service::SLOT_TCB, WAKE)?;
        let line = Self {
            alarm: Alarm::start(ALARM, RANG, PRIORITY)?,
            tells: false,
            next: 0,
            asked: false,
            window: [0; FRAME],
            loose: 0,
            silent: 0,
            bytes: [0; ROOM],
            taken: 0,
            len: 0,
            whole: false,
            ended: false,
        };
        // No interrupts yet; the fastest rate, eight bits; queues, empty, each byte told; the peer
        // may send; interrupts for what came.
        for (register, value) in [
            (INTERRUPTS, 0),
            (LOOK, 0x80),
            (DATA, 1),
            (INTERRUPTS, 0),
            (LOOK, 3),
            (QUEUES, 7),
            (PEER, 0xb),
            (INTERRUPTS, 1),
        ] {
            set(register, value)?;
        }
        object::irq_notification(service::SLOT_IRQ, INTERRUPTED)?;
        Ok(line)
    }

    /// Has the client what it can take?
    const fn is_ready(&self) -> bool {
        self.whole || self.ended
    }

    /// Gives the client what came, or has the host send more; receives the next message.
    fn answer(&mut self, message: &Received) -> Received {
        let room = usize::try_from(message.words[0]).unwrap_or(MOST);
        let count = match self.whole {
            true => (self.len - self.taken).min(room).min(MOST),
            false => 0,
        };
        let mut words = [0; MAX_MESSAGE];
        let bytes = &self.bytes[self.taken..self.taken + count];
        for (word, chunk) in words[BEFORE..].iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(whole);
        }
        words[1] = count as u64;
        self.taken += count;
        words[0] = match (self.whole, self.ended) {
            (true, _) if self.taken < self.len => service::INPUT_MORE,
            (true, _) => service::INPUT_BYTES,
            (false, true) => service::INPUT_END,
            (false, false) => service::INPUT_NOTHING,
        };
        if words[0] == service::INPUT_BYTES {
            (self.taken, self.len, self.whole) = (0, 0, false);
        }
        if words[0] == service::INPUT_NOTHING && !self.asked {
            self.ask();
        }
        reply_recv(REQUESTS, 0, &words[..BEFORE + count.div_ceil(8)])
    }

    /// Waits for what was asked for, or until ticks have passed, if there are any.
    fn wait(&mut self, ticks: u64) {
        let mut left = ticks;
        while !self.is_ready() {
            if ticks > 0 {
                self.alarm.set();
            }
            let signals = recv(WAKE).badge;
            self.attend(signals);
            if ticks > 0 && signals & BY_ALARM != 0 {
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }

    /// Asks for the next portion.
    fn ask(&mut self) {
        (self.asked, self.loose, self.silent) = (true, 0, 0);
        if let Err(error) = set(DATA, self.next.into()) {
            self.lose(error);
        }
    }

    /// The line interrupts, or the alarm rang.
    fn attend(&mut self, signals: u64) {
        if signals & BY_INTERRUPT != 0
            && let Err(error) = line::attend(|| self.drain())
        {
            self.lose(error);
        }
        if signals & BY_ALARM != 0 {
            self.alarm.rang();
            self.silent += 1;
        }
        if self.loose > 0 && self.silent >= OVERDUE {
            self.ask();
        }
        if self.loose > 0 {
            self.alarm.set();
        }
    }

    /// There is nothing to be had any more.
    fn lose(&mut self, error: Error) {
        println!("input: the line does not work any more ({error:?})");
        self.ended = true;
        self.tell();
    }

    /// Tells the client, if it is to be told, that there is something to be had.
    fn tell(&self) {
        if self.tells {
            send(CHANGED, 0, &[]);
        }
    }

    /// Reads what came, until there is nothing.
    fn drain(&mut self) -> Outcome {
        let mut quiet = Quiet::default();
        for _ in 0..PATIENCE {
            let came = status(STATE)? & CAME != 0;
            if quiet.after(came) {
                return Ok(());
            }
            if !came {
                continue;
            }
            let byte = status(DATA)?.to_le_bytes()[0];
            self.window.rotate_left(1);
            self.window[FRAME - 1] = byte;
            self.loose = (self.loose + 1).min(FRAME);
            self.silent = 0;
            if let Some((number, portion)) = input::open(&self.window) {
                self.loose = 0;
                self.window = [0; FRAME];
                self.came(number, &portion);
            }
        }
        // Nobody asked for so much.
        Err(Error::IllegalOperation)
    }

    /// A portion came; unless it is the one that is asked for, it came once more.
    fn came(&mut self, number: u8, portion: &Portion) {
        if number != self.next || !self.asked || self.ended {
            return;
        }
        (self.next, self.asked) = (self.next.wrapping_add(1), false);
        let bytes = portion.bytes();
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self.ended = bytes.is_empty();
        self.whole = self.len > 0 && !(portion.goes_on() && self.len + PORTION <= ROOM);
        if self.is_ready() {
            self.tell();
        } else {
            self.ask();
        }
    }
}

/// Reads a register of the line: what holds a state, or a byte that is asked for again if it is
/// lost.
fn status(register: u16) -> Result<u64, Error> {
    object::port_status(service::SLOT_PORTS, layout::PORT_INPUT + register, 1)
}

/// Writes one, after a vote.
fn set(register: u16, value: u64) -> Outcome {
    object::port_set(service::SLOT_PORTS, layout::PORT_INPUT + register, 1, value)
}

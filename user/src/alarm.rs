//! A second thread of a program, which waits for the interval timer while the program does
//! something else, and signals a notification then.
//!
//! It is begun anew for each tick. One that was begun and is not needed any more rings all the
//! same.

use rcoe_abi::{Error, ObjectType, Rights, service};

use crate::object;
use crate::{call, make, memory, recv, send};

/// Slots that this takes from the first one it is given: the thread, its buffer, what it waits for
/// to be begun, and by what it is.
const THREAD: u64 = 0;
const BUFFER: u64 = 1;
const BEGIN: u64 = 2;
const BEGINNER: u64 = 3;
/// How many that are.
pub const SLOTS: u64 = 4;
/// Words of its stack.
const STACK: usize = 512;

/// The alarm.
#[derive(Debug)]
pub struct Alarm {
    first: u64,
    set: bool,
}

impl Alarm {
    /// Starts the thread, with a priority, and uses [`SLOTS`] slots of the own table from the first
    /// one on. It signals by the capability in the slot `signal`, which is to have a badge: without
    /// one a signal that nobody waits for is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(first: u64, signal: u64, priority: u64) -> Result<Self, Error> {
        let thread = first + THREAD;
        let made = make(ObjectType::Tcb, thread)
            && make(ObjectType::Frame, first + BUFFER)
            && make(ObjectType::Notification, first + BEGIN);
        let stack = memory(STACK).filter(|_| made);
        let stack = stack.ok_or(Error::NotEnoughMemory)?;
        let (table, space) = (service::SLOT_CNODE, service::SLOT_VSPACE);
        object::mint(table, first + BEGINNER, first + BEGIN, Rights::ALL, 1)?;
        let top = stack.as_ptr_range().end as u64 - 16;
        object::configure(thread, table, space, first + BUFFER, service::SLOT_ROOT)?;
        object::set_priority(thread, priority)?;
        let arguments = [first + BEGIN, signal];
        object::write_registers(thread, run as *const () as u64, top, arguments)?;
        object::resume(thread)?;
        Ok(Self { first, set: false })
    }

    /// Has it ring after a tick, if it is not about to.
    pub fn set(&mut self) {
        if !self.set {
            send(self.first + BEGINNER, 0, &[]);
            self.set = true;
        }
    }

    /// It rang: to be said before it is set again.
    pub const fn rang(&mut self) {
        self.set = false;
    }
}

/// The thread: each time it is begun, it lets a tick of the timer pass. What it sends and receives
/// fits into registers, so it needs nothing of the program's buffer.
extern "C" fn run(begin: u64, signal: u64) -> ! {
    loop {
        let _ = recv(begin);
        call(service::SLOT_TIMER, service::TIMER_SLEEP, &[1]);
        send(signal, 0, &[]);
    }
}

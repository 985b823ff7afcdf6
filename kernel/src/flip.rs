//! For fault injection: one bit of a register of the program that runs is changed, at a moment
//! between two ticks.
//!
//! Whoever injects from outside has the machine stand still at an event, and a program that
//! computes has none but its ticks. So the victim's kernel does it, at an interrupt of its own
//! timer that comes earlier than its tick, and tells the cycle. The victim is to be a follower: a
//! primary's ticks are everybody's.

use rcoe_kernel_objects::arch::{CONTEXT_WORDS, IP};

use crate::arch::{self, interrupts};
use crate::diary::Diary;

/// Which bit, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flip {
    /// Who does it.
    pub(crate) replica: u64,
    /// Cycles since the start, after which it is the next time that a program is left alone.
    pub(crate) at: u64,
    /// And so many microseconds more.
    pub(crate) behind: u64,
    /// Selects the register.
    pub(crate) register: u64,
    /// Selects the bit.
    pub(crate) bit: u64,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is too early.
    Ahead,
    /// The next interrupt of the timer is the moment.
    Armed,
    /// The next one is a tick again.
    Done,
    /// Nothing is left to do.
    Spent,
}

/// A flip, and the timer that it is made by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Striker {
    flip: Flip,
    stage: Stage,
    /// Processor cycles at the start.
    began: u64,
    /// Units of the local timer between ticks, and from one to the moment.
    period: u64,
    behind: u64,
}

impl Striker {
    /// For a replica whose timer has so many units in a millisecond, and between ticks.
    pub(crate) fn new(flip: Flip, timer: u64, period: u32) -> Self {
        let period = u64::from(period);
        let behind = flip.behind * timer / 1_000;
        Self {
            flip,
            stage: Stage::Ahead,
            began: arch::cycles(),
            period,
            behind: behind.min(period.saturating_sub(1)).max(1),
        }
    }

    /// A program is left alone: has the timer come at the moment, if that is near.
    pub(crate) fn prepare(&mut self) {
        let due = arch::cycles() - self.began >= self.flip.at;
        if self.stage == Stage::Ahead && due {
            self.stage = Stage::Armed;
            interrupts::begin_slice(self.behind);
        }
    }

    /// The timer came, while a program had these registers: changes the bit, if this is the moment.
    pub(crate) fn strike(&mut self, context: &mut [u64; CONTEXT_WORDS], diary: Diary) {
        match self.stage {
            Stage::Ahead | Stage::Spent => return,
            Stage::Armed => {
                // General registers are before the instruction pointer.
                let register = self.flip.register % IP as u64;
                let register = usize::try_from(register).expect("a small number");
                context[register] ^= 1 << (self.flip.bit % 64);
                diary.line(format_args!("flipped {}", arch::cycles()));
                interrupts::begin_slice(self.period - self.behind);
            }
            Stage::Done => interrupts::begin_slice(self.period),
        }
        self.stage = match self.stage {
            Stage::Armed => Stage::Done,
            _ => Stage::Spent,
        };
    }
}

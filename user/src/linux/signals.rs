//! Signals of a program: what it says of them, which have come, and what becomes of them.
//!
//! A signal is for a thread or for the process. It waits until a thread may take it, which is where
//! that thread would go on after a call or an exception, or where it waits in a call: so all
//! replicas have it taken at the same place. One for the process is taken by the first thread, in
//! the order of their places, that does not block it.
//!
//! Not covered: stopping a program, and being told by a descriptor (`signalfd`).

mod calls;
mod deliver;
mod fault;
mod frame;
mod info;
mod pending;
mod send;
mod stack;
mod timer;
mod timers;

use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{
    SA_NOCLDWAIT, SIGABRT, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGILL, SIGKILL, SIGQUIT, SIGSEGV,
    SIGSTOP, SIGSYS, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, SIGXCPU, SIGXFSZ,
};

use super::{Errno, Machine, Process};
pub use fault::Trap;
pub(crate) use info::Info;
pub(crate) use pending::{QUEUE, Queue};
use stack::Stack;
use timer::Timer;
use timers::Timers;

/// Signals, of which the real-time ones, which queue, begin there.
const SIGNALS: usize = 64;
/// The last one.
pub(crate) const LAST: u32 = 64;
const FIRST_QUEUED: u32 = 32;
/// What a process comes to that a signal ends is so much more than the signal.
pub(crate) const ENDED_BY: u64 = 256;

/// Signals, one bit each.
pub(crate) type Set = u64;

const fn bit(signal: u32) -> Set {
    1 << (signal - 1)
}

const fn set<const N: usize>(signals: [u32; N]) -> Set {
    let (mut all, mut index) = (0, 0);
    while index < N {
        all |= bit(signals[index]);
        index += 1;
    }
    all
}

/// Those that nobody blocks, handles or ignores.
const FIXED: Set = set([SIGKILL, SIGSTOP]);
/// Those that do nothing to a program that has said nothing of them, and those that stop it.
const IGNORED: Set = set([SIGCHLD, SIGCONT, SIGURG, SIGWINCH]);
const STOPS: Set = set([SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU]);
/// Those of what a thread does itself, which are taken first.
const OWN_FAULTS: Set = set([SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGSYS]);
/// Those that end a program where it takes them: Linux would write its memory to a file.
const WITH_MEMORY: Set = OWN_FAULTS | set([SIGQUIT, SIGABRT, SIGXCPU, SIGXFSZ]);

/// What a signal does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Ignore,
    /// It ends the program.
    End,
    /// It would stop it.
    Stop,
    /// The program handles it.
    Handle,
}

/// What a program says of a signal.
#[derive(Clone, Copy, Debug, Default)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: Set,
}

impl Action {
    const fn has(&self, flag: u32) -> bool {
        self.flags & flag as u64 != 0
    }
}

/// Whom a signal is for: the thread at a place, or the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    Thread(usize),
    Process,
}

/// Signals of a process.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    actions: [Action; SIGNALS],
    /// Those that have come for the process.
    pending: Set,
    timer: Timer,
    timers: Timers,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            actions: [Action::default(); SIGNALS],
            pending: 0,
            timer: Timer::default(),
            timers: Timers::default(),
        }
    }
}

/// Signals of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Those that it blocks.
    mask: Set,
    /// Those that it blocks again when the call is over that it is in.
    saved: Option<Set>,
    /// Those that the call that it is in waits for.
    awaited: Set,
    /// Those that have come for it.
    pending: Set,
    /// Where its handlers run that want that.
    stack: Stack,
    /// What it was stopped for the last time: the processor's code, the exception, the address.
    trap: [u64; 3],
}

impl Own {
    /// What none has yet.
    pub(crate) const NONE: Self = Self {
        mask: 0,
        saved: None,
        awaited: 0,
        pending: 0,
        stack: Stack::NONE,
        trap: [0; 3],
    };

    /// What a thread has that this one makes.
    pub(crate) const fn of_new(self) -> Self {
        Self {
            mask: self.mask,
            ..Self::NONE
        }
    }

    /// What the first thread of a process has that this one makes.
    pub(crate) const fn of_child(self) -> Self {
        Self {
            mask: self.mask,
            stack: self.stack,
            ..Self::NONE
        }
    }

    /// What a thread has that executes another program.
    const fn of_executed(self) -> Self {
        Self {
            mask: self.mask,
            pending: self.pending,
            ..Self::NONE
        }
    }

    /// The call that it was in is over.
    pub(crate) fn call_ended(&mut self) {
        self.awaited = 0;
        if let Some(mask) = self.saved.take() {
            self.mask = mask;
        }
    }
}

impl<M: Machine> Process<'_, M> {
    /// Of the process at a place: how many signals wait; and of its first thread those that it
    /// blocks and those that have come for it.
    pub(crate) fn signals_of(&self, process: usize) -> (u32, Set, Set) {
        let own = self
            .threads
            .first_of(process)
            .map_or(Own::NONE, |it| it.signals);
        let task = &self.task.all()[process].signals;
        let queued = task.pending.count_ones() + own.pending.count_ones();
        (queued, own.mask, own.pending)
    }

    /// What becomes of signals when the process at hand executes another program.
    pub(crate) fn execute_signals(&mut self) {
        self.queue.forget_timers();
        self.task.signals.execute();
        let own = &mut self.threads.current().signals;
        *own = own.of_executed();
    }
}

/// The signal that a word names.
fn number(word: u64) -> Result<u32, Errno> {
    let number = u32::try_from(word & 0xffff_ffff).unwrap_or(0);
    let known = number >= 1 && number as usize <= SIGNALS;
    known.then_some(number).ok_or(Errno(EINVAL))
}

impl Signals {
    fn action(&mut self, signal: u32) -> &mut Action {
        &mut self.actions[signal as usize - 1]
    }

    /// Those of a child; with what is said of each, or what is handled is said nothing of.
    pub(crate) fn of_child(&self, clears: bool) -> Self {
        let mut child = Self {
            actions: self.actions,
            ..Self::default()
        };
        if clears {
            child.handle_none();
        }
        child
    }

    /// Nothing is said any more of signals that are handled.
    pub(crate) fn handle_none(&mut self) {
        for action in &mut self.actions {
            if action.handler > 1 {
                *action = Action::default();
            }
        }
    }

    /// Those of a process that executes another program: what it handled is said nothing of.
    fn execute(&mut self) {
        self.handle_none();
        self.timers = Timers::default();
    }

    /// Those that have come for the process; those that are ignored; those that are handled.
    pub(crate) fn sets(&self) -> [Set; 3] {
        let of = |is: fn(u64) -> bool| {
            let all = (1..).zip(&self.actions);
            all.filter(|(_, it)| is(it.handler))
                .fold(0, |set, (signal, _)| set | bit(signal))
        };
        [self.pending, of(|it| it == 1), of(|it| it > 1)]
    }

    /// Is the end of a child ignored? Is it, if not, nothing that one waits for?
    pub(crate) const fn forgets_children(&self) -> [bool; 2] {
        let action = &self.actions[SIGCHLD as usize - 1];
        [action.handler == 1, action.has(SA_NOCLDWAIT)]
    }

    fn effect(&self, signal: u32) -> Effect {
        let bit = bit(signal);
        match self.actions[signal as usize - 1].handler {
            0 if IGNORED & bit != 0 => Effect::Ignore,
            0 if STOPS & bit != 0 => Effect::Stop,
            0 => Effect::End,
            1 => Effect::Ignore,
            _ => Effect::Handle,
        }
    }
}

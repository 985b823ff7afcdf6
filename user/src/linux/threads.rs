//! Threads of a program: which there are, what each waits for, and which one runs.
//!
//! One runs at a time, and another one only where it made a call: when it has to wait, or has made
//! many. Who is next follows from their order alone. A call that has to wait is made again when
//! something may have changed, and remembers what it needs of its first time.
//!
//! Not covered: a thread that waits for another one without a call waits for ever.

use super::arch::CALL_WORDS;
use super::calls::{Next, PROCESS};
use super::errno::{LATER, word};
use super::locks::Lock;
use super::signals::Own;
use super::streams::Side;
use super::tasks::Name;
use super::{Errno, Machine, Process};

/// Most threads.
pub const THREADS: usize = 64;
/// Calls of a thread after which others have their turn.
const SLICE: u32 = 64;
/// The register that a call answers in.
pub(crate) const ANSWER: usize = 0;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// There is no such thread.
    Free,
    /// It runs or could: its last call has this answer.
    Ready(u64),
    /// Its call is made again.
    Waits,
}

/// What a call that is made again knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    /// Is it made again?
    pub(crate) again: bool,
    /// When it has waited long enough.
    pub(crate) until: Option<u64>,
    /// How much of it is done.
    pub(crate) done: u64,
    /// Where it waits to be woken.
    pub(crate) futex: Option<Futex>,
    /// Was it woken there?
    pub(crate) woken: bool,
    /// The process that it made, and waits for.
    pub(crate) child: Option<u64>,
    /// The end of a named pipe that it opens.
    pub(crate) opening: Option<Opening>,
    /// When it takes no more messages.
    pub(crate) last: Option<u64>,
    /// The lock of a file that it wants.
    pub(crate) lock: Option<Lock>,
}

/// An end of a pipe that is opened once the other one was opened more often than so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) pipe: usize,
    pub(crate) side: Side,
    pub(crate) seen: u64,
}

/// What a word of memory is, whoever sees it where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// One of a memory, at this address.
    Own(usize, u64),
    /// One of what is shared, by its number, at this byte of the page.
    Shared(u32, u64),
}

/// Who waits at a word of memory: since when, among others, and for what kinds of waking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Futex {
    pub(crate) place: Place,
    pub(crate) order: u64,
    pub(crate) kinds: u32,
}

/// A thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    /// The place of its process.
    pub(crate) process: usize,
    pub(crate) state: State,
    pub(crate) number: u64,
    pub(crate) call: u64,
    pub(crate) words: [u64; 6],
    pub(crate) wait: Wait,
    /// What is cleared when it ends, where others wait for that; and its list of locks.
    pub(crate) cleared: u64,
    pub(crate) robust: u64,
    /// Where FS and GS lead.
    pub(crate) pointers: [u64; 2],
    pub(crate) signals: Own,
    /// What it is called, unless it is the first one of its process.
    pub(crate) name: Option<Name>,
    /// Does it go on with other registers than those of its call?
    pub(crate) moved: bool,
}

/// All threads.
#[derive(Debug)]
pub(crate) struct Threads {
    all: [Thread; THREADS],
    /// Their registers at their last calls.
    registers: [[u64; CALL_WORDS]; THREADS],
    /// Who made the call that is looked at, and the process at hand.
    current: usize,
    process: usize,
    count: usize,
    /// Calls that are left of its turn.
    left: u32,
    /// The next thread's number, and the next place among those who wait.
    next: u64,
    order: u64,
}

/// When a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    Never,
    /// So many nanoseconds after its begin.
    In(u64),
    /// When the machine's clock shows this.
    At(u64),
}

/// How it goes on after a call.
#[cfg_attr(
    target_arch = "aarch64",
    expect(
        clippy::large_enum_variant,
        reason = "there is one at a time, and no heap"
    )
)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The thread that made it gets this answer.
    Answer(u64),
    /// It goes on with these registers.
    Resume([u64; CALL_WORDS]),
    /// It goes on where it was.
    Same,
    /// Another one runs by now.
    Other,
    /// The program has ended with this status.
    End(u64),
}

impl Thread {
    const FREE: Self = Self {
        process: 0,
        state: State::Free,
        number: 0,
        call: 0,
        words: [0; 6],
        wait: Wait {
            again: false,
            until: None,
            done: 0,
            futex: None,
            woken: false,
            child: None,
            opening: None,
            last: None,
            lock: None,
        },
        cleared: 0,
        robust: 0,
        pointers: [0; 2],
        signals: Own::NONE,
        name: None,
        moved: false,
    };
}

impl Threads {
    /// The first one.
    pub(crate) const fn new() -> Self {
        let mut all = [Thread::FREE; THREADS];
        all[0].state = State::Ready(0);
        all[0].number = PROCESS;
        Self {
            all,
            registers: [[0; CALL_WORDS]; THREADS],
            current: 0,
            process: 0,
            count: 1,
            left: SLICE,
            next: PROCESS + 1,
            order: 0,
        }
    }

    /// The thread whose call is looked at.
    pub(crate) const fn current(&mut self) -> &mut Thread {
        &mut self.all[self.current]
    }

    pub(crate) const fn index(&self) -> usize {
        self.current
    }

    /// The same, to be looked at only.
    pub(crate) const fn now(&self) -> &Thread {
        &self.all[self.current]
    }

    /// Its registers when it made the call.
    pub(crate) const fn registers(&self) -> &[u64; CALL_WORDS] {
        &self.registers[self.current]
    }

    /// The thread at a place.
    pub(crate) const fn at(&mut self, place: usize) -> &mut Thread {
        &mut self.all[place]
    }

    /// The current thread goes on with these registers.
    pub(crate) const fn set_registers(&mut self, registers: [u64; CALL_WORDS]) {
        self.registers[self.current] = registers;
        let thread = self.current();
        thread.state = State::Ready(registers[ANSWER]);
        thread.moved = true;
    }

    /// The thread at a place was stopped, with these registers: it is the current one.
    pub(crate) fn stopped(&mut self, place: usize, registers: [u64; CALL_WORDS]) {
        self.current = place;
        self.set_registers(registers);
        let thread = self.current();
        (thread.wait, thread.moved) = (Wait::default(), false);
    }

    /// The threads of this process are meant from here on.
    pub(crate) const fn enter(&mut self, process: usize) {
        self.process = process;
    }

    /// Is there one of the process at hand?
    pub(crate) fn is_there(&self, place: usize) -> bool {
        self.is_of(&self.all[place], self.process)
    }

    fn is_of(&self, thread: &Thread, process: usize) -> bool {
        thread.state != State::Free && thread.process == process
    }

    /// The place of the process of the thread at a place.
    pub(crate) const fn process(&self, place: usize) -> usize {
        self.all[place].process
    }

    /// How many threads the process at a place has.
    pub(crate) fn count_of(&self, process: usize) -> usize {
        let all = self.all.iter();
        all.filter(|it| self.is_of(it, process)).count()
    }

    /// What calls know that threads of the process at a place make again.
    pub(crate) fn waits_of(&self, process: usize) -> impl Iterator<Item = &Wait> {
        let all = self.all.iter();
        let own = all.filter(move |it| self.is_of(it, process) && it.wait.again);
        own.map(|it| &it.wait)
    }

    /// The first thread of the process at a place.
    pub(crate) fn first_of(&self, process: usize) -> Option<&Thread> {
        self.all.iter().find(|it| self.is_of(it, process))
    }

    /// How many there ever were.
    pub(crate) const fn made(&self) -> u64 {
        self.next - PROCESS
    }

    /// Has the process at hand any?
    pub(crate) fn has_any(&self) -> bool {
        (0..THREADS).any(|place| self.is_there(place))
    }

    /// There is no thread at this place any more.
    pub(crate) const fn end(&mut self, place: usize) {
        self.all[place].state = State::Free;
        self.count -= 1;
    }

    /// The place of the thread of this number, of the process at hand.
    pub(crate) fn place_of(&self, number: u64) -> Option<usize> {
        let found = self.anywhere(number);
        found.filter(|&place| self.is_there(place))
    }

    /// The place of the thread of this number, of any process.
    pub(crate) fn anywhere(&self, number: u64) -> Option<usize> {
        let mut all = self.all.iter();
        all.position(|it| it.state != State::Free && it.number == number)
    }

    /// The registers that it goes on with.
    fn going(&self) -> [u64; CALL_WORDS] {
        let mut registers = self.registers[self.current];
        if let State::Ready(answer) = self.all[self.current].state {
            registers[ANSWER] = answer;
        }
        registers
    }

    /// Others may have their turn before the thread goes on.
    pub(crate) const fn give_way(&mut self) {
        self.left = 0;
    }

    /// A place among those who wait.
    pub(crate) const fn queue(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// A place for a thread.
    pub(crate) fn free(&self) -> Option<usize> {
        self.all.iter().position(|it| it.state == State::Free)
    }

    /// A new thread that could run, as its maker says; its number.
    pub(crate) fn begin(
        &mut self,
        place: usize,
        thread: Thread,
        registers: [u64; CALL_WORDS],
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        self.count += 1;
        self.registers[place] = registers;
        self.all[place] = Thread {
            state: State::Ready(0),
            number,
            wait: Wait::default(),
            moved: false,
            ..thread
        };
        number
    }

    /// Who waits the longest at a word, for any of these kinds of waking.
    pub(crate) fn first_at(&mut self, place: Place, kinds: u32) -> Option<&mut Wait> {
        let at = |it: &Thread| {
            let futex = it.wait.futex.filter(|_| it.state != State::Free)?;
            (futex.place == place && futex.kinds & kinds != 0).then_some(futex.order)
        };
        let all = self.all.iter().enumerate();
        let first = all.filter_map(|(place, it)| Some((at(it)?, place))).min()?;
        Some(&mut self.all[first.1].wait)
    }

    /// Does anybody wait to open this end of a named pipe?
    pub(crate) fn opens(&self, pipe: usize, side: Side) -> bool {
        self.all.iter().any(|it| {
            let opening = it.wait.opening.filter(|_| it.state != State::Free);
            opening.is_some_and(|it| it.pipe == pipe && it.side == side)
        })
    }

    /// When the first of those who wait has waited long enough.
    fn until(&self) -> Option<u64> {
        let waiting = self.all.iter().filter(|it| it.state == State::Waits);
        waiting.filter_map(|it| it.wait.until).min()
    }
}

impl<M: Machine> Process<'_, M> {
    /// The thread at this place is looked at, and its process is at hand.
    fn enter_thread(&mut self, place: usize) {
        self.threads.current = place;
        self.enter(self.threads.all[place].process);
    }

    /// The thread at this place made a call, with these words and registers: how it goes on.
    pub fn called(
        &mut self,
        place: usize,
        number: u64,
        words: [u64; 6],
        registers: &[u64; CALL_WORDS],
    ) -> Turn {
        self.enter_thread(place);
        let threads = &mut self.threads;
        threads.registers[place] = *registers;
        let thread = threads.current();
        (thread.call, thread.words) = (number, words);
        thread.wait = Wait::default();
        self.ready = None;
        let next = self.call(number, words);
        self.settle(next);
        self.ring();
        self.end_others();
        if let Some(status) = self.over {
            return Turn::End(status);
        }
        let threads = &mut self.threads;
        threads.left = threads.left.saturating_sub(1);
        let goes_on = threads.left > 0 || threads.count == 1;
        if goes_on && self.is_ready() {
            self.answer()
        } else if let Some(status) = self.over {
            Turn::End(status)
        } else {
            self.turn(place)
        }
    }

    /// Can the current thread go on, once it has taken the signals that have come?
    fn is_ready(&mut self) -> bool {
        let ready = |it: &Self| matches!(it.threads.now().state, State::Ready(_));
        if ready(self)
            && let Some(ended) = self.take_signals()
        {
            self.end_process(ended);
        }
        ready(self) && self.over.is_none()
    }

    /// The process of the thread at this place ended so: how it goes on.
    pub(crate) fn ended(&mut self, place: usize, ended: u64) -> Turn {
        self.end_process(ended);
        match self.over {
            Some(status) => Turn::End(status),
            None => self.turn(place),
        }
    }

    /// Another thread has its turn, or the same one again.
    fn turn(&mut self, last: usize) -> Turn {
        loop {
            let found = self.choose(last);
            if let Some(status) = self.over {
                return Turn::End(status);
            }
            if found {
                return self.go(last);
            }
            let times = self.threads.until().into_iter();
            let until = times.chain(self.streams.next_alarm());
            let until = until
                .chain(self.next_ring())
                .chain(self.commit_late())
                .min();
            self.machine.wait(until);
            self.ready = None;
            self.ring();
            self.end_others();
        }
    }

    /// The current thread goes on, which is the one that is to be answered now.
    pub(crate) fn answer(&mut self) -> Turn {
        let registers = self.threads.going();
        let moved = core::mem::take(&mut self.threads.current().moved);
        if moved {
            Turn::Resume(registers)
        } else {
            Turn::Answer(registers[ANSWER])
        }
    }

    fn go(&mut self, last: usize) -> Turn {
        self.threads.left = SLICE;
        if self.threads.current == last {
            return self.answer();
        }
        let registers = self.threads.going();
        self.threads.current().moved = false;
        self.machine.go(self.threads.current, &registers);
        Turn::Other
    }

    /// The next thread behind this one that can go on is the current one then; tells whether there
    /// is any. Calls of those that wait are made again. The machine may be over by one of them.
    fn choose(&mut self, last: usize) -> bool {
        for step in 1..=THREADS {
            let place = (last + step) % THREADS;
            if self.threads.all[place].state == State::Waits {
                self.enter_thread(place);
                let thread = self.threads.current();
                thread.wait.again = true;
                let (number, words) = (thread.call, thread.words);
                let next = self.call(number, words);
                self.settle(next);
                self.end_others();
            }
            if self.over.is_some() {
                return false;
            }
            if self.threads.all[place].state != State::Free {
                self.enter_thread(place);
                if self.is_ready() {
                    return true;
                }
            }
        }
        false
    }

    /// What a call of the current thread came to.
    fn settle(&mut self, next: Next) {
        let state = match next {
            Next::Answer(answer) => {
                self.threads.current().signals.call_ended();
                State::Ready(word(answer))
            }
            Next::Resume => return,
            Next::Wait => State::Waits,
            Next::Exit(ended) => return self.end_process(ended),
            Next::Gone(ended) => return self.end_thread(ended),
        };
        self.threads.current().state = state;
        if state == State::Waits
            && let Some(ended) = self.take_signals()
        {
            self.end_process(ended);
        }
    }

    /// The current thread ends, and so does its process if it was the last one.
    fn end_thread(&mut self, ended: u64) {
        let place = self.threads.current;
        self.leave(place);
        self.forget_thread(place);
        self.threads.end(place);
        self.tend_fifos();
        if !self.threads.has_any() {
            self.end_process(ended);
        }
    }

    /// The current thread waits until something happens, or a time comes: `Ok` if that has come.
    pub(crate) fn pause(&mut self, limit: Limit) -> Result<(), Errno> {
        if limit == Limit::Never {
            return Err(LATER);
        }
        let now = self.machine.now();
        let wait = &mut self.threads.current().wait;
        let until = *wait.until.get_or_insert(match limit {
            Limit::In(time) => now.saturating_add(time),
            Limit::At(time) => time,
            Limit::Never => u64::MAX,
        });
        if until <= now { Ok(()) } else { Err(LATER) }
    }
}

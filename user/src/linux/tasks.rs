//! Processes: what each has of its own, and which one is at hand.
//!
//! Whatever is looked at is looked at for one process, whose call it mostly is: its memory, its
//! descriptors, its signals and its threads are meant until another one is entered. A process that
//! has ended stays until its parent has asked for it. Memory has a number of its own, as a process
//! that `vfork` made has its parent's.
//!
//! The machine ends with its first process, whatever else there is: as a container does. A process
//! whose parent ended is nobody's child, and gone when it ends.

use core::ops::{Deref, DerefMut};

use super::calls::PROCESS;
use super::signals::{ENDED_BY, Info, Signals, Whom};
use super::{Machine, Process};

/// Most processes, with those that have ended and wait to be asked for.
pub(super) const PROCESSES: usize = 16;
/// Most memories: one is filled for a process that has its old one yet.
pub(crate) const MEMORIES: usize = PROCESSES + 1;
/// The place of the first process.
const FIRST: usize = 0;
/// Bytes of the name of a process.
const NAME: usize = 15;
/// The parent of those that have none.
pub(crate) const NOBODY: u64 = 1;

/// One of something for each process or memory; it stands for that of the one at hand.
#[derive(Clone, Debug)]
pub(crate) struct Each<T, const COUNT: usize> {
    all: [T; COUNT],
    current: usize,
}

impl<T, const COUNT: usize> Each<T, COUNT> {
    pub(crate) const fn new(all: [T; COUNT]) -> Self {
        Self { all, current: 0 }
    }

    /// The place of the one at hand.
    pub(crate) const fn index(&self) -> usize {
        self.current
    }

    /// This one is at hand from here on.
    pub(crate) const fn enter(&mut self, place: usize) {
        self.current = place;
    }

    pub(crate) const fn at(&mut self, place: usize) -> &mut T {
        &mut self.all[place]
    }

    pub(crate) const fn all(&self) -> &[T; COUNT] {
        &self.all
    }
}

impl<T, const COUNT: usize> Deref for Each<T, COUNT> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.all[self.current]
    }
}

impl<T, const COUNT: usize> DerefMut for Each<T, COUNT> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.all[self.current]
    }
}

/// How far a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// There is none.
    Free,
    Lives,
    /// It ended so, and its parent has not asked yet.
    Ended(u64),
}

/// What a process is called: as its program was when that was executed, as far as there is room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    bytes: [u8; NAME],
    len: u8,
}

impl Name {
    /// That of a program at a path.
    pub(crate) fn new(path: &[u8]) -> Self {
        let mut name = Self {
            bytes: [0; NAME],
            len: 0,
        };
        let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        for (place, &byte) in name.bytes.iter_mut().zip(last) {
            *place = byte;
            name.len += 1;
        }
        name
    }

    /// This one, as far as there is room.
    pub(crate) fn exactly(text: &[u8]) -> Self {
        let len = text.len().min(NAME);
        let mut name = Self::new(b"");
        name.bytes[..len].copy_from_slice(&text[..len]);
        name.len = u8::try_from(len).unwrap_or(0);
        name
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What a process says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Manner {
    /// How nice it is to others.
    pub(crate) nice: i32,
    /// The signal that it gets when its parent ends, or 0.
    pub(crate) death: u64,
    /// May others see its memory? Does it keep capabilities? Do programs give it no rights?
    pub(crate) is_dumpable: bool,
    pub(crate) keeps: bool,
    pub(crate) gains_nothing: bool,
    /// Which kind of system it takes this for.
    pub(crate) like: u32,
}

impl Manner {
    const FIRST: Self = Self {
        nice: 0,
        death: 0,
        is_dumpable: true,
        keeps: false,
        gains_nothing: false,
        like: 0,
    };

    /// What a child says at first.
    pub(crate) const fn of_child(self) -> Self {
        Self { death: 0, ..self }
    }

    /// What a process says once it has executed a program.
    pub(crate) const fn executed(self) -> Self {
        Self {
            is_dumpable: true,
            keeps: false,
            ..self
        }
    }
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) life: Life,
    pub(crate) number: u64,
    pub(crate) parent: u64,
    pub(crate) group: u64,
    pub(crate) session: u64,
    /// The number of its memory.
    pub(crate) memory: usize,
    /// Its parent waits until it has a memory of its own, or ends.
    pub(crate) holds: bool,
    pub(crate) name: Name,
    pub(crate) manner: Manner,
    /// Where its stack began, with what it was given.
    pub(crate) start: u64,
    /// Has it executed a program of its own?
    pub(crate) executed: bool,
    pub(crate) signals: Signals,
    /// Something ended it, as this status says; that is seen to when the call is over.
    pub(crate) ended: Option<u64>,
}

impl Task {
    /// No process.
    pub(crate) fn free() -> Self {
        Self {
            life: Life::Free,
            number: 0,
            parent: 0,
            group: 0,
            session: 0,
            memory: 0,
            holds: false,
            name: Name::new(b""),
            manner: Manner::FIRST,
            start: 0,
            executed: false,
            signals: Signals::default(),
            ended: None,
        }
    }

    pub(crate) fn lives(&self) -> bool {
        self.life == Life::Lives
    }
}

/// All processes, of which there is the first.
pub(crate) fn all() -> Each<Task, PROCESSES> {
    let mut tasks = Each::new(core::array::from_fn(|_| Task::free()));
    *tasks = Task {
        life: Life::Lives,
        number: PROCESS,
        parent: NOBODY,
        group: PROCESS,
        session: PROCESS,
        ..Task::free()
    };
    tasks
}

/// What the host is told of a program that ended so.
pub(crate) const fn status_of_host(ended: u64) -> u64 {
    match ended.checked_sub(ENDED_BY) {
        Some(signal) => 128 + signal,
        None => ended,
    }
}

impl<M: Machine> Process<'_, M> {
    /// This process is at hand from here on.
    pub(crate) fn enter(&mut self, process: usize) {
        self.task.enter(process);
        self.files.enter(process);
        self.threads.enter(process);
        self.queue.enter(process);
        self.enter_memory(self.task.memory);
    }

    /// This memory is at hand from here on, whosever it is.
    pub(crate) fn enter_memory(&mut self, memory: usize) {
        self.space.enter(memory);
        self.store.enter(memory);
        self.machine.enter(memory);
    }

    /// Does something in another memory, or in the one at hand.
    pub(crate) fn within<T>(&mut self, memory: usize, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.space.index();
        self.enter_memory(memory);
        let done = act(self);
        self.enter_memory(before);
        done
    }

    /// Does something for another process, or for the one at hand.
    pub(crate) fn of<T>(&mut self, process: usize, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.task.index();
        self.enter(process);
        let done = act(self);
        self.enter(before);
        done
    }

    /// The place of the process of this number that lives.
    pub(crate) fn process_of(&self, number: u64) -> Option<usize> {
        let mut all = self.task.all().iter();
        all.position(|it| it.lives() && it.number == number)
    }

    /// The process at hand ended so: what it had is given back, and its parent is told.
    pub(crate) fn end_process(&mut self, ended: u64) {
        if self.task.index() == FIRST {
            self.over.get_or_insert(status_of_host(ended));
            return;
        }
        self.end_threads(None);
        self.close_all();
        self.tend_fifos();
        self.queue.forget(|_, _| true);
        self.leave_memory();
        self.task.signals = Signals::default();
        self.task.ended = None;
        self.orphan(self.task.number);
        self.task.life = Life::Ended(ended);
        self.tell_parent(ended);
    }

    /// The threads of the process at hand end, but for the one at a place.
    pub(crate) fn end_threads(&mut self, kept: Option<usize>) {
        let all = 0..super::THREADS;
        let ends = |it: &Self, place: usize| Some(place) != kept && it.threads.is_there(place);
        // None of them is woken instead of one that lives on.
        for place in all.clone() {
            if ends(self, place) {
                self.threads.at(place).wait.futex = None;
            }
        }
        for place in all {
            if ends(self, place) {
                self.leave(place);
                self.forget_thread(place);
                self.threads.end(place);
            }
        }
    }

    /// The children of a process have no parent any more.
    fn orphan(&mut self, parent: u64) {
        for place in 0..PROCESSES {
            let task = self.task.at(place);
            if task.parent != parent {
                continue;
            }
            task.parent = NOBODY;
            let signal = u32::try_from(task.manner.death).unwrap_or(0);
            match task.life {
                Life::Ended(_) => task.life = Life::Free,
                Life::Lives if signal != 0 => {
                    let info = Info::sent(signal, false, parent);
                    // It is lost if too many wait, as one by `kill` would be.
                    let _ = self.of(place, |it| it.post(Whom::Process, info));
                }
                _ => {}
            }
        }
    }

    /// The process at hand needs its memory no more; it is given back if nobody else has it.
    pub(crate) fn leave_memory(&mut self) {
        let memory = self.task.memory;
        let own = self.task.index();
        let mut others = self.task.all().iter().enumerate();
        let shared = others.any(|(at, it)| at != own && it.lives() && it.memory == memory);
        self.task.holds = false;
        if !shared {
            self.drop_memory(memory);
        }
    }

    /// Those that were ended by others end.
    pub(crate) fn end_others(&mut self) {
        for place in 0..PROCESSES {
            let task = self.task.at(place);
            if let Some(ended) = task.ended
                && task.lives()
            {
                self.of(place, |it| it.end_process(ended));
            }
        }
    }
}

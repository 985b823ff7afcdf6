//! Threads: where their words lie, and their states.

use crate::arch::{CONTEXT_WORDS, FPU_WORDS, start, start_guest};
use crate::field;
use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

const _: () = assert!(CONTEXT_WORDS <= field::STATE, "registers come first");
const _: () = assert!(field::FPU + FPU_WORDS <= 256, "a thread has 256 words");

/// Slots of a thread, in units from its beginning.
const SLOT_CSPACE: u32 = 13;
const SLOT_VSPACE: u32 = 14;
const SLOT_BUFFER: u32 = 15;
const SLOTS: [u32; 3] = [SLOT_CSPACE, SLOT_VSPACE, SLOT_BUFFER];

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum State {
    /// Not started, stopped, or lost to a fault that nobody handles.
    Inactive = 0,
    /// Runs or could.
    Ready = 1,
    /// Waits for a receiver.
    Sending = 2,
    /// Waits for a message.
    Receiving = 3,
    /// Waits for a signal.
    Waiting = 4,
    /// Waits for a reply.
    Calling = 5,
}

/// How the thread that runs is left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// A program, in the space with this root table.
    Program(Ref),
    /// A virtual processor, in the guest's space with this root table.
    Guest {
        /// The root table.
        root: Ref,
        /// Is an interrupt pending?
        lines: u64,
    },
}

/// What stays of a thread in the processor: floating-point state and more.
pub fn fpu_words<'a>(memory: &'a mut crate::Memory<'_>, tcb: Ref) -> &'a mut [u64] {
    memory.words_mut(tcb, field::FPU, FPU_WORDS)
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a thread does.
    ///
    /// # Panics
    /// If the thread is damaged.
    #[must_use]
    pub fn state(&self, tcb: Ref) -> State {
        match self.mem.get(tcb, field::STATE) {
            0 => State::Inactive,
            1 => State::Ready,
            2 => State::Sending,
            3 => State::Receiving,
            4 => State::Waiting,
            5 => State::Calling,
            other => panic!("no thread has state {other}"),
        }
    }

    pub(crate) fn set_state(&mut self, tcb: Ref, state: State) {
        self.mem.set(tcb, field::STATE, state as u64);
    }

    /// A reference that a thread holds.
    pub(crate) fn held(&self, tcb: Ref, field: usize) -> Ref {
        let units = self.mem.get(tcb, field);
        Ref::from_units(u32::try_from(units).expect("a reference"))
    }

    pub(crate) fn hold(&mut self, tcb: Ref, field: usize, place: Ref) {
        self.mem.set(tcb, field, u64::from(place.units()));
    }

    /// A register of a thread.
    #[must_use]
    pub fn register(&self, tcb: Ref, index: usize) -> u64 {
        assert!(index < CONTEXT_WORDS);
        self.mem.get(tcb, index)
    }

    /// Sets a register of a thread.
    pub fn set_register(&mut self, tcb: Ref, index: usize, value: u64) {
        assert!(index < CONTEXT_WORDS);
        self.mem.set(tcb, index, value);
    }

    /// All registers of the running thread: to be set at kernel entry, and taken at the exit.
    ///
    /// # Panics
    /// If none runs.
    #[inline]
    pub fn context(&mut self) -> &mut [u64; CONTEXT_WORDS] {
        let words = self.mem.words_mut(self.current, 0, CONTEXT_WORDS);
        words.try_into().expect("as many words as asked for")
    }

    /// Makes the thread that is to run harmless; its address space.
    pub fn restore(&mut self) -> Option<Space> {
        let tcb = self.current.some()?;
        let root = self.space_of(tcb)?;
        let space = self.space_to_enter(tcb, root);
        match space {
            Space::Program(_) => start(self.context()),
            Space::Guest { .. } => start_guest(self.context()),
        }
        Some(space)
    }

    /// Makes registers harmless that are to be those of the running thread.
    pub fn tame(&self, context: &mut [u64; CONTEXT_WORDS]) {
        if self.runs_guest() {
            start_guest(context);
        } else {
            start(context);
        }
    }

    pub(crate) fn slots_of(tcb: Ref) -> [Ref; 3] {
        SLOTS.map(|index| tcb.slot(index))
    }

    pub(crate) fn cspace_slot(tcb: Ref) -> Ref {
        tcb.slot(SLOT_CSPACE)
    }

    pub(crate) fn vspace_slot(tcb: Ref) -> Ref {
        tcb.slot(SLOT_VSPACE)
    }

    pub(crate) fn buffer_slot(tcb: Ref) -> Ref {
        tcb.slot(SLOT_BUFFER)
    }

    /// The root table of its address space.
    pub(crate) fn space_of(&self, tcb: Ref) -> Option<Ref> {
        match self.cap(Self::vspace_slot(tcb)) {
            Cap::VSpace { obj, .. } => Some(obj),
            _ => None,
        }
    }

    /// Can it run: has it an address space?
    pub(crate) fn has_space(&self, tcb: Ref) -> bool {
        self.space_of(tcb).is_some()
    }
}

//! How a thread runs: its flags, and the pointers to its own data.
//!
//! A thread whose *calls are faults* is a program of another system, whose numbers would be
//! mistaken for the kernel's: each call goes to its fault handler, and its number and arguments
//! join the trace in every mode, because nothing else of what it asks for does.
//!
//! The bits by which a processor stops behind an instruction are the kernel's. A step is begun here
//! and ended by an exception, wherever interrupts come meanwhile, so it is the same instruction in
//! all replicas.
//!
//! A server has all that there is of such a thread: its registers come with calls and faults, page
//! faults too, and go with its answers; its floating-point state is read and written.
//!
//! Some of this stays in the processor until another thread runs. What is changed of the thread
//! that the processor holds is saved before and loaded again.

use rcoe_abi::{Syscall, ThreadFlags};
use rcoe_core::{Compare, mix};

use crate::arch::{
    CALL_ARGUMENTS, CONTEXT_WORDS, FLOAT_WORDS, FPU_WORDS, KERNEL_BITS, NUMBER, POINTERS, STATUS,
    STEP, STEP_VECTOR, STEPPING,
};
use crate::fault::Fault;
use crate::field;
use crate::kernel::Kernel;
use crate::sphere::{Sphere, kind};
use crate::{Memory, Ref};

impl<S: Sphere> Kernel<'_, S> {
    pub(crate) fn set_flags(&mut self, tcb: Ref, flags: ThreadFlags) {
        let steps = flags.contains(ThreadFlags::STEPS);
        let status = self.register(tcb, STATUS) & !STEP;
        self.set_register(tcb, STATUS, if steps { status | STEP } else { status });
        self.forget_rest(tcb);
        self.change(tcb, |memory| {
            memory.set(tcb, field::FLAGS, flags.word());
            if let Some(place) = STEPPING {
                memory.set(tcb, place, u64::from(steps));
            }
        });
    }

    pub(crate) fn write_pointers(&mut self, tcb: Ref, pointers: [u64; 2]) {
        self.change(tcb, |memory| {
            for (place, pointer) in POINTERS.into_iter().zip(pointers) {
                memory.set(tcb, place, pointer);
            }
        });
    }

    /// Answers a thread that `server` did not answer when it could have: whatever it waits for, it
    /// goes on with the registers of the server's message.
    pub(crate) fn write_context(&mut self, server: Ref, tcb: Ref) {
        self.suspend(tcb);
        let status = self.register(tcb, STATUS);
        for index in 0..CONTEXT_WORDS {
            let word = self.word(server, index);
            self.set_register(tcb, index, word);
        }
        self.keep_kernel_bits(tcb, status);
        self.tell_registers(tcb);
        self.resume(tcb);
    }

    /// Gives a thread the floating-point state of another one.
    pub(crate) fn copy_floats(&mut self, from: Ref, to: Ref) {
        let kept = self.kept_words(from);
        self.set_kept(to, 0, &kept[..FLOAT_WORDS]);
    }

    /// Tells a thread words that stay in the processor of another one, or of its own: so many from
    /// the first on.
    pub(crate) fn deliver_kept(&mut self, to: Ref, of: Ref, first: usize, len: usize) {
        let kept = self.kept_words(of);
        self.deliver(to, 0, 0, &kept[first..first + len]);
    }

    /// Gives a thread the floating-point state of the server's message.
    pub(crate) fn write_floats(&mut self, server: Ref, tcb: Ref) {
        let floats: [u64; FLOAT_WORDS] = core::array::from_fn(|index| self.word(server, index));
        self.set_kept(tcb, 0, &floats);
    }

    /// What stays in the processor while a thread runs.
    fn kept_words(&mut self, tcb: Ref) -> [u64; FPU_WORDS] {
        if self.fpu == tcb {
            self.sphere.switch_fpu(&mut self.mem, Some(tcb), tcb);
        }
        core::array::from_fn(|index| self.mem.get(tcb, field::FPU + index))
    }

    /// Sets some of that.
    pub(crate) fn set_kept(&mut self, tcb: Ref, first: usize, words: &[u64]) {
        self.change(tcb, |memory| {
            for (&word, index) in words.iter().zip(first..) {
                memory.set(tcb, field::FPU + index, word);
            }
        });
    }

    /// Changes what the processor may hold of a thread.
    pub(crate) fn change(&mut self, tcb: Ref, change: impl FnOnce(&mut Memory<'_>)) {
        let held = self.fpu == tcb;
        if held {
            self.sphere.switch_fpu(&mut self.mem, Some(tcb), tcb);
        }
        change(&mut self.mem);
        if held {
            self.sphere.switch_fpu(&mut self.mem, None, tcb);
        }
    }

    /// Is it a program of another system?
    pub(crate) fn is_foreign(&self, tcb: Ref) -> bool {
        self.flags(tcb) & ThreadFlags::CALLS_ARE_FAULTS.word() != 0
    }

    fn flags(&self, tcb: Ref) -> u64 {
        self.mem.get(tcb, field::FLAGS)
    }

    /// The system call that a thread makes, if it is one of the kernel's.
    pub(crate) fn call_of(&self, tcb: Ref) -> Option<Syscall> {
        // A flag makes it a number that no call has.
        let foreign = self.flags(tcb) & ThreadFlags::CALLS_ARE_FAULTS.word();
        Syscall::from_number(self.register(tcb, NUMBER) | foreign << 63)
    }

    /// A digest of number and arguments of a call that is not the kernel's.
    pub(crate) fn digest_foreign(&self, tcb: Ref) -> u64 {
        let words = core::iter::once(NUMBER).chain(CALL_ARGUMENTS);
        words.fold(0, |digest, index| mix(digest ^ self.register(tcb, index)))
    }

    /// A thread that is to execute its call again has not done that step.
    pub(crate) fn keep_step(&mut self, tcb: Ref) {
        if self.flags(tcb) & ThreadFlags::STEPS.word() != 0 {
            let status = self.register(tcb, STATUS);
            self.set_register(tcb, STATUS, status | STEP);
        }
    }

    /// Whatever somebody wrote into a thread's status, the kernel's own bits are those they were.
    pub(crate) fn keep_kernel_bits(&mut self, tcb: Ref, before: u64) {
        let status = self.register(tcb, STATUS);
        let kept = status & !KERNEL_BITS | before & KERNEL_BITS;
        self.set_register(tcb, STATUS, kept);
    }

    /// Folds the registers that a server gave a thread into the trace, where all is compared.
    pub(crate) fn tell_registers(&mut self, tcb: Ref) {
        if self.sphere.compare() == Compare::Every {
            let words = self.mem.words(tcb, 0, CONTEXT_WORDS);
            let digest = words.iter().fold(0, |digest, &word| mix(digest ^ word));
            self.sphere.event(kind::DELIVERED, digest);
        }
    }

    /// A thread that ended a step begins another: what it was stopped for is told first. One that
    /// does not step, but had itself stopped, is told so once.
    pub(crate) fn step_again(&mut self, tcb: Ref, fault: Fault) {
        let ended = matches!(
            fault,
            Fault::Exception {
                vector: STEP_VECTOR,
                ..
            }
        );
        if ended {
            let status = self.register(tcb, STATUS);
            self.set_register(tcb, STATUS, status & !STEP);
            self.keep_step(tcb);
        }
    }
}

//! Faults and unknown system calls become messages to the thread's fault handler.

use rcoe_abi::Rights;
use rcoe_abi::invocation::FaultLabel;
use rcoe_core::mix;

use crate::arch::{CONTEXT_WORDS, IP, NUMBER, SP, STATUS};
use crate::field;
use crate::kernel::Kernel;
use crate::sphere::{Sphere, kind};
use crate::tcb::State;
use crate::{Cap, Ref};

/// Why a thread cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No access to this address; the processor's error code.
    Page { address: u64, code: u64 },
    /// Exception by this vector, with error code.
    Exception { vector: u64, code: u64 },
    /// Not a system call of this kernel.
    UnknownSyscall,
}

impl Fault {
    const fn words(self) -> (FaultLabel, u64, u64) {
        match self {
            Self::Page { address, code } => (FaultLabel::Page, address, code),
            Self::Exception { vector, code } => (FaultLabel::Exception, vector, code),
            Self::UnknownSyscall => (FaultLabel::UnknownSyscall, 0, 0),
        }
    }
}

impl<S: Sphere> Kernel<'_, S> {
    /// The running thread faults. All replicas fault alike, or one is faulty: so this is voted
    /// (EDCC'15, the exception-handler barrier).
    pub fn fault(&mut self, fault: Fault) {
        let Some(tcb) = self.current.some() else {
            return;
        };
        let (label, first, second) = fault.words();
        let ip = self.register(tcb, IP);
        let digest = mix(mix(mix(label as u64 ^ first.rotate_left(8)) ^ second) ^ ip);
        self.sphere.event(kind::FAULT, digest);
        if fault != Fault::UnknownSyscall {
            self.forget_rest(tcb);
            self.sphere.vote();
        }
        self.step_again(tcb, fault);
        self.mem.set(tcb, field::FAULT, label as u64);
        self.mem.set(tcb, field::FAULT_WORDS, first);
        self.mem.set(tcb, field::FAULT_WORDS + 1, second);
        self.send_fault(tcb);
    }

    fn send_fault(&mut self, tcb: Ref) {
        self.unready(tcb);
        self.set_state(tcb, State::Inactive);
        let pointer = self.mem.get(tcb, field::HANDLER);
        let handler = self.lookup_cap(tcb, pointer);
        if let Ok((_, Cap::Endpoint { obj, rights, badge })) = handler
            && rights.contains(Rights::WRITE)
        {
            self.mem.set(tcb, field::GRANTS, 0);
            self.send(tcb, obj, badge, true, true);
        } else {
            self.sphere.unhandled(tcb);
        }
    }

    /// What the handler gets to know.
    pub(crate) fn transfer_fault(&mut self, from: Ref, to: Ref, badge: u64) {
        let label = self.mem.get(from, field::FAULT);
        let (first, second) = (
            self.mem.get(from, field::FAULT_WORDS),
            self.mem.get(from, field::FAULT_WORDS + 1),
        );
        if label == FaultLabel::UnknownSyscall as u64 {
            let mut words = [0; CONTEXT_WORDS + 1];
            words[0] = self.register(from, NUMBER);
            words[1..].copy_from_slice(self.mem.words(from, 0, CONTEXT_WORDS));
            self.deliver(to, badge, label, &words);
            return;
        }
        let (ip, sp) = (self.register(from, IP), self.register(from, SP));
        let mut words = [0; CONTEXT_WORDS + 4];
        words[..4].copy_from_slice(&[ip, first, second, sp]);
        words[4..].copy_from_slice(self.mem.words(from, 0, CONTEXT_WORDS));
        // A page fault is answered by mapping a page; a program of another system may be told.
        let page = label == FaultLabel::Page as u64 && !self.has_server(from);
        self.deliver(
            to,
            badge,
            label,
            &words[..if page { 4 } else { words.len() }],
        );
    }

    /// Is a thread all in its handler's hands, as a program of another system or a guest is?
    fn has_server(&self, tcb: Ref) -> bool {
        self.is_foreign(tcb) || self.is_guest(tcb)
    }

    /// The handler answers: label 0 lets the thread go on, with the registers of the reply unless
    /// that is a page fault of a program of this system. Anything else leaves it stopped.
    pub(crate) fn reply_to_fault(&mut self, handler: Ref, tcb: Ref) {
        let fault = self.mem.get(tcb, field::FAULT);
        let info = self.info(handler);
        if info.label() != 0 {
            self.set_state(tcb, State::Inactive);
            return;
        }
        if fault != FaultLabel::Page as u64 || self.has_server(tcb) {
            let status = self.register(tcb, STATUS);
            for index in 0..CONTEXT_WORDS.min(info.len()) {
                let word = self.word(handler, index);
                self.set_register(tcb, index, word);
            }
            self.keep_kernel_bits(tcb, status);
            self.tell_registers(tcb);
        }
        self.mem.set(tcb, field::FAULT, 0);
        self.make_ready(tcb);
    }
}

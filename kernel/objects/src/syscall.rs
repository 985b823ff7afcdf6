//! System calls: the kernel's entry from a thread.

use rcoe_abi::{Error, MAX_MESSAGE, MessageInfo, Rights, Syscall};
use rcoe_core::{Compare, mix};

use crate::arch::{CAP, INFO};
use crate::fault::Fault;
use crate::field;
use crate::kernel::Kernel;
use crate::long::Budget;
use crate::sphere::{Sphere, kind};
use crate::{Cap, Ref};

/// System calls after which there is a vote even if nothing goes out.
const CHECK_EVERY: u32 = 1024;

impl<S: Sphere> Kernel<'_, S> {
    /// The running thread makes the system call that its registers describe.
    pub fn syscall(&mut self) {
        let Some(tcb) = self.current.some() else {
            return;
        };
        let Some(call) = self.call_of(tcb) else {
            let digest = self.digest_foreign(tcb);
            self.trace_call(0, digest);
            return self.fault(Fault::UnknownSyscall);
        };
        let compared = self.sphere.compare() >= Compare::Args;
        let digest = if compared {
            self.digest_message(tcb, MAX_MESSAGE)
        } else {
            0
        };
        self.trace_call(call as u32, digest);
        match call {
            Syscall::Yield => self.give_way(),
            Syscall::AddTrace => self.add_trace(tcb),
            Syscall::Reply => self.reply(tcb),
            Syscall::ReplyRecv => {
                self.reply(tcb);
                self.receive_at(tcb, true);
            }
            Syscall::Recv => self.receive_at(tcb, true),
            Syscall::NbRecv => self.receive_at(tcb, false),
            Syscall::Call => self.send_to(tcb, true, true),
            Syscall::Send => self.send_to(tcb, true, false),
            Syscall::NbSend => self.send_to(tcb, false, false),
        }
    }

    /// Folds the call into the trace, by its number, with its arguments as far as the mode asks for
    /// them: those of calls that are not the kernel's in every mode. The call itself is an event in
    /// any case: a call that lets another thread run is a step of the logical clock, or replicas
    /// would be preempted at different sides of it.
    fn trace_call(&mut self, number: u32, digest: u64) {
        self.sphere.event(kind::of_call(number), digest);
        if self.sphere.compare() == Compare::Every {
            self.sphere.vote();
            return;
        }
        self.unchecked += 1;
        if self.unchecked >= CHECK_EVERY {
            self.unchecked = 0;
            self.sphere.event(kind::CHECK, 0);
            self.sphere.vote();
        }
    }

    /// `FT_Add_Trace`: the message's words join the signature, in every mode.
    fn add_trace(&mut self, tcb: Ref) {
        let pointer = self.register(tcb, CAP);
        match self.lookup_cap(tcb, pointer) {
            Ok((_, Cap::Trace)) => {
                let words = (0..self.info(tcb).len()).map(|index| self.word(tcb, index));
                let digest = words.fold(0, |digest, word| mix(digest ^ word));
                self.sphere.event(kind::DATA, digest);
                self.succeed(tcb);
            }
            Ok(_) => self.fail(tcb, Error::InvalidCapability),
            Err(error) => self.fail(tcb, error),
        }
    }

    fn fail(&mut self, tcb: Ref, error: Error) {
        self.set_register(tcb, INFO, MessageInfo::new(error as u64, 0).word());
        self.set_register(tcb, CAP, 0);
        self.tell(tcb);
    }

    fn receive_at(&mut self, tcb: Ref, blocking: bool) {
        let pointer = self.register(tcb, CAP);
        match self.lookup_cap(tcb, pointer) {
            Ok((_, Cap::Endpoint { obj, rights, .. })) if rights.contains(Rights::READ) => {
                self.receive(tcb, obj, blocking);
            }
            Ok((_, Cap::Notification { obj, rights, .. })) if rights.contains(Rights::READ) => {
                self.wait(tcb, obj, blocking);
            }
            Ok(_) => self.fail(tcb, Error::AccessDenied),
            Err(error) => self.fail(tcb, error),
        }
    }

    fn send_to(&mut self, tcb: Ref, blocking: bool, call: bool) {
        let pointer = self.register(tcb, CAP);
        let (slot, cap) = match self.lookup_cap(tcb, pointer) {
            Ok(found) => found,
            Err(error) => return self.fail_unless_done(tcb, error),
        };
        match cap {
            Cap::Endpoint { obj, rights, badge } if rights.contains(Rights::WRITE) => {
                let grants = rights.contains(Rights::GRANT);
                if let Err(error) = self.check_caps(tcb, grants) {
                    return self.fail(tcb, error);
                }
                self.mem.set(tcb, field::GRANTS, u64::from(grants));
                self.send(tcb, obj, badge, blocking, call);
            }
            Cap::Notification { obj, rights, badge } if rights.contains(Rights::WRITE) => {
                self.signal(obj, badge);
                self.succeed(tcb);
            }
            Cap::Endpoint { .. } | Cap::Notification { .. } => {
                self.fail(tcb, Error::AccessDenied);
            }
            _ => self.invoke_message(tcb, slot),
        }
    }

    /// A signal has no answer, but a call of it wants one.
    fn succeed(&mut self, tcb: Ref) {
        self.set_register(tcb, INFO, 0);
        self.tell(tcb);
    }

    /// The pointer of a call leads nowhere, unless the call itself saw to that.
    #[cold]
    fn fail_unless_done(&mut self, tcb: Ref, error: Error) {
        let mut budget = Budget::new();
        if !self.has_rest(tcb) {
            self.fail(tcb, error);
        } else if self.drain(&mut budget) {
            self.end_rest(tcb);
        } else {
            self.make_again(tcb);
        }
    }

    #[inline(never)]
    fn invoke_message(&mut self, tcb: Ref, slot: Ref) {
        let mut budget = Budget::new();
        // What is in line to be ended may be what this is about.
        if !self.drain(&mut budget) {
            return self.make_again(tcb);
        }
        if self.has_rest(tcb) {
            return self.end_rest(tcb);
        }
        match self.decode(tcb, slot) {
            Ok(invocation) => match self.invoke(tcb, invocation, &mut budget) {
                Some(answer) if self.drain(&mut budget) => {
                    self.deliver_answer(tcb, &answer);
                }
                Some(_) => self.leave_rest(tcb),
                None => self.make_again(tcb),
            },
            Err(error) => self.fail(tcb, error),
        }
    }
}

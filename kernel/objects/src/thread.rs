//! Threads as objects: what a message to one asks, and doing it. How their words lie is told in
//! [`crate::tcb`], how they run in [`crate::sched`] and [`crate::manner`].

use rcoe_abi::{Error, Label, Rights, ThreadFlags, layout};

use crate::arch::{
    self, ARGUMENTS, CONTEXT_WORDS, FLOAT_WORDS, GUEST_FIRST, GUEST_WORDS, IP, POINTERS, SP,
};
use crate::cap::Mapping;
use crate::cnode::guarded;
use crate::field;
use crate::kernel::Kernel;
use crate::lookup::POINTER_BITS;
use crate::queue::PRIORITIES;
use crate::request::{Answer, Arguments};
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// What is to be done: checked. A pair is a slot, and what is derived from the capability there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Configure {
        cspace: (Ref, Cap),
        vspace: (Ref, Cap),
        buffer: (Ref, Cap),
        handler: u64,
    },
    SetTable {
        table: (Ref, Cap),
    },
    SetPriority {
        priority: u64,
    },
    WriteRegisters {
        words: [u64; 4],
    },
    ReadRegisters,
    SetFlags {
        flags: ThreadFlags,
    },
    WritePointers {
        pointers: [u64; 2],
    },
    WriteContext,
    CopyFloats {
        from: Ref,
    },
    ReadFloats,
    WriteFloats,
    ReadGuest,
    WriteGuest,
    Resume,
    Suspend,
    Bind {
        notification: Ref,
    },
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a message asks of a thread.
    pub(crate) fn decode_thread(
        &self,
        message: Arguments,
        label: Label,
        tcb: Ref,
    ) -> Result<Operation, Error> {
        match label {
            Label::TcbConfigure => self.decode_configure(message),
            Label::TcbSetTable => self.decode_set_table(message),
            Label::TcbSetPriority => self.decode_set_priority(message),
            Label::TcbWriteRegisters => {
                let words = self.arguments(message)?;
                Ok(Operation::WriteRegisters { words })
            }
            Label::TcbReadRegisters => Ok(Operation::ReadRegisters),
            Label::TcbSetFlags => {
                let [flags] = self.arguments(message)?;
                let flags = ThreadFlags::from_word(flags).ok_or(Error::InvalidArgument)?;
                Ok(Operation::SetFlags { flags })
            }
            Label::TcbWritePointers => self.decode_write_pointers(message),
            Label::TcbWriteContext if message.len < CONTEXT_WORDS || message.tcb == tcb => {
                Err(Error::IllegalOperation)
            }
            Label::TcbWriteContext => Ok(Operation::WriteContext),
            Label::TcbCopyFloats => self.decode_copy_floats(message),
            Label::TcbReadFloats => Ok(Operation::ReadFloats),
            Label::TcbWriteFloats => self.decode_write_floats(message),
            Label::TcbReadGuest => self.decode_read_guest(tcb),
            Label::TcbWriteGuest => self.decode_write_guest(message, tcb),
            Label::TcbResume => Ok(Operation::Resume),
            Label::TcbSuspend => Ok(Operation::Suspend),
            Label::TcbBindNotification => self.decode_bind(message, tcb),
            _ => Err(Error::IllegalOperation),
        }
    }

    fn decode_configure(&self, message: Arguments) -> Result<Operation, Error> {
        let [cspace, vspace, buffer, handler] = self.arguments(message)?;
        let (cspace_slot, Cap::CNode { obj, bits, .. }) = self.lookup_cap(message.tcb, cspace)?
        else {
            return Err(Error::InvalidCapability);
        };
        // A pointer in the thread's space is just a slot number: the rest of it is guard.
        let cspace = Cap::CNode {
            obj,
            bits,
            guard_bits: POINTER_BITS - bits,
            guard: 0,
        };
        let (vspace_slot, vspace @ Cap::VSpace { .. }) = self.lookup_cap(message.tcb, vspace)?
        else {
            return Err(Error::InvalidCapability);
        };
        Ok(Operation::Configure {
            cspace: (cspace_slot, cspace),
            vspace: (vspace_slot, vspace),
            buffer: self.decode_buffer(message, buffer)?,
            handler,
        })
    }

    /// The frame for message words that `pointer` leads to.
    fn decode_buffer(&self, message: Arguments, pointer: u64) -> Result<(Ref, Cap), Error> {
        let (
            slot,
            Cap::Frame {
                obj, level, rights, ..
            },
        ) = self.lookup_cap(message.tcb, pointer)?
        else {
            return Err(Error::InvalidCapability);
        };
        if !rights.contains(Rights::READ_WRITE) {
            return Err(Error::AccessDenied);
        }
        let buffer = Cap::Frame {
            obj,
            level,
            rights,
            mapping: Mapping::default(),
        };
        Ok((slot, buffer))
    }

    fn decode_set_table(&self, message: Arguments) -> Result<Operation, Error> {
        let [pointer, guard] = self.arguments(message)?;
        let (from, Cap::CNode { obj, bits, .. }) = self.lookup_cap(message.tcb, pointer)? else {
            return Err(Error::InvalidCapability);
        };
        let cap = guarded(obj, bits, Some(guard))?;
        Ok(Operation::SetTable { table: (from, cap) })
    }

    fn decode_set_priority(&self, message: Arguments) -> Result<Operation, Error> {
        let [priority] = self.arguments(message)?;
        let own = self.mem.get(message.tcb, field::PRIORITY);
        if priority >= PRIORITIES || priority > own {
            return Err(Error::RangeError);
        }
        Ok(Operation::SetPriority { priority })
    }

    fn decode_write_pointers(&self, message: Arguments) -> Result<Operation, Error> {
        let pointers = self.arguments(message)?;
        if pointers.iter().any(|&pointer| pointer >= layout::USER_END) {
            return Err(Error::RangeError);
        }
        if pointers[POINTERS.len()..].iter().any(|&more| more != 0) {
            return Err(Error::InvalidArgument);
        }
        Ok(Operation::WritePointers { pointers })
    }

    fn decode_copy_floats(&self, message: Arguments) -> Result<Operation, Error> {
        let [pointer] = self.arguments(message)?;
        match self.lookup_cap(message.tcb, pointer)? {
            (_, Cap::Tcb { obj: from }) => Ok(Operation::CopyFloats { from }),
            _ => Err(Error::InvalidCapability),
        }
    }

    fn decode_write_floats(&self, message: Arguments) -> Result<Operation, Error> {
        if message.len < FLOAT_WORDS {
            return Err(Error::IllegalOperation);
        }
        let holds = arch::holds_floats(|index| self.word(message.tcb, index));
        holds
            .then_some(Operation::WriteFloats)
            .ok_or(Error::InvalidArgument)
    }

    fn decode_bind(&self, message: Arguments, tcb: Ref) -> Result<Operation, Error> {
        let [pointer] = self.arguments(message)?;
        match self.lookup_cap(message.tcb, pointer)? {
            (_, Cap::Notification { obj, rights, .. })
                if rights.contains(Rights::READ)
                    && !self.is_bound(obj)
                    && self.held(tcb, field::BOUND).is_none() =>
            {
                Ok(Operation::Bind { notification: obj })
            }
            _ => Err(Error::InvalidCapability),
        }
    }

    /// Does it, for `caller`.
    pub(crate) fn invoke_thread(&mut self, caller: Ref, tcb: Ref, operation: Operation) -> Answer {
        match operation {
            Operation::Configure {
                cspace,
                vspace,
                buffer,
                handler,
            } => {
                self.configure(tcb, [cspace, vspace, buffer]);
                self.mem.set(tcb, field::HANDLER, handler);
            }
            Operation::SetTable { table } => self.exchange(Self::cspace_slot(tcb), table),
            Operation::SetPriority { priority } => self.set_priority(tcb, priority),
            Operation::WriteRegisters { words } => self.write_registers(tcb, words),
            Operation::ReadRegisters => {
                let words = [IP, SP].map(|index| self.register(tcb, index));
                return Answer::two(words, 2);
            }
            Operation::SetFlags { flags } => self.set_flags(tcb, flags),
            Operation::WritePointers { pointers } => self.write_pointers(tcb, pointers),
            Operation::WriteContext => self.write_context(caller, tcb),
            Operation::CopyFloats { from } => self.copy_floats(from, tcb),
            Operation::ReadFloats => return Answer::kept(tcb, 0, FLOAT_WORDS),
            Operation::WriteFloats => self.write_floats(caller, tcb),
            Operation::ReadGuest => return Answer::kept(tcb, GUEST_FIRST, GUEST_WORDS),
            Operation::WriteGuest => self.write_guest(caller, tcb),
            Operation::Resume => self.resume(tcb),
            Operation::Suspend => self.suspend(tcb),
            Operation::Bind { notification } => self.bind(tcb, notification),
        }
        Answer::NOTHING
    }

    /// Replaces what a thread holds in its slots.
    fn configure(&mut self, tcb: Ref, sources: [(Ref, Cap); 3]) {
        for (slot, source) in Self::slots_of(tcb).into_iter().zip(sources) {
            self.exchange(slot, source);
        }
        self.settle_guest(tcb);
        if let Some(buffer) = self.buffer(tcb) {
            self.own_page(buffer);
        }
    }

    /// Replaces what a thread holds in a slot by what is derived from `source`.
    fn exchange(&mut self, slot: Ref, (source, cap): (Ref, Cap)) {
        if self.cap(slot) == cap {
            return;
        }
        self.delete(slot);
        // The source may have been in what ended with what was there.
        if !matches!(self.cap(source), Cap::Null | Cap::Zombie { .. }) {
            self.insert_derived(slot, cap, source);
        }
    }

    fn write_registers(&mut self, tcb: Ref, words: [u64; 4]) {
        let registers = [IP, SP, ARGUMENTS[0], ARGUMENTS[1]];
        for (index, value) in registers.into_iter().zip(words) {
            self.set_register(tcb, index, value);
        }
        self.forget_rest(tcb);
    }
}

//! Invoking: what decoding found right is done, and cannot fail.

use rcoe_abi::{FIRST_BUFFER_WORD, IN_REGISTERS, ObjectType};

use crate::arch::{ARGUMENTS, IP, SP};
use crate::cap::Mapping;
use crate::decode::{Invocation, OUTPUT_MAX};
use crate::kernel::Kernel;
use crate::long::Budget;
use crate::sphere::Sphere;
use crate::tcb::field;
use crate::{Cap, Ref};

const _: () = assert!(FIRST_BUFFER_WORD + IN_REGISTERS < 512 && ObjectType::Frame as u64 == 6);

/// Words that an invocation answers with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    words: [u64; 2],
    len: usize,
    /// How many are the same in all replicas.
    told: usize,
    /// The thread whose floating-point state is the answer instead, if any.
    floats: Ref,
}

impl Answer {
    const NOTHING: Self = Self {
        words: [0; 2],
        len: 0,
        told: 0,
        floats: Ref::NONE,
    };

    const fn one(word: u64) -> Self {
        Self {
            words: [word, 0],
            len: 1,
            told: 1,
            ..Self::NOTHING
        }
    }

    const fn floats(from: Ref) -> Self {
        Self {
            floats: from,
            ..Self::NOTHING
        }
    }
}

impl<S: Sphere> Kernel<'_, S> {
    /// Does it, for `caller`, as far as a step goes. No answer means that the call is to be made
    /// again.
    pub(crate) fn invoke(
        &mut self,
        caller: Ref,
        invocation: Invocation,
        budget: &mut Budget,
    ) -> Option<Answer> {
        let done = match invocation {
            Invocation::Retype(retype) => self.retype(retype, budget),
            Invocation::Revoke { slot } => self.revoke(slot, budget),
            other => return Some(self.invoke_at_once(caller, other)),
        };
        done.then_some(Answer::NOTHING)
    }

    /// Tells a thread what its invocation came to.
    pub(crate) fn deliver_answer(&mut self, tcb: Ref, answer: &Answer) {
        match answer.floats.some() {
            Some(from) => self.deliver_floats(tcb, from),
            None => self.deliver_own(tcb, 0, 0, &answer.words[..answer.len], answer.told),
        }
    }

    /// What is short. Tables that it ends are emptied later.
    fn invoke_at_once(&mut self, caller: Ref, invocation: Invocation) -> Answer {
        match invocation {
            Invocation::Derive { from, to, cap } => self.insert_derived(to, cap, from),
            Invocation::Move { from, to } => self.move_cap(from, to),
            Invocation::Delete { slot } => self.delete(slot),
            Invocation::MapFrame {
                slot,
                root,
                rights,
                cap,
            } => {
                if let Cap::Frame {
                    obj,
                    level,
                    mapping,
                    ..
                } = cap
                {
                    self.map_frame(root, mapping.address, (obj, level), rights);
                    self.set_cap(slot, cap);
                }
            }
            Invocation::UnmapFrame { slot } => self.invoke_unmap(slot),
            Invocation::MapTable {
                slot,
                root,
                level,
                cap,
            } => {
                if let Cap::Table { obj, mapping, .. } = cap {
                    self.map_table(root, mapping.address, level, obj);
                    self.set_cap(slot, cap);
                }
            }
            Invocation::UnmapTable { slot } => self.invoke_unmap(slot),
            Invocation::MakeIrq { control, line, to } => {
                self.insert_derived(to, Cap::Irq { line }, control);
            }
            Invocation::SetIrq { line, source } => self.set_irq(line, source),
            Invocation::AckIrq { line } => self.sphere.irq_enable(line, true),
            Invocation::ClearIrq { line } => self.clear_irq(line),
            other => return self.invoke_rest(caller, other),
        }
        Answer::NOTHING
    }

    fn invoke_rest(&mut self, caller: Ref, invocation: Invocation) -> Answer {
        match invocation {
            Invocation::Configure {
                tcb,
                cspace,
                vspace,
                buffer,
                handler,
            } => {
                self.configure(tcb, [cspace, vspace, buffer]);
                self.mem.set(tcb, field::HANDLER, handler);
            }
            Invocation::SetTable { tcb, from, cap } => {
                self.exchange(Self::cspace_slot(tcb), from, cap);
            }
            Invocation::SetPriority { tcb, priority } => self.set_priority(tcb, priority),
            Invocation::WriteRegisters { tcb, words } => {
                let [ip, sp, first, second] = words;
                let registers = [IP, SP, ARGUMENTS[0], ARGUMENTS[1]];
                for (index, value) in registers.into_iter().zip([ip, sp, first, second]) {
                    self.set_register(tcb, index, value);
                }
                self.forget_rest(tcb);
            }
            Invocation::SetFlags { tcb, flags } => self.set_flags(tcb, flags),
            Invocation::WritePointers { tcb, pointers } => self.write_pointers(tcb, pointers),
            Invocation::WriteContext { tcb } => self.write_context(caller, tcb),
            Invocation::CopyFloats { from, to } => self.copy_floats(from, to),
            Invocation::WriteFloats { tcb } => self.write_floats(caller, tcb),
            Invocation::Resume { tcb } => self.resume(tcb),
            Invocation::Suspend { tcb } => self.suspend(tcb),
            Invocation::Bind { tcb, notification } => self.bind(tcb, notification),
            other => return self.invoke_device(caller, other),
        }
        Answer::NOTHING
    }

    fn invoke_device(&mut self, caller: Ref, invocation: Invocation) -> Answer {
        match invocation {
            Invocation::ReadRegisters { tcb } => Answer {
                words: [self.register(tcb, IP), self.register(tcb, SP)],
                len: 2,
                told: 2,
                floats: Ref::NONE,
            },
            Invocation::ReadFloats { tcb } => Answer::floats(tcb),
            Invocation::PortIn {
                port,
                width,
                repeatable,
            } => Answer::one(u64::from(self.sphere.port_in(port, width, repeatable))),
            Invocation::MakeShared { source, to, cap } => {
                self.insert_derived(to, cap, source);
                Answer::NOTHING
            }
            Invocation::MapShared { slot, share } => {
                self.map_shared(slot, share);
                Answer::NOTHING
            }
            Invocation::Meet { place } => Answer {
                words: self.meet(caller, place),
                len: 2,
                told: 1,
                floats: Ref::NONE,
            },
            Invocation::Device(access) => {
                let word = self.access(access);
                word.map_or(Answer::NOTHING, Answer::one)
            }
            Invocation::PortOut {
                port,
                width,
                value,
                repeatable,
            } => {
                self.sphere.port_out(port, width, value, repeatable);
                Answer::NOTHING
            }
            Invocation::PortOutBytes { port, len } => {
                let mut bytes = [0; OUTPUT_MAX];
                for (index, chunk) in bytes[..len].chunks_mut(8).enumerate() {
                    let word = self.word(caller, index + 2).to_le_bytes();
                    chunk.copy_from_slice(&word[..chunk.len()]);
                }
                self.sphere.port_out_bytes(port, &bytes[..len]);
                Answer::NOTHING
            }
            other => unreachable!("{other:?} is done elsewhere"),
        }
    }

    /// Replaces what a thread holds in its slots.
    fn configure(&mut self, tcb: Ref, sources: [(Ref, Cap); 3]) {
        for (slot, (source, cap)) in Self::slots_of(tcb).into_iter().zip(sources) {
            self.exchange(slot, source, cap);
        }
        if let Some(buffer) = self.buffer(tcb) {
            self.own_page(buffer);
        }
    }

    /// Replaces what a thread holds in a slot by what is derived from `source`.
    fn exchange(&mut self, slot: Ref, source: Ref, cap: Cap) {
        if self.cap(slot) == cap {
            return;
        }
        self.delete(slot);
        // The source may have been in what ended with what was there.
        if !matches!(self.cap(source), Cap::Null | Cap::Zombie { .. }) {
            self.insert_derived(slot, cap, source);
        }
    }

    fn invoke_unmap(&mut self, slot: Ref) {
        let unmapped = Mapping::default();
        match self.cap(slot) {
            Cap::Frame {
                obj,
                level,
                rights,
                mapping,
            } => {
                self.unmap_frame(obj, level, mapping);
                let mapping = unmapped;
                self.set_cap(
                    slot,
                    Cap::Frame {
                        obj,
                        level,
                        rights,
                        mapping,
                    },
                );
            }
            Cap::Shared {
                page,
                rights,
                mapping,
            } => {
                self.unmap_shared(page, mapping);
                let mapping = unmapped;
                self.set_cap(
                    slot,
                    Cap::Shared {
                        page,
                        rights,
                        mapping,
                    },
                );
            }
            Cap::Table {
                obj,
                level,
                mapping,
            } => {
                self.unmap_table(obj, level, mapping);
                let mapping = unmapped;
                self.set_cap(
                    slot,
                    Cap::Table {
                        obj,
                        level: 0,
                        mapping,
                    },
                );
            }
            other => unreachable!("decoding found {other:?} mapped"),
        }
    }

    fn set_irq(&mut self, line: u32, source: Ref) {
        self.clear_irq(line);
        if let cap @ Cap::Notification { .. } = self.cap(source) {
            self.insert_derived(self.irqs.slot(line), cap, source);
            self.sphere.irq_enable(line, true);
        }
    }

    fn clear_irq(&mut self, line: u32) {
        self.sphere.irq_enable(line, false);
        let slot = self.irqs.slot(line);
        if !self.is_empty(slot) {
            self.delete(slot);
        }
    }
}

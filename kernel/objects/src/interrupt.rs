//! Interrupts: each line has a handler, which says whose notification is signalled and when the
//! line is let through again.

use rcoe_abi::{Error, Label, Rights};

use crate::kernel::Kernel;
use crate::request::{Answer, Arguments};
use crate::sphere::{IRQ_LINES, Sphere};
use crate::{Cap, Ref};

/// What is to be done: checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Make { control: Ref, line: u32, to: Ref },
    Set { line: u32, source: Ref },
    Ack { line: u32 },
    Clear { line: u32 },
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a message asks of the control over interrupts.
    pub(crate) fn decode_irq_control(
        &self,
        message: Arguments,
        label: Label,
    ) -> Result<Operation, Error> {
        if label != Label::IrqControlGet {
            return Err(Error::IllegalOperation);
        }
        let [line, pointer] = self.arguments(message)?;
        let line = u32::try_from(line).map_err(|_| Error::RangeError)?;
        if line >= IRQ_LINES {
            return Err(Error::RangeError);
        }
        let to = self.vacant_slot(message, pointer)?;
        Ok(Operation::Make {
            control: message.slot,
            line,
            to,
        })
    }

    /// What a message asks of the handler of an interrupt line.
    pub(crate) fn decode_irq(
        &self,
        message: Arguments,
        label: Label,
        line: u32,
    ) -> Result<Operation, Error> {
        match label {
            Label::IrqAck => Ok(Operation::Ack { line }),
            Label::IrqClear => Ok(Operation::Clear { line }),
            Label::IrqSetNotification => {
                let [pointer] = self.arguments(message)?;
                match self.lookup_cap(message.tcb, pointer)? {
                    (source, Cap::Notification { rights, .. })
                        if rights.contains(Rights::WRITE) =>
                    {
                        Ok(Operation::Set { line, source })
                    }
                    _ => Err(Error::InvalidCapability),
                }
            }
            _ => Err(Error::IllegalOperation),
        }
    }

    /// Does it.
    pub(crate) fn invoke_interrupt(&mut self, operation: Operation) -> Answer {
        match operation {
            Operation::Make { control, line, to } => {
                self.insert_derived(to, Cap::Irq { line }, control);
            }
            Operation::Set { line, source } => self.set_irq(line, source),
            Operation::Ack { line } => self.sphere.irq_enable(line, true),
            Operation::Clear { line } => self.clear_irq(line),
        }
        Answer::NOTHING
    }

    fn set_irq(&mut self, line: u32, source: Ref) {
        self.clear_irq(line);
        if let cap @ Cap::Notification { .. } = self.cap(source) {
            self.insert_derived(self.irqs.slot(line), cap, source);
            self.sphere.irq_enable(line, true);
        }
    }

    /// Takes the notification of a line away, and keeps the line off.
    pub(crate) fn clear_irq(&mut self, line: u32) {
        self.sphere.irq_enable(line, false);
        let slot = self.irqs.slot(line);
        if !self.is_empty(slot) {
            self.delete(slot);
        }
    }

    /// The notification of an interrupt line, and its badge.
    pub(crate) fn irq_target(&self, line: u32) -> Option<(Ref, u64)> {
        match self.cap(self.irqs.slot(line)) {
            Cap::Notification { obj, badge, .. } => Some((obj, badge)),
            _ => None,
        }
    }

    /// An interrupt that all replicas agreed on: signals its notification. Its line stays off until
    /// the handler acknowledges.
    pub fn interrupt(&mut self, line: u32) {
        if let Some((notification, badge)) = self.irq_target(line) {
            self.signal(notification, badge);
        }
    }
}

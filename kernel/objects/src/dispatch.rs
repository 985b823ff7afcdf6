//! Which module decodes what is asked of which kind of object, and which does it.

use rcoe_abi::{Error, Label};

use crate::kernel::Kernel;
use crate::long::Budget;
use crate::request::{Answer, Arguments};
use crate::retype::Retype;
use crate::sphere::Sphere;
use crate::{Cap, Ref};
use crate::{cnode, device, frame, interrupt, port, shared, thread};

/// What is to be done: every check has been made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Invocation {
    Untyped(Retype),
    CNode(cnode::Operation),
    Thread(Ref, thread::Operation),
    Frame(frame::Operation),
    Interrupt(interrupt::Operation),
    Port(port::Operation),
    Device(device::Operation),
    Shared(shared::Operation),
}

impl<S: Sphere> Kernel<'_, S> {
    /// What the message of `tcb` asks of the capability in `slot`.
    pub(crate) fn decode(&self, tcb: Ref, slot: Ref) -> Result<Invocation, Error> {
        let info = self.info(tcb);
        let label = Label::from_label(info.label()).ok_or(Error::IllegalOperation)?;
        let len = info.len();
        let message = Arguments { tcb, slot, len };
        Ok(match self.cap(slot) {
            Cap::Untyped { .. } => Invocation::Untyped(self.decode_untyped(message, label)?),
            Cap::CNode { obj, bits, .. } => {
                Invocation::CNode(self.decode_cnode(message, label, obj, bits)?)
            }
            Cap::Tcb { obj } => Invocation::Thread(obj, self.decode_thread(message, label, obj)?),
            Cap::Frame { .. } => Invocation::Frame(self.decode_frame(message, label)?),
            Cap::Table { .. } => Invocation::Frame(self.decode_table(message, label)?),
            Cap::IrqControl => Invocation::Interrupt(self.decode_irq_control(message, label)?),
            Cap::Irq { line } => Invocation::Interrupt(self.decode_irq(message, label, line)?),
            Cap::Ports { first, last } => {
                Invocation::Port(self.decode_ports(message, label, first..=last)?)
            }
            Cap::Devices { first, last } if label == Label::DeviceFrame => {
                Invocation::Shared(self.decode_device_frame(message, (first, last))?)
            }
            Cap::Devices { first, last } => {
                Invocation::Device(self.decode_device(message, label, (first, last))?)
            }
            Cap::Shared { .. } => Invocation::Shared(self.decode_shared(message, label)?),
            // What is sent to an endpoint or a notification is no request to the kernel.
            Cap::Endpoint { .. }
            | Cap::Notification { .. }
            | Cap::VSpace { .. }
            | Cap::Trace
            | Cap::Null
            | Cap::Zombie { .. } => return Err(Error::IllegalOperation),
        })
    }

    /// Does it, for `caller`, as far as a step goes. No answer means that the call is to be made
    /// again.
    pub(crate) fn invoke(
        &mut self,
        caller: Ref,
        invocation: Invocation,
        budget: &mut Budget,
    ) -> Option<Answer> {
        Some(match invocation {
            Invocation::Untyped(it) => {
                return self.retype(it, budget).then_some(Answer::NOTHING);
            }
            Invocation::CNode(it) => return self.invoke_cnode(it, budget),
            Invocation::Thread(tcb, it) => self.invoke_thread(caller, tcb, it),
            Invocation::Frame(it) => self.invoke_frame(it),
            Invocation::Interrupt(it) => self.invoke_interrupt(it),
            Invocation::Port(it) => self.invoke_port(caller, it),
            Invocation::Device(it) => self.invoke_device(it),
            Invocation::Shared(it) => self.invoke_shared(caller, it),
        })
    }
}

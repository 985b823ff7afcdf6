//! Guests that are stopped between an exclusive load and its store.
//!
//! What enters the kernel there has the store fail. If it enters all kernels at that instruction,
//! all fail alike; but a timer of this core's own, the counter, a breakpoint on the way to a target
//! and the first write to a page whose writes are noted enter this one alone. So there the guest
//! goes back to the load, and what it has executed from there on counts as not executed
//! ([`rcoe_kernel_objects::arch::aarch64::exclusive`]). Its registers are further than that, so
//! before they are compared it goes on to behind the store.
//!
//! *Contract*: whatever entered this kernel alone, the guest executes as many instructions as the
//! others' do, with the same outcome.
//!
//! *Not covered*: a guest that comes back from an exception of its own into the midst of such a
//! sequence, and is interrupted again before the store.

use rcoe_kernel_objects::Kernel;
use rcoe_kernel_objects::arch::aarch64::exclusive;
use rcoe_kernel_objects::arch::{CALL_BYTES, IP, STATUS};

use crate::arch;
use crate::machine::Machine;
use crate::sphere::Replicated;

/// The running guest's instruction at an address.
fn instruction(kernel: &Kernel<'static, Replicated>, status: u64, ip: u64) -> Option<u32> {
    kernel.instruction(arch::place_of(ip, status)?)
}

/// Is this instruction of the running thread, if that is a guest, between an exclusive load and its
/// store, or one of them?
pub(crate) fn is_exclusive(kernel: &mut Kernel<'static, Replicated>, ip: u64) -> bool {
    let status = kernel.context()[STATUS];
    kernel.runs_guest() && exclusive::is_within(ip, |place| instruction(kernel, status, place))
}

impl Machine {
    /// Something has entered this kernel that need not enter the others': a guest within such a
    /// sequence goes back to its beginning.
    pub(crate) fn retrace(&mut self) {
        let Some(coupling) = &mut self.coupling else {
            return;
        };
        if !self.kernel.runs_guest() {
            return;
        }
        let (ip, status) = (self.kernel.context()[IP], self.kernel.context()[STATUS]);
        let progress = self.kernel.sphere.progress();
        let begun = exclusive::begun(ip, |place| instruction(&self.kernel, status, place));
        if let Some(begun) = begun.filter(|&it| coupling.may_take_back(it, progress, ip)) {
            self.kernel.context()[IP] = ip - begun.executed * CALL_BYTES;
            self.kernel.sphere.take_back(begun.executed);
            coupling.take_back(begun);
        }
    }
}

//! What the objects need of the replication part: the trace, votes and devices.

pub use rcoe_abi::trace as kind;

use rcoe_abi::Rights;
use rcoe_core::Compare;

use crate::Ref;

/// Interrupt lines.
pub const IRQ_LINES: u32 = 24;

/// The replication part, as the objects see it. No call fails: a replica that cannot go on does not
/// return.
pub trait Sphere {
    /// What is compared.
    fn compare(&self) -> Compare;
    /// Folds an event into the trace.
    fn event(&mut self, kind: u32, value: u64);
    /// Meets the others and compares.
    fn vote(&mut self);
    /// The primary reads a port; all get its value. `repeatable`: twice is as good as once.
    fn port_in(&mut self, port: u16, width: u8, repeatable: bool) -> u32;
    /// The primary writes a port, after a vote on the value. `repeatable`: twice is as good as
    /// once.
    fn port_out(&mut self, port: u16, width: u8, value: u32, repeatable: bool);
    /// As `port_out`, for bytes one after the other, which is never repeatable.
    fn port_out_bytes(&mut self, port: u16, bytes: &[u8]);
    /// The primary reads device memory; all get its value. `repeatable`: twice is as good as once.
    fn device_read(&mut self, place: u64, width: u8, repeatable: bool) -> u64;
    /// The primary writes device memory, after a vote on the value. `repeatable`: twice is as good
    /// as once.
    fn device_write(&mut self, place: u64, width: u8, value: u64, repeatable: bool);
    /// The primary writes where its own transfer memory, at byte `target` of device memory, is on
    /// the bus, after a vote. One that writes it again writes its own.
    fn device_write_address(&mut self, place: u64, width: u8, target: u64, repeatable: bool);
    /// Stores into this replica's transfer memory, at `place` of device memory, where its own
    /// transfer memory at `target` is on the bus: eight bytes, for a device to fetch.
    fn store_address(&mut self, place: u64, target: u64);
    /// Which primary this is: another number after each change.
    fn generation(&self) -> u64;
    /// Words go into the transfer memory of each, and into the trace.
    fn copy_out(&mut self, place: u64, words: &[u64]);
    /// All get the words in the primary's transfer memory, if it is the primary of that generation;
    /// tells whether.
    fn copy_in(&mut self, place: u64, words: &mut [u64], generation: u64) -> bool;
    /// The number of the primary: what all replicas say alike.
    fn primary(&self) -> u64;
    /// The number of this replica.
    fn own(&self) -> u64;
    /// Where a page of device memory is on the bus; of transfer memory, that of replica `owner`.
    fn device_page(&self, page: u32, owner: u64) -> u64;
    /// Where a page is that holds zeros for ever.
    fn blank_page(&self) -> u64;
    /// Lets an interrupt line through, or not.
    fn irq_enable(&mut self, line: u32, enabled: bool);
    /// Page table entries changed: what the processor remembers of them is void.
    fn flush(&mut self);
    /// An address space ends: leave it, if the processor is still in it.
    fn leave_space(&mut self);
    /// The entry of every root table that maps the kernel.
    fn kernel_entry(&self) -> u64;
    /// Where object memory begins. Only page table entries hold it.
    fn base(&self) -> u64;
    /// The processor's floating-point state is this thread's from here on: saves it for `from` and
    /// loads that of `to`.
    fn switch_fpu(&mut self, memory: &mut crate::Memory<'_>, from: Option<Ref>, to: Ref);
    /// A thread faulted that has nobody to handle that: the root task, as a rule.
    fn unhandled(&mut self, thread: Ref);
    /// Does a mapping with these rights keep to the rule that nothing is both writable and
    /// executable?
    fn allows(&self, rights: Rights) -> bool {
        !rights.contains(Rights::WRITE.or(Rights::EXECUTE))
    }
}

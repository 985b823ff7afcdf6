//! What the personality needs of the machine: memory, a clock, the console.

use rcoe_abi::Rights;

/// Bytes of a page.
pub(crate) const PAGE: u64 = rcoe_abi::object::PAGE;

/// The machine, as the personality sees it. All that it says is the same in all replicas.
pub trait Machine {
    /// The number of a zeroed frame of memory that nobody has; `None` if there is no more.
    fn take(&mut self) -> Option<u32>;
    /// A frame that is mapped nowhere is needed no more.
    fn give_back(&mut self, frame: u32);
    /// Maps a frame in the program's address space. Tells whether that is possible.
    fn map(&mut self, frame: u32, address: u64, rights: Rights) -> bool;
    /// Takes it out again.
    fn unmap(&mut self, frame: u32);
    /// Bytes of a frame, from `at` on.
    fn read(&self, frame: u32, at: usize, bytes: &mut [u8]);
    /// Writes such bytes.
    fn write(&mut self, frame: u32, at: usize, bytes: &[u8]);
    /// Output of the program.
    fn console(&mut self, bytes: &[u8]);
    /// Something for the user beside that: a line.
    fn note(&mut self, text: core::fmt::Arguments<'_>);
    /// Nanoseconds since the start.
    fn now(&mut self) -> u64;
    /// Waits so many nanoseconds.
    fn sleep(&mut self, nanoseconds: u64);
    /// Says where the program's own data is: the bases of FS and GS.
    fn set_pointers(&mut self, pointers: [u64; 2]) -> bool;
    /// What the processor says of itself, by leaf and part: these bits of eax, ebx, ecx, edx.
    fn identity(&self, leaf: u32, part: u32, kept: [u32; 4]) -> [u32; 4];
}

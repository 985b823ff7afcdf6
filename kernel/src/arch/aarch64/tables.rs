//! Entries of page tables: pages of 4 KiB, four levels, one root table for each half of the address
//! space.

const PRESENT: u64 = 1;
/// A table above the lowest level, a page on it.
const NEXT: u64 = 1 << 1;
/// Which of the kinds of memory that [`super::start`] sets: ordinary, or registers.
const REGISTERS: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 7;
const SHAREABLE: u64 = 0b11 << 8;
const ACCESS: u64 = 1 << 10;
const NO_KERNEL_EXECUTE: u64 = 1 << 53;
const NO_USER_EXECUTE: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// The processor sets no bits in entries: they are made as used.
pub(in crate::arch) const ACCESSED: u64 = 0;
/// Bytes that the kernel's tables may take. The last page of them is no table of the kernel, see
/// [`nothing`].
pub(in crate::arch) const ROOM: u64 = super::layout::LARGE - 4096;

/// What a page is for: code.
pub(in crate::arch) const TEXT: u64 = PRESENT | SHAREABLE | ACCESS | READ_ONLY | NO_USER_EXECUTE;
/// To be read only.
pub(in crate::arch) const CONSTANTS: u64 = TEXT | NO_KERNEL_EXECUTE;
/// To be written.
pub(in crate::arch) const DATA: u64 = CONSTANTS & !READ_ONLY;
/// Registers of a device.
pub(in crate::arch) const DEVICE: u64 = DATA | REGISTERS;

/// The root table of an address space in which nothing is mapped: that of a kernel without a
/// program. The partition's zeroes behind the kernel's tables are such a table.
pub(in crate::arch) const fn nothing(root: u64) -> u64 {
    root.wrapping_add(ROOM)
}

/// The entry that leads to another table.
pub(in crate::arch) const fn table(physical: u64) -> u64 {
    physical | PRESENT | NEXT
}

/// The entry that maps a page.
pub(in crate::arch) const fn page(physical: u64, what: u64) -> u64 {
    physical | what | NEXT
}

/// The entry that maps 2 MiB.
pub(in crate::arch) const fn large(physical: u64, what: u64) -> u64 {
    physical | what
}

/// Does the entry lead anywhere?
pub(in crate::arch) const fn is_present(entry: u64) -> bool {
    entry & PRESENT != 0
}

/// Does an entry above the lowest level map memory itself?
pub(in crate::arch) const fn is_large(entry: u64) -> bool {
    entry & NEXT == 0
}

/// Can what it maps be written?
pub(in crate::arch) const fn is_writable(entry: u64) -> bool {
    entry & READ_ONLY == 0
}

/// Can it be executed?
pub(in crate::arch) const fn is_executable(entry: u64) -> bool {
    entry & NO_KERNEL_EXECUTE == 0
}

/// Where the entry leads.
pub(in crate::arch) const fn address_of(entry: u64) -> u64 {
    entry & ADDRESS
}

/// The entry of every root table of a program by which the kernel knows it as one. It leads
/// nowhere: the kernel has its own half of the address space, with this root table.
pub(in crate::arch) const fn kernel_entry(root: u64) -> u64 {
    root & ADDRESS
}

//! Entries of page tables.

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const UNCACHED: u64 = 0b11000;
const BIG: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The bit that the processor sets in an entry that it has used.
pub(in crate::arch) const ACCESSED: u64 = 1 << 5;
/// Bytes that the kernel's tables may take.
pub(in crate::arch) const ROOM: u64 = super::layout::LARGE;

/// What a page is for: code.
pub(in crate::arch) const TEXT: u64 = PRESENT;
/// To be read only.
pub(in crate::arch) const CONSTANTS: u64 = PRESENT | NO_EXECUTE;
/// To be written.
pub(in crate::arch) const DATA: u64 = PRESENT | NO_EXECUTE | WRITABLE;
/// Registers of a device.
pub(in crate::arch) const DEVICE: u64 = DATA | UNCACHED;

/// The entry that leads to another table.
pub(in crate::arch) const fn table(physical: u64) -> u64 {
    physical | PRESENT | WRITABLE
}

/// The entry that maps a page.
pub(in crate::arch) const fn page(physical: u64, what: u64) -> u64 {
    physical | what
}

/// The entry that maps 2 MiB.
pub(in crate::arch) const fn large(physical: u64, what: u64) -> u64 {
    physical | what | BIG
}

/// Does the entry lead anywhere?
pub(in crate::arch) const fn is_present(entry: u64) -> bool {
    entry & PRESENT != 0
}

/// Does an entry above the lowest level map memory itself?
pub(in crate::arch) const fn is_large(entry: u64) -> bool {
    entry & BIG != 0
}

/// Can what it maps be written?
pub(in crate::arch) const fn is_writable(entry: u64) -> bool {
    entry & WRITABLE != 0
}

/// Can it be executed?
pub(in crate::arch) const fn is_executable(entry: u64) -> bool {
    entry & NO_EXECUTE == 0
}

/// Where the entry leads.
pub(in crate::arch) const fn address_of(entry: u64) -> u64 {
    entry & ADDRESS
}

/// The entry of every root table that maps the kernel, whose own root table this is.
pub(in crate::arch) const fn kernel_entry(root: u64) -> u64 {
    // The table that it leads to follows the root, because it is the first that was needed.
    table(root.wrapping_add(4096))
}

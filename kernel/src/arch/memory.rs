//! Memory at its physical address, as only the boot core sees it, and registers of devices.

use core::ptr;

/// Reads physical memory: only while all of it is mapped at its own address.
pub(super) fn read_physical(address: u64) -> u64 {
    // SAFETY: the boot tables map the low 4 GiB at their own address, and callers stay within.
    unsafe { (address as *const u64).read_volatile() }
}

/// Writes physical memory; see [`read_physical`].
pub(super) fn write_physical(address: u64, value: u64) {
    // SAFETY: as for reading; callers write memory that no Rust object lies in.
    unsafe { (address as *mut u64).write_volatile(value) }
}

/// Zeroes physical memory; see [`read_physical`].
pub(super) fn zero_physical(address: u64, bytes: u64) {
    // SAFETY: as for writing.
    unsafe { ptr::write_bytes(address as *mut u8, 0, bytes as usize) }
}

/// Copies physical memory; see [`read_physical`].
pub(super) fn copy_physical(from: u64, to: u64, bytes: u64) {
    // SAFETY: as for writing; partitions do not overlap what is copied into them.
    unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) }
}

/// Reads a register of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// It is one, mapped at this address, and no Rust object lies there.
pub(super) unsafe fn read_register(address: u64, width: u8) -> u64 {
    // SAFETY: the caller's.
    unsafe {
        match width {
            1 => u64::from((address as *const u8).read_volatile()),
            2 => u64::from((address as *const u16).read_volatile()),
            4 => u64::from((address as *const u32).read_volatile()),
            _ => (address as *const u64).read_volatile(),
        }
    }
}

/// Writes a register of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// As for reading, and what the device then does harms nothing of this kernel's.
pub(super) unsafe fn write_register(address: u64, width: u8, value: u64) {
    // SAFETY: the caller's.
    unsafe {
        match width {
            1 => (address as *mut u8).write_volatile(value as u8),
            2 => (address as *mut u16).write_volatile(value as u16),
            4 => (address as *mut u32).write_volatile(value as u32),
            _ => (address as *mut u64).write_volatile(value),
        }
    }
}

//! Memory by its physical address, as the boot core sees it or through a window, and registers of
//! devices.

use core::ptr;

/// Reads physical memory: only while all of it is mapped at its own address, or through a [`View`].
pub(super) fn read_physical(address: u64) -> u64 {
    // SAFETY: the boot tables map the low 4 GiB at their own address, and callers stay within; who
    // made another view said that it is mapped.
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

/// Where memory is seen: so far from its physical address.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    shift: u64,
}

impl View {
    /// As the boot core sees all of it.
    pub(super) const BOOT: Self = Self { shift: 0 };

    /// Memory from `physical` on, which is mapped from `address` on.
    ///
    /// # Safety
    /// It is mapped for as long as the view is used and as far as it is, and no Rust object lies
    /// there.
    pub(super) const unsafe fn through(address: u64, physical: u64) -> Self {
        let shift = address.wrapping_sub(physical);
        Self { shift }
    }

    const fn address(self, physical: u64) -> u64 {
        physical.wrapping_add(self.shift)
    }

    /// Reads a word.
    pub(super) fn read(self, physical: u64) -> u64 {
        read_physical(self.address(physical))
    }

    /// Writes a word.
    pub(super) fn write(self, physical: u64, value: u64) {
        write_physical(self.address(physical), value);
    }

    /// Zeroes so many bytes.
    pub(super) fn zero(self, physical: u64, bytes: u64) {
        zero_physical(self.address(physical), bytes);
    }
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

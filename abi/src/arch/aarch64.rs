//! QEMU's virt, with AArch64: I/O ports, device memory, and who needs what of it.
//!
//! I/O ports are those of the PCI bus. Device memory is the console's page, the timer's, which
//! stands for registers of the processor, and transfer memory.

use crate::service::Device;

/// The page of device memory that is the console's serial line (PL011).
pub const CONSOLE_PAGE: u64 = 0;
/// The page of device memory that stands for the processor's own interval timer.
pub const TIMER_PAGE: u64 = 1;
/// In that page: microseconds until its interrupt, to be written in four bytes; 0 stops it.
pub const TIMER_START: u64 = 0;
/// The interrupt line of that timer. Line 1 and those that follow are the interrupt controller's
/// shared ones of these numbers.
pub const TIMER_LINE: u64 = 0;
/// Then memory that devices move data to and from, which every replica has one of.
pub const DMA_PAGE: u64 = 2;
/// Pages of that.
pub const DMA_PAGES: u64 = 8;
/// Pages of device memory.
pub const DEVICE_PAGES: u64 = DMA_PAGE + DMA_PAGES;
/// Port of replica 0's diary, in which its kernel tells the host what happened; those of the others
/// follow.
pub const PORT_DIARY: u16 = 0x1000;
/// Ports from one diary to the next.
pub const DIARY_PORTS: u16 = 8;
/// Port that takes the program's exit status, before the machine is switched off.
pub const PORT_STATUS: u16 = 0x1040;
/// Port at which a kernel has the machine stand still; nothing is there in this machine.
pub const PORT_PAUSE: u16 = 0x1050;
/// Port that switches the machine off; it stands for a call of the firmware.
pub const PORT_OFF: u16 = 0xf4;
/// Slot on the PCI bus of what the diaries are written to, and of what takes the status.
pub const DIARY_SLOT: u64 = 1;
/// See [`DIARY_SLOT`].
pub const STATUS_SLOT: u64 = 2;
/// First byte of memory.
pub const MEMORY: u64 = 0x4000_0000;
/// Where the host leaves the address of the blob that describes the start ([`Start`]).
pub const START: u64 = MEMORY + 0x10_0000;

/// Words at the beginning of the blob; the command line follows, and behind the first page the boot
/// image. Memory for partitions ends where the blob begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Start {
    /// [`START_MAGIC`].
    Magic = 0,
    /// Bytes of the boot image.
    ImageBytes = 1,
    /// Bytes of the command line.
    CommandBytes = 2,
    /// First word of the command line.
    Command = 8,
}

/// First word of the blob.
pub const START_MAGIC: u64 = u64::from_le_bytes(*b"rcoestrt");

/// What the driver of the console needs.
pub const CONSOLE: Device = Device {
    pages: Some((CONSOLE_PAGE, CONSOLE_PAGE)),
    ..Device::NONE
};
/// What the driver of the timer needs.
pub const TIMER: Device = Device {
    pages: Some((TIMER_PAGE, TIMER_PAGE)),
    line: Some(TIMER_LINE),
    ..Device::NONE
};
/// There is no device for exercises.
pub const EDU: Device = Device::NONE;
/// There is no event timer.
pub const HPET: Device = Device::NONE;
/// See [`HPET`].
pub const CLOCK: Device = Device::NONE;

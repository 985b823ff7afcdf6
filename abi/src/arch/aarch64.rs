//! QEMU's virt, with AArch64: I/O ports, device memory, and who needs what of it.
//!
//! I/O ports are those of the PCI bus. Device memory is the console's page, the timer's, which
//! stands for registers of the processor, the configuration of PCI devices, a window for their
//! memory, transfer memory, a counter, and a page that stands for the processor's clock.

use crate::object::PAGE;
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
/// Then the configuration of the devices on the first PCI bus: a page for each function of a
/// device, and [`FUNCTIONS`] for each slot.
pub const CONFIGURATION_PAGE: u64 = 2;
/// See [`CONFIGURATION_PAGE`].
pub const FUNCTIONS: u64 = 8;
/// Pages of that.
pub const CONFIGURATION_PAGES: u64 = 32 * FUNCTIONS;
/// Then a window for the memory of PCI devices.
pub const PCI_PAGE: u64 = CONFIGURATION_PAGE + CONFIGURATION_PAGES;
/// Pages of that.
pub const PCI_PAGES: u64 = 256;
/// Where that window is on the bus: what a driver writes into a device's base address register.
pub const PCI_WINDOW: u32 = 0x1000_0000;
/// Then memory that devices move data to and from, which every replica has one of.
pub const DMA_PAGE: u64 = PCI_PAGE + PCI_PAGES;
/// Pages of that.
pub const DMA_PAGES: u64 = 16;
/// The page of device memory that is a counter which is another one at each reading: the wall clock
/// of a sound controller, the one such register that this machine has in memory.
pub const COUNTER_PAGE: u64 = DMA_PAGE + DMA_PAGES;
/// The page of device memory that stands for the processor's own clock, which is only read.
pub const STAMP_PAGE: u64 = COUNTER_PAGE + 1;
/// In that page: what the clock counts, of eight bytes, and how often it does in a second.
pub const STAMP_COUNT: u64 = 0;
/// See [`STAMP_COUNT`].
pub const STAMP_FREQUENCY: u64 = 8;
/// Pages of device memory.
pub const DEVICE_PAGES: u64 = STAMP_PAGE + 1;
/// Slot on the PCI bus of QEMU's device for exercises, `edu`, and its interrupt line.
pub const EDU_SLOT: u64 = 5;
/// Lines 3 to 6 take turns among slots.
pub const EDU_LINE: u64 = 4;
/// First page of what its driver is given: the device's own configuration.
const EDU_FIRST: u64 = CONFIGURATION_PAGE + EDU_SLOT * FUNCTIONS;
/// Where its registers are in what the driver is given.
pub const EDU_REGISTERS: u64 = (PCI_PAGE - EDU_FIRST) * PAGE;
/// Where transfer memory is in that.
pub const EDU_TRANSFER: u64 = (DMA_PAGE - EDU_FIRST) * PAGE;
/// Slot on the PCI bus of the network card, where there is one, and its interrupt line.
pub const NIC_SLOT: u64 = 10;
/// See [`NIC_SLOT`].
pub const NIC_LINE: u64 = 5;
/// First page of what its driver is given, as for [`EDU_FIRST`].
const NIC_FIRST: u64 = CONFIGURATION_PAGE + NIC_SLOT * FUNCTIONS;
/// The first page of the window for PCI devices that is its registers: the last four. Where the
/// driver of the device for exercises runs too, that device has all of it, so no machine has both.
pub const NIC_PAGE: u64 = PCI_PAGES - 4;
/// Where its registers are in what the driver is given.
pub const NIC_REGISTERS: u64 = (PCI_PAGE + NIC_PAGE - NIC_FIRST) * PAGE;
/// Where transfer memory is in that: what the card stores, then what it fetches.
pub const NIC_TRANSFER: u64 = (DMA_PAGE - NIC_FIRST) * PAGE;
/// Pages of that: the first of transfer memory.
pub const NIC_TRANSFER_PAGES: u64 = 7;
/// Slot on the PCI bus of the disk, a virtio block device, where there is one, and its interrupt
/// line.
pub const DISK_SLOT: u64 = 11;
/// See [`DISK_SLOT`].
pub const DISK_LINE: u64 = 6;
/// First page of what its driver is given, as for [`EDU_FIRST`]. That ends with its transfer
/// memory, so the network card's registers and transfer memory lie in between: a driver that goes
/// astray can harm the other's device.
const DISK_FIRST: u64 = CONFIGURATION_PAGE + DISK_SLOT * FUNCTIONS;
/// The first page of the window for PCI devices that is its registers.
pub const DISK_PAGE: u64 = PCI_PAGES - 8;
/// Where its registers are in what the driver is given.
pub const DISK_REGISTERS: u64 = (PCI_PAGE + DISK_PAGE - DISK_FIRST) * PAGE;
/// Where transfer memory is in that: behind the network card's. The last page of transfer memory is
/// no part of it.
pub const DISK_TRANSFER: u64 = (DMA_PAGE + NIC_TRANSFER_PAGES - DISK_FIRST) * PAGE;
/// Pages of that.
pub const DISK_TRANSFER_PAGES: u64 = DMA_PAGES - 1 - NIC_TRANSFER_PAGES;
/// Slot on the PCI bus of the sound controller.
pub const COUNTER_SLOT: u64 = 6;
/// Slot of what has the machine stand still, where somebody watches it from outside.
pub const PAUSE_SLOT: u64 = 7;
/// Port of replica 0's diary, in which its kernel tells the host what happened; those of the others
/// follow.
pub const PORT_DIARY: u16 = 0x1000;
/// Ports from one diary to the next.
pub const DIARY_PORTS: u16 = 8;
/// Port that takes the program's exit status, before the machine is switched off.
pub const PORT_STATUS: u16 = 0x1040;
/// Port of what a personality tells the host beside its program's output.
pub const PORT_NOTES: u16 = 0x1048;
/// Port at which a kernel has the machine stand still; it stands for a register of a device.
pub const PORT_PAUSE: u16 = 0x1050;
/// Port that switches the machine off; it stands for a call of the firmware.
pub const PORT_OFF: u16 = 0xf4;
/// Slot on the PCI bus of what the diaries are written to, and of what takes the status.
pub const DIARY_SLOT: u64 = 1;
/// See [`DIARY_SLOT`].
pub const STATUS_SLOT: u64 = 2;
/// Slot of what takes the notes of a personality.
pub const NOTES_SLOT: u64 = 3;
/// Slot of the line of the input, its first port, and its interrupt line.
pub const INPUT_SLOT: u64 = 4;
/// See [`INPUT_SLOT`].
pub const PORT_INPUT: u16 = 0x1060;
/// See [`INPUT_SLOT`].
pub const INPUT_LINE: u64 = 3;
/// Cores of the machine for each replica. The first is the replica's. The second is never started:
/// where instructions are counted it comes away empty-handed after one that uses up its time.
pub const CORES_EACH: u64 = 2;
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
/// What the driver of the device for exercises needs; the last two pages are transfer memory.
pub const EDU: Device = Device {
    pages: Some((EDU_FIRST, DMA_PAGE + 1)),
    line: Some(EDU_LINE),
    ..Device::NONE
};
/// What the driver of the network card needs.
pub const NIC: Device = Device {
    pages: Some((NIC_FIRST, DMA_PAGE + NIC_TRANSFER_PAGES - 1)),
    line: Some(NIC_LINE),
    ..Device::NONE
};
/// What the driver of the disk needs.
pub const DISK: Device = Device {
    pages: Some((DISK_FIRST, DMA_PAGE + DMA_PAGES - 2)),
    line: Some(DISK_LINE),
    ..Device::NONE
};
/// What the driver of the input needs.
pub const INPUT: Device = Device {
    ports: Some((PORT_INPUT, 8)),
    line: Some(INPUT_LINE),
    ..Device::NONE
};
/// What the TCP/IP stack needs: a clock.
pub const NET: Device = Device {
    pages: Some((STAMP_PAGE, STAMP_PAGE)),
    ..Device::NONE
};
/// There is no event timer.
pub const HPET: Device = Device::NONE;
/// What the personality of Linux needs: a clock, and where it tells of what it does not have.
pub const LINUX: Device = Device {
    ports: Some((PORT_NOTES, 1)),
    pages: Some((STAMP_PAGE, STAMP_PAGE)),
    ..Device::NONE
};
/// What a program needs that has its primary read the counter: the last page of transfer memory,
/// and the counter behind it.
pub const CLOCK: Device = Device {
    pages: Some((COUNTER_PAGE - 1, COUNTER_PAGE)),
    ..Device::NONE
};

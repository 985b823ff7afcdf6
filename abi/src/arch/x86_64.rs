//! QEMU's q35, an x86-64 PC: I/O ports, device memory, and who needs what of it.

use crate::object::PAGE;
use crate::service::Device;

/// Data port of the console's serial line.
pub const PORT_CONSOLE: u16 = 0x3f8;
/// First port of the interval timer.
pub const PORT_TIMER: u16 = 0x40;
/// Its interrupt line at the I/O APIC.
pub const TIMER_LINE: u64 = 2;
/// First port of the access to the configuration of PCI devices: eight in all.
pub const PORT_PCI: u16 = 0xcf8;
/// Device memory begins with a window for the memory of PCI devices, of so many pages.
pub const PCI_PAGES: u64 = 256;
/// Where that window is on the bus: what a driver writes into a device's base address register.
pub const PCI_WINDOW: u32 = 0xfea0_0000;
/// Then memory that devices move data to and from, which every replica has one of.
pub const DMA_PAGE: u64 = PCI_PAGES;
/// Pages of that.
pub const DMA_PAGES: u64 = 16;
/// The page of device memory that is the high precision event timer.
pub const HPET_PAGE: u64 = DMA_PAGE + DMA_PAGES;
/// Pages of device memory.
pub const DEVICE_PAGES: u64 = HPET_PAGE + 1;
/// Slot on the PCI bus of QEMU's device for exercises, `edu`, and its interrupt line.
pub const EDU_SLOT: u64 = 5;
/// Line 20 and the three that follow take turns among slots.
pub const EDU_LINE: u64 = 21;
/// Where its registers are in what the driver is given.
pub const EDU_REGISTERS: u64 = 0;
/// Where transfer memory is in that.
pub const EDU_TRANSFER: u64 = DMA_PAGE * PAGE;
/// Slot on the PCI bus of the network card, where there is one, and its interrupt line.
pub const NIC_SLOT: u64 = 6;
/// See [`NIC_SLOT`].
pub const NIC_LINE: u64 = 22;
/// The first page of device memory that is its registers: the last four of the window for PCI
/// devices. Where the driver of the device for exercises runs too, that device has all of it, so no
/// machine has both.
pub const NIC_PAGE: u64 = PCI_PAGES - 4;
/// Where its registers are in what the driver is given.
pub const NIC_REGISTERS: u64 = 0;
/// Where transfer memory is in that: what the card stores, then what it fetches.
pub const NIC_TRANSFER: u64 = (DMA_PAGE - NIC_PAGE) * PAGE;
/// Pages of that: the first of transfer memory.
pub const NIC_TRANSFER_PAGES: u64 = 7;
/// Slot on the PCI bus of the disk, a virtio block device, where there is one, and its interrupt
/// line.
pub const DISK_SLOT: u64 = 7;
/// See [`DISK_SLOT`].
pub const DISK_LINE: u64 = 23;
/// The first page of device memory that is its registers. What its driver is given ends with its
/// transfer memory, so the network card's lies in between: a driver that goes astray can harm the
/// other's device, as it can by the configuration of PCI devices.
pub const DISK_PAGE: u64 = PCI_PAGES - 8;
/// Where its registers are in what the driver is given.
pub const DISK_REGISTERS: u64 = 0;
/// Where transfer memory is in that: behind the network card's. The last page of transfer memory is
/// no part of it.
pub const DISK_TRANSFER: u64 = (DMA_PAGE + NIC_TRANSFER_PAGES - DISK_PAGE) * PAGE;
/// Pages of that.
pub const DISK_TRANSFER_PAGES: u64 = DMA_PAGES - 1 - NIC_TRANSFER_PAGES;
/// Port that takes the program's exit status, before the machine is switched off.
pub const PORT_STATUS: u16 = 0x508;
/// Port that switches the machine off.
pub const PORT_OFF: u16 = 0xf4;
/// Port of replica 0's diary, in which its kernel tells the host what happened; those of the others
/// follow.
pub const PORT_DIARY: u16 = 0x500;
/// Ports from one diary to the next.
pub const DIARY_PORTS: u16 = 1;
/// Port at which a kernel has the machine stand still, for whoever watches it from outside.
pub const PORT_PAUSE: u16 = 0x505;

/// Port of what a personality tells the host beside its program's output.
pub const PORT_NOTES: u16 = 0x506;

/// First port of the line of the input, and its interrupt line.
pub const PORT_INPUT: u16 = 0x2f8;
/// See [`PORT_INPUT`].
pub const INPUT_LINE: u64 = 3;

/// The core of replica 0; those of the others follow. A core before it starts the machine and then
/// halts for good: other cores can reset any but the very first, so no replica depends on that.
pub const FIRST_CORE: u32 = 1;

/// Where the emulator's memory has the branches that the core of replica 0 has counted, and behind
/// them the number at which it is interrupted; see the plugin in `kernel/counter`.
pub const COUNT_PLACE: u64 = (8 << 20) + (32 << 10) - 64;
/// Bytes from there to the words of the next core.
pub const COUNT_STRIDE: u64 = 64 << 10;

/// What the driver of the console needs.
pub const CONSOLE: Device = Device {
    ports: Some((PORT_CONSOLE, 8)),
    ..Device::NONE
};
/// What the driver of the timer needs.
pub const TIMER: Device = Device {
    ports: Some((PORT_TIMER, 4)),
    line: Some(TIMER_LINE),
    ..Device::NONE
};
/// What the driver of the device for exercises needs; the last two pages are transfer memory.
pub const EDU: Device = Device {
    ports: Some((PORT_PCI, 8)),
    pages: Some((0, DMA_PAGE + 1)),
    line: Some(EDU_LINE),
};
/// What the driver of the network card needs.
pub const NIC: Device = Device {
    ports: Some((PORT_PCI, 8)),
    pages: Some((NIC_PAGE, DMA_PAGE + NIC_TRANSFER_PAGES - 1)),
    line: Some(NIC_LINE),
};
/// What the driver of the disk needs.
pub const DISK: Device = Device {
    ports: Some((PORT_PCI, 8)),
    pages: Some((DISK_PAGE, DMA_PAGE + DMA_PAGES - 2)),
    line: Some(DISK_LINE),
};
/// What the driver of the input needs.
pub const INPUT: Device = Device {
    ports: Some((PORT_INPUT, 8)),
    line: Some(INPUT_LINE),
    ..Device::NONE
};
/// What a program needs that has its primary read the event timer: the last page of transfer
/// memory, and the timer behind it.
pub const CLOCK: Device = Device {
    pages: Some((HPET_PAGE - 1, HPET_PAGE)),
    ..Device::NONE
};
/// What the TCP/IP stack needs: a clock.
pub const NET: Device = HPET;
/// What a program that reads the event timer needs.
pub const HPET: Device = Device {
    pages: Some((HPET_PAGE, HPET_PAGE)),
    ..Device::NONE
};
/// What the personality of Linux needs: a clock, and where it tells of what it does not have.
pub const LINUX: Device = Device {
    ports: Some((PORT_NOTES, 1)),
    pages: Some((HPET_PAGE, HPET_PAGE)),
    ..Device::NONE
};

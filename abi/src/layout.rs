//! Addresses and ports that kernel, root task and host agree on.

/// Where programs are linked.
pub const PROGRAM_BASE: u64 = 0x40_0000;
/// End of the memory that programs may be linked to.
pub const PROGRAM_END: u64 = 0x4000_0000;
/// Top of the first thread's stack.
pub const STACK_TOP: u64 = 0x7fff_f000;
/// Pages of the first thread's stack.
pub const STACK_PAGES: u64 = 16;
/// The first thread's IPC buffer.
pub const IPC_BUFFER: u64 = 0x8000_0000;
/// The root task's boot page.
pub const BOOT_INFO: u64 = 0x8000_1000;
/// The boot image, in the root task.
pub const IMAGE: u64 = 0x1_0000_0000;
/// A page at which the root task maps what it fills.
pub const SCRATCH: u64 = 0x2_0000_0000;
/// Where memory that programs ask for is mapped.
pub const HEAP: u64 = 0x10_0000_0000;
/// Where programs map frames that they share with others, [`WINDOW_PAGES`] of them.
pub const WINDOW: u64 = 0x20_0000_0000;
/// Pages of that window: as many as one page table maps.
pub const WINDOW_PAGES: u64 = 512;
/// End of what user programs may map.
pub const USER_END: u64 = 0x7fff_0000_0000;

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
pub const DMA_PAGES: u64 = 8;
/// The page of device memory that is the high precision event timer.
pub const HPET_PAGE: u64 = DMA_PAGE + DMA_PAGES;
/// Pages of device memory.
pub const DEVICE_PAGES: u64 = HPET_PAGE + 1;
/// Slot on the PCI bus of QEMU's device for exercises, `edu`, and its interrupt line.
pub const EDU_SLOT: u64 = 5;
/// Line 20 and the three that follow take turns among slots.
pub const EDU_LINE: u64 = 21;
/// Port that takes the program's exit status, before the machine is switched off.
pub const PORT_STATUS: u16 = 0x508;
/// Port that switches the machine off.
pub const PORT_OFF: u16 = 0xf4;
/// Port of replica 0's diary, in which its kernel tells the host what happened; those of the others
/// follow.
pub const PORT_DIARY: u16 = 0x500;
/// Port at which a kernel has the machine stand still, for whoever watches it from outside.
pub const PORT_PAUSE: u16 = 0x505;
/// Most replicas of one machine.
pub const MAX_CORES: usize = 4;

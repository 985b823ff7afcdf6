//! Where things are: physical memory by partition, and the kernel's half of the address space.

use rcoe_abi::layout::{
    DEVICE_PAGES, DMA_PAGE, DMA_PAGES, HPET_PAGE, MAX_CORES, PCI_PAGES, PCI_WINDOW,
};

/// Pages of 2 MiB.
pub(in crate::arch) const LARGE: u64 = 2 << 20;

/// The shared region: a slice for each replica.
pub(in crate::arch) const SHARED_PHYSICAL: u64 = 8 << 20;
/// Bytes of a slice.
pub(in crate::arch) const SLICE: u64 = 64 << 10;
/// The first partition.
pub(in crate::arch) const PARTITIONS: u64 = 16 << 20;
/// In a partition: the kernel's page tables, behind its image.
pub(in crate::arch) const TABLES: u64 = LARGE;
/// In a partition: object memory, to the end.
pub(in crate::arch) const OBJECTS: u64 = 2 * LARGE;

/// Where the kernel is linked, above its load address.
pub(in crate::arch) const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// Object memory.
pub(in crate::arch) const WINDOW: u64 = 0xffff_ff80_0000_0000;
/// The shared region.
pub(in crate::arch) const SHARED: u64 = 0xffff_fff0_0000_0000;
/// The local APIC.
pub(in crate::arch) const LOCAL_APIC: u64 = 0xffff_fff8_0000_0000;
/// The I/O APIC.
pub(in crate::arch) const IO_APIC: u64 = 0xffff_fff8_0000_1000;
/// The table of the window through which a donor fills another partition; all of it is empty but
/// then.
pub(in crate::arch) const COPY_TABLE: u64 = 0xffff_fff8_0000_2000;
/// That window.
pub(in crate::arch) const COPY: u64 = 0xffff_ffe0_0000_0000;
/// Memory of devices: the window for PCI devices, transfer memory, then the event timer.
pub(in crate::arch) const DEVICES: u64 = 0xffff_fff8_0010_0000;
/// Where that is on the bus.
pub(in crate::arch) const PCI_PHYSICAL: u64 = PCI_WINDOW as u64;
pub(in crate::arch) const PCI_BYTES: u64 = PCI_PAGES * 4096;
/// Transfer memory, that of one replica behind that of another.
pub(in crate::arch) const DMA_PHYSICAL: u64 = 9 << 20;
pub(in crate::arch) const DMA_BYTES: u64 = DMA_PAGES * 4096;
/// A page behind that which no kernel maps: zeros for ever.
pub(crate) const BLANK_PAGE: u64 = DMA_PHYSICAL + DMA_BYTES * MAX_CORES as u64;
pub(in crate::arch) const HPET_PHYSICAL: u64 = 0xfed0_0000;
/// Where the controllers really are.
pub(in crate::arch) const LOCAL_APIC_PHYSICAL: u64 = 0xfee0_0000;
pub(in crate::arch) const IO_APIC_PHYSICAL: u64 = 0xfec0_0000;

const _: () = assert!(
    SHARED_PHYSICAL + SLICE * MAX_CORES as u64 <= DMA_PHYSICAL && BLANK_PAGE + 4096 <= PARTITIONS,
    "slices and transfer memory end before partitions begin"
);
const _: () = assert!(
    DMA_PAGE == PCI_PAGES && HPET_PAGE == DMA_PAGE + DMA_PAGES && DEVICE_PAGES == HPET_PAGE + 1,
    "device memory is in this order"
);
const _: () = assert!(
    WINDOW >> 39 == KERNEL_BASE >> 39,
    "one entry of a root table maps the kernel"
);

/// Transfer memory, in device memory.
pub(in crate::arch) const TRANSFER: u64 = DEVICES + PCI_BYTES;

/// Devices that a replica's kernel maps: address, where it is on the bus, and bytes.
pub(in crate::arch) const fn devices(_replica: u64) -> [(u64, u64, u64); 4] {
    [
        (LOCAL_APIC, LOCAL_APIC_PHYSICAL, 4096),
        (IO_APIC, IO_APIC_PHYSICAL, 4096),
        (DEVICES, PCI_PHYSICAL, PCI_BYTES),
        (TRANSFER + DMA_BYTES, HPET_PHYSICAL, 4096),
    ]
}

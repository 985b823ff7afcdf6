//! Where things are: physical memory by partition, and the kernel's half of the address space.

use rcoe_abi::layout::{
    CONFIGURATION_PAGE, CONFIGURATION_PAGES, COUNTER_PAGE, DEVICE_PAGES, DMA_PAGE, DMA_PAGES,
    MAX_CORES, MEMORY, PCI_PAGE, PCI_PAGES, PCI_WINDOW, STAMP_PAGE,
};

/// Pages of 2 MiB.
pub(in crate::arch) const LARGE: u64 = 2 << 20;

/// The shared region: a slice for each replica.
pub(in crate::arch) const SHARED_PHYSICAL: u64 = MEMORY + (8 << 20);
/// Bytes of a slice.
pub(in crate::arch) const SLICE: u64 = 64 << 10;
/// The first partition.
pub(in crate::arch) const PARTITIONS: u64 = MEMORY + (16 << 20);
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
/// The interrupt controller's distributor.
pub(in crate::arch) const DISTRIBUTOR: u64 = 0xffff_fff8_0000_0000;
/// Its part for this core.
pub(in crate::arch) const REDISTRIBUTOR: u64 = 0xffff_fff8_0001_0000;
/// The table of the window through which a donor fills another partition; all of it is empty but
/// then.
pub(in crate::arch) const COPY_TABLE: u64 = 0xffff_fff8_0003_0000;
/// The ports of the PCI bus: where the boot tables have them too.
pub(in crate::arch) const PORTS: u64 = 0xffff_fff8_0000_0000 + PORTS_PHYSICAL;
/// What has the machine stand still.
pub(in crate::arch) const PAUSE: u64 = 0xffff_fff8_0003_1000;
/// That window.
pub(in crate::arch) const COPY: u64 = 0xffff_ffe0_0000_0000;
/// Memory of devices: the console, a page that stands for the timer and is mapped nowhere, the
/// configuration of PCI devices and their window, transfer memory, the counter, and a page that
/// stands for the processor's clock, which is mapped nowhere either.
pub(in crate::arch) const DEVICES: u64 = 0xffff_fff8_0010_0000;
/// Transfer memory, in device memory.
pub(in crate::arch) const TRANSFER: u64 = DEVICES + DMA_PAGE * 4096;
/// Transfer memory, that of one replica behind that of another.
pub(in crate::arch) const DMA_PHYSICAL: u64 = MEMORY + (9 << 20);
pub(in crate::arch) const DMA_BYTES: u64 = DMA_PAGES * 4096;
/// A page behind that which no kernel maps: zeros for ever.
pub(crate) const BLANK_PAGE: u64 = DMA_PHYSICAL + DMA_BYTES * MAX_CORES as u64;

/// Where the devices really are.
pub(in crate::arch) const DISTRIBUTOR_PHYSICAL: u64 = 0x0800_0000;
pub(in crate::arch) const DISTRIBUTOR_BYTES: u64 = 0x1_0000;
pub(in crate::arch) const REDISTRIBUTOR_PHYSICAL: u64 = 0x080a_0000;
pub(in crate::arch) const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
pub(in crate::arch) const CONSOLE_PHYSICAL: u64 = 0x0900_0000;
pub(in crate::arch) const PORTS_PHYSICAL: u64 = 0x3eff_0000;
pub(in crate::arch) const PORTS_BYTES: u64 = 0x1_0000;
/// The configuration of PCI devices.
pub(in crate::arch) const PCI_PHYSICAL: u64 = 0x3f00_0000;
/// The window for their memory, and what the loader places behind that.
pub(in crate::arch) const WINDOW_PHYSICAL: u64 = PCI_WINDOW as u64;
pub(in crate::arch) const COUNTER_PHYSICAL: u64 = WINDOW_PHYSICAL + PCI_PAGES * 4096;
pub(in crate::arch) const PAUSE_PHYSICAL: u64 = COUNTER_PHYSICAL + (1 << 20);

const _: () = assert!(
    SHARED_PHYSICAL + SLICE * MAX_CORES as u64 <= DMA_PHYSICAL && BLANK_PAGE + 4096 <= PARTITIONS,
    "slices and transfer memory end before partitions begin"
);
const _: () = assert!(
    DISTRIBUTOR + DISTRIBUTOR_BYTES <= REDISTRIBUTOR
        && REDISTRIBUTOR + REDISTRIBUTOR_BYTES <= COPY_TABLE
        && PAUSE + 4096 <= DEVICES
        && DEVICES + DEVICE_PAGES * 4096 <= PORTS,
    "nothing lies over another"
);
const _: () = assert!(
    CONFIGURATION_PAGE + CONFIGURATION_PAGES == PCI_PAGE
        && PCI_PAGE + PCI_PAGES == DMA_PAGE
        && DMA_PAGE + DMA_PAGES == COUNTER_PAGE
        && COUNTER_PAGE + 1 == STAMP_PAGE
        && STAMP_PAGE + 1 == DEVICE_PAGES,
    "device memory is in this order"
);
const _: () = assert!(
    WINDOW >> 39 == KERNEL_BASE >> 39,
    "one entry of a root table maps the kernel"
);

/// Devices that a replica's kernel maps: address, where it is on the bus, and bytes.
pub(in crate::arch) const fn devices(replica: u64) -> [(u64, u64, u64); 8] {
    let own = REDISTRIBUTOR_PHYSICAL + super::cpu::affinity(replica) * REDISTRIBUTOR_BYTES;
    [
        (DISTRIBUTOR, DISTRIBUTOR_PHYSICAL, DISTRIBUTOR_BYTES),
        (REDISTRIBUTOR, own, REDISTRIBUTOR_BYTES),
        (PORTS, PORTS_PHYSICAL, PORTS_BYTES),
        (PAUSE, PAUSE_PHYSICAL, 4096),
        (DEVICES, CONSOLE_PHYSICAL, 4096),
        (
            DEVICES + CONFIGURATION_PAGE * 4096,
            PCI_PHYSICAL,
            CONFIGURATION_PAGES * 4096,
        ),
        (DEVICES + PCI_PAGE * 4096, WINDOW_PHYSICAL, PCI_PAGES * 4096),
        (DEVICES + COUNTER_PAGE * 4096, COUNTER_PHYSICAL, 4096),
    ]
}

//! The boot core before there are replicas: splits memory, copies kernel and boot image into each
//! partition, and starts the other cores.
//!
//! It runs on the kernel's text as it was loaded, with all memory mapped, and must not write a
//! static of the kernel: what it copies has to be pristine. It has no way to report trouble but the
//! diary of replica 0.

use super::memory::{View, copy_physical, zero_physical};
use super::paging::{self, Partition};
use super::processor::boot::{self, Clocks};
use super::processor::layout::{
    BLANK_PAGE, DMA_BYTES, DMA_PHYSICAL, KERNEL_BASE, LARGE, OBJECTS, PARTITIONS, SHARED_PHYSICAL,
    SLICE, TABLES,
};
use crate::config;
use crate::diary::Diary;
use rcoe_abi::layout::MAX_CORES;
use rcoe_kernel_objects::ALIKE_MAX;

unsafe extern "C" {
    static __image_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __data_end: u8;
    static __bss_end: u8;
    static __stack_start: u8;
    static __image_end: u8;
}

/// Addresses of the kernel's parts.
pub(super) struct Image {
    pub(super) start: u64,
    pub(super) text_end: u64,
    pub(super) rodata_end: u64,
    pub(super) data_end: u64,
    pub(super) bss_end: u64,
    pub(super) stack_start: u64,
    pub(super) end: u64,
}

impl Image {
    pub(super) fn new() -> Self {
        let address = |symbol: *const u8| symbol as u64;
        Self {
            start: address(&raw const __image_start),
            text_end: address(&raw const __text_end),
            rodata_end: address(&raw const __rodata_end),
            data_end: address(&raw const __data_end),
            bss_end: address(&raw const __bss_end),
            stack_start: address(&raw const __stack_start),
            end: address(&raw const __image_end),
        }
    }
}

/// What the loader tells a replica: the first words of its object memory, which no object uses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Parameters {
    pub(super) magic: u64,
    /// This replica.
    pub(crate) replica: u64,
    /// Replicas in all.
    pub(crate) replicas: u64,
    /// The partition's first byte.
    pub(crate) base: u64,
    /// Bytes of object memory.
    pub(crate) objects: u64,
    /// Bytes of the boot image.
    pub(crate) image: u64,
    /// Root table of the kernel.
    pub(crate) root: u64,
    /// Processor cycles in a millisecond.
    pub(crate) cycles: u64,
    /// Units of the local timer in a millisecond.
    pub(crate) timer: u64,
    /// Bytes of the command line that follow.
    pub(crate) command: u64,
}

/// The sources that this was built from, for who starts it: see `kernel/identity.rs`.
#[used]
#[unsafe(link_section = ".rcoe.build")]
static BUILD: [u8; 16] = *env!("RCOE_BUILD").as_bytes().first_chunk().unwrap();

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"rcoepart");
/// Longest command line.
pub(super) const COMMAND_MAX: u64 = 2048;

/// What the machine's own loader left us.
pub(super) struct Given {
    /// Address and bytes of the boot image.
    pub(super) image: (u64, u64),
    /// Address and bytes of the command line.
    pub(super) command: (u64, u64),
    /// End of memory for partitions.
    pub(super) end: u64,
}

pub(super) fn give_up(why: core::fmt::Arguments<'_>) -> ! {
    Diary::of(0).line(format_args!("refused {why}"));
    crate::arch::permit_off(!crate::report::has_started());
    crate::arch::power_off();
}

/// The boot core's first Rust function.
#[unsafe(no_mangle)]
extern "C" fn boot_main(info: u64) -> ! {
    let machine = boot::given(info);
    let mut command = [0; COMMAND_MAX as usize];
    copy_physical(
        machine.command.0,
        (&raw mut command) as u64,
        machine.command.1,
    );
    let text = &command[..machine.command.1 as usize];
    let replicas = config::replicas(text);
    if replicas == 0 || replicas > MAX_CORES as u64 {
        give_up(format_args!(
            "between 1 and {MAX_CORES} replicas are possible"
        ));
    }
    let size = (machine.end - PARTITIONS) / replicas / LARGE * LARGE;
    if size.saturating_sub(OBJECTS) > ALIKE_MAX {
        give_up(format_args!(
            "memory is too large for {replicas} partitions"
        ));
    }
    if size < 2 * OBJECTS + machine.image.1 {
        give_up(format_args!(
            "memory is too small for {replicas} partitions"
        ));
    }
    let image = Image::new();
    zero_physical(SHARED_PHYSICAL, SLICE * MAX_CORES as u64);
    zero_physical(DMA_PHYSICAL, DMA_BYTES * MAX_CORES as u64);
    zero_physical(BLANK_PAGE, 4096);
    let clocks = boot::calibrate(text);
    let mut roots = [0; MAX_CORES];
    let roots = &mut roots[..replicas as usize];
    for (replica, root) in (0..).zip(roots.iter_mut()) {
        let partition = Partition {
            base: PARTITIONS + replica * size,
            size,
            replica,
            replicas,
        };
        *root = fill(&image, &machine, partition, &clocks);
    }
    boot::start_replicas(roots, &clocks)
}

/// Fills a partition; returns its root table.
fn fill(image: &Image, machine: &Given, partition: Partition, clocks: &Clocks) -> u64 {
    let Partition { base, size, .. } = partition;
    if image.end - image.start > TABLES {
        give_up(format_args!("the kernel is too large"));
    }
    zero_physical(base, TABLES);
    let pristine = image.start - KERNEL_BASE;
    copy_physical(pristine, base, image.data_end - image.start);
    let root = paging::build(View::BOOT, image, partition);
    if let Err(entry) = paging::audit(View::BOOT, partition) {
        give_up(format_args!("a page table entry leads astray: {entry:#x}"));
    }
    let objects = base + OBJECTS;
    zero_physical(objects, 4096);
    copy_physical(machine.image.0, objects + 4096, machine.image.1);
    let words = size_of::<Parameters>() as u64;
    copy_physical(machine.command.0, objects + words, machine.command.1);
    let parameters = Parameters {
        magic: MAGIC,
        replica: partition.replica,
        replicas: partition.replicas,
        base,
        objects: size - OBJECTS,
        image: machine.image.1,
        root,
        cycles: clocks.cycles,
        timer: clocks.timer,
        command: machine.command.1,
    };
    // SAFETY: the first page of object memory is this partition's, aligned, and used by nothing
    // else.
    unsafe { (objects as *mut Parameters).write_volatile(parameters) };
    root
}

//! The boot core before there are replicas: splits memory, copies kernel and boot image into each
//! partition, and starts the other cores.
//!
//! It runs on the kernel's text as it was loaded, with all memory mapped, and must not write a
//! static of the kernel: what it copies has to be pristine. It has no way to report trouble but the
//! diary of replica 0.

use core::ptr;

use super::apic_boot::{self, Clocks};
use super::cpu;
use super::layout::{
    BLANK_PAGE, DMA_BYTES, DMA_PHYSICAL, KERNEL_BASE, LARGE, OBJECTS, PARTITIONS, SHARED_PHYSICAL,
    SLICE, TABLES,
};
use super::paging::{self, Partition};
use super::start::{TRAMPOLINE, TRAMPOLINE_CORES, TRAMPOLINE_TABLES};
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
    static trampoline_start: u8;
    static trampoline_end: u8;
    fn enter_partition(root: u64) -> !;
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

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"rcoepart");
/// Longest command line.
pub(super) const COMMAND_MAX: u64 = 2048;

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

fn copy_physical(from: u64, to: u64, bytes: u64) {
    // SAFETY: as for writing; partitions do not overlap what is copied into them.
    unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) }
}

/// What the machine's loader left us (`hvm_start_info` of PVH).
struct Machine {
    /// Address and bytes of the boot image.
    image: (u64, u64),
    /// Address and bytes of the command line.
    command: (u64, u64),
    /// End of memory for partitions.
    end: u64,
}

const START_MAGIC: u64 = 0x336e_c578;

impl Machine {
    fn read(info: u64) -> Self {
        let half = |offset: u64| read_physical(info + (offset & !7)) >> ((offset & 4) * 8);
        let half = |offset| half(offset) & 0xffff_ffff;
        if half(0) != START_MAGIC || half(4) < 1 || half(12) < 1 {
            give_up(format_args!("the machine's loader gave no boot image"));
        }
        let module = read_physical(info + 16);
        let image = (read_physical(module), read_physical(module + 8));
        let text = read_physical(info + 24);
        let mut len = 0;
        while len < COMMAND_MAX
            && read_physical((text + len) & !7) >> ((text + len) % 8 * 8) & 0xff != 0
        {
            len += 1;
        }
        let mut end = memory_end(read_physical(info + 40), half(48));
        if image.0 >= PARTITIONS {
            end = end.min(image.0);
        }
        Self {
            image,
            command: (text, len),
            end,
        }
    }
}

/// Where the memory ends in which the partitions begin.
fn memory_end(map: u64, entries: u64) -> u64 {
    for index in 0..entries.min(64) {
        let entry = map + index * 24;
        let (start, size) = (read_physical(entry), read_physical(entry + 8));
        let ram = read_physical(entry + 16) & 0xffff_ffff == 1;
        if ram && start <= SHARED_PHYSICAL && PARTITIONS < start + size {
            return start + size;
        }
    }
    give_up(format_args!("no memory for partitions"))
}

fn give_up(why: core::fmt::Arguments<'_>) -> ! {
    Diary::of(0).line(format_args!("refused {why}"));
    crate::arch::power_off();
}

/// The boot core's first Rust function.
#[unsafe(no_mangle)]
extern "C" fn boot_main(info: u64) -> ! {
    let machine = Machine::read(info);
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
    let clocks = apic_boot::calibrate(text);
    zero_physical(TRAMPOLINE, 4096);
    let code = &raw const trampoline_start as u64;
    copy_physical(code, TRAMPOLINE, &raw const trampoline_end as u64 - code);
    write_physical(TRAMPOLINE + TRAMPOLINE_TABLES, cpu::root_table());
    let mut first = 0;
    for replica in 0..replicas {
        let partition = Partition {
            base: PARTITIONS + replica * size,
            size,
            replica,
            replicas,
        };
        let root = fill(&image, &machine, partition, &clocks);
        write_physical(TRAMPOLINE + TRAMPOLINE_CORES + replica * 8, root);
        if replica == 0 {
            first = root;
        }
    }
    apic_boot::quiet_old_controllers();
    apic_boot::start_cores(replicas, TRAMPOLINE, &clocks);
    // SAFETY: the partition's tables map the kernel's text, data and stack at the same addresses.
    unsafe { enter_partition(first) }
}

/// Fills a partition; returns its root table.
fn fill(image: &Image, machine: &Machine, partition: Partition, clocks: &Clocks) -> u64 {
    let Partition { base, size, .. } = partition;
    if image.end - image.start > TABLES {
        give_up(format_args!("the kernel is too large"));
    }
    zero_physical(base, OBJECTS);
    let pristine = image.start - KERNEL_BASE;
    copy_physical(pristine, base, image.data_end - image.start);
    let root = paging::build(image, partition);
    if let Err(entry) = paging::audit(root, partition) {
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

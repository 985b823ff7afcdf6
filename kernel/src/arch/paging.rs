//! The kernel's own page tables, one set for each partition, made before the partition is entered,
//! and anew before a copy is: a flip in them would outlive the replica that it hit.
//!
//! They map the kernel's image (text for execution, constants for reading, the rest for writing),
//! object memory, the replica's own slice of the shared region for writing and the others' for
//! reading, the interrupt controllers, device memory, and its own transfer memory: nothing else. Of
//! themselves they map only the table of a window that is empty but for a copy (see `donate`), so
//! no replica can change what its kernel may touch. [`audit`] reads them back and checks that.

use super::loader::Image;
use super::memory::View;
use super::processor::layout::{
    COPY, COPY_TABLE, DMA_BYTES, DMA_PHYSICAL, KERNEL_BASE, LARGE, OBJECTS, SHARED,
    SHARED_PHYSICAL, SLICE, TABLES, TRANSFER, WINDOW, devices,
};
use super::processor::tables::{self, address_of, is_present};

const PAGE: u64 = 4096;

/// What a replica's kernel may touch.
#[derive(Clone, Copy)]
pub(super) struct Partition {
    /// First byte.
    pub(super) base: u64,
    /// Length.
    pub(super) size: u64,
    /// Whose it is.
    pub(super) replica: u64,
    /// Replicas in all.
    pub(super) replicas: u64,
}

struct Builder {
    view: View,
    root: u64,
    next: u64,
    end: u64,
}

impl Builder {
    fn table(&mut self) -> u64 {
        let table = self.next;
        self.next += PAGE;
        assert!(self.next <= self.end, "the kernel's tables fit");
        table
    }

    /// The table of `level` for an address, made if it is missing.
    fn way(&mut self, address: u64, level: u32) -> u64 {
        let mut table = self.root;
        for above in (level + 1..4).rev() {
            let slot = table + (address >> (12 + 9 * above) & 511) * 8;
            let mut entry = self.view.read(slot);
            if !is_present(entry) {
                entry = tables::table(self.table());
                self.view.write(slot, entry);
            }
            table = address_of(entry);
        }
        table
    }

    fn map(&mut self, address: u64, physical: u64, bytes: u64, flags: u64) {
        for offset in (0..bytes).step_by(PAGE as usize) {
            let table = self.way(address + offset, 0);
            let slot = table + ((address + offset) >> 12 & 511) * 8;
            self.view
                .write(slot, tables::page(physical + offset, flags));
        }
    }

    fn map_large(&mut self, address: u64, physical: u64, bytes: u64, flags: u64) {
        for offset in (0..bytes).step_by(LARGE as usize) {
            let table = self.way(address + offset, 1);
            let slot = table + ((address + offset) >> 21 & 511) * 8;
            self.view
                .write(slot, tables::large(physical + offset, flags));
        }
    }
}

/// Makes a partition's tables; returns the root table's address.
pub(super) fn build(view: View, image: &Image, partition: Partition) -> u64 {
    let root = partition.base + TABLES;
    view.zero(root, LARGE);
    let mut builder = Builder {
        view,
        root,
        next: root + PAGE,
        end: partition.base + TABLES + tables::ROOM,
    };
    let data = tables::DATA;
    let parts = [
        (image.start, image.text_end, tables::TEXT),
        (image.text_end, image.rodata_end, tables::CONSTANTS),
        (image.rodata_end, image.bss_end, data),
        (image.stack_start, image.end, data),
    ];
    for (from, to, flags) in parts {
        assert!(from >= KERNEL_BASE, "the kernel is linked high");
        builder.map(
            from,
            partition.base + (from - image.start),
            to - from,
            flags,
        );
    }
    let objects = partition.size - OBJECTS;
    builder.map_large(WINDOW, partition.base + OBJECTS, objects, data);
    for replica in 0..partition.replicas {
        let own = replica == partition.replica;
        let flags = if own { data } else { tables::CONSTANTS };
        let offset = replica * SLICE;
        builder.map(SHARED + offset, SHARED_PHYSICAL + offset, SLICE, flags);
    }
    for (address, physical, bytes) in devices(partition.replica) {
        builder.map(address, physical, bytes, tables::DEVICE);
    }
    let transfer = DMA_PHYSICAL + partition.replica * DMA_BYTES;
    builder.map(TRANSFER, transfer, DMA_BYTES, data);
    let window = builder.way(COPY, 1);
    builder.map(COPY_TABLE, window, PAGE, data);
    root
}

/// Reads a partition's tables back: is everything that they map this replica's to touch, and
/// nothing both writable and executable? Returns the number of pages, or the first wrong entry.
pub(super) fn audit(view: View, partition: Partition) -> Result<u64, u64> {
    audit_table(view, partition.base + TABLES, 3, partition)
}

fn audit_table(view: View, table: u64, level: u32, partition: Partition) -> Result<u64, u64> {
    let tables = partition.base + TABLES;
    if !(tables..tables + tables::ROOM).contains(&table) {
        return Err(table);
    }
    let mut pages = 0;
    for index in 0..512 {
        let entry = view.read(table + index * 8);
        if !is_present(entry) {
            continue;
        }
        if level > 0 && !tables::is_large(entry) {
            pages += audit_table(view, address_of(entry), level - 1, partition)?;
        } else if is_proper(view, entry, level, partition) {
            pages += 1;
        } else {
            return Err(entry);
        }
    }
    Ok(pages)
}

fn is_proper(view: View, entry: u64, level: u32, partition: Partition) -> bool {
    let start = address_of(entry);
    let end = start + (PAGE << (9 * level));
    let writable = tables::is_writable(entry);
    let within = |from: u64, size: u64| from <= start && end <= from + size;
    let tables = partition.base + TABLES;
    let own = within(partition.base, TABLES)
        || within(partition.base + OBJECTS, partition.size - OBJECTS);
    let slice = SHARED_PHYSICAL + partition.replica * SLICE;
    let shared =
        within(SHARED_PHYSICAL, SLICE * partition.replicas) && (!writable || within(slice, SLICE));
    let device = devices(partition.replica)
        .into_iter()
        .any(|(_, physical, bytes)| within(physical, bytes));
    let transfer = within(DMA_PHYSICAL + partition.replica * DMA_BYTES, DMA_BYTES);
    let window = start == copy_table(view, tables);
    let itself = start < tables + LARGE && end > tables && !window;
    let exclusive = !writable || !tables::is_executable(entry);
    let window = window && level == 0;
    (own || shared || device || transfer || window) && !itself && exclusive
}

/// The one table that a replica's kernel can write: that of the window for copies. Empty at the
/// start, so what it leads to is nothing.
fn copy_table(view: View, root: u64) -> u64 {
    let entry = |table: u64, level: u32| {
        let slot = table + (COPY >> (12 + 9 * level) & 511) * 8;
        address_of(view.read(slot))
    };
    entry(entry(root, 3), 2)
}

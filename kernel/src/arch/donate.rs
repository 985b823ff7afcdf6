//! Re-integration: one replica's partition is copied into that of a lost one, whose core then
//! starts in the copy.
//!
//! The donor maps the other partition through a window for as long as the copy takes. Everything is
//! copied but the loader's parameters, which tell the copy who it is, and the kernel's page tables,
//! which are the partition's own. The core of the copy finds a mark and goes on as a newcomer.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::loader::{Image, Parameters};
use super::permit::permit;
use super::processor::layout::{COPY, COPY_TABLE, LARGE, OBJECTS, TABLES, WINDOW};
use super::processor::{boot, cpu, tables};
use crate::machine::Machine;

/// Is this a copy whose core has yet to start in it?
pub(super) static COPIED: AtomicBool = AtomicBool::new(false);

/// Is this a fresh copy? Asked once.
pub(super) fn is_copy() -> bool {
    COPIED.swap(false, Ordering::Relaxed)
}

/// Bytes of the window: what its one table maps.
const WINDOW_BYTES: u64 = 512 * LARGE;

/// Lets the window lead to `bytes` of physical memory, or nowhere.
fn set_window(from: u64, bytes: u64) {
    assert!(bytes <= WINDOW_BYTES, "one table maps the window");
    for index in 0..bytes.div_ceil(LARGE) {
        let entry = if from == 0 {
            0
        } else {
            tables::large(from + index * LARGE, tables::DATA)
        };
        // SAFETY: the table is mapped here and only ever leads to a partition of a replica that was
        // removed, through a window that nothing else uses.
        unsafe {
            (COPY_TABLE as *mut u64)
                .add(index as usize)
                .write_volatile(entry)
        };
    }
    cpu::flush();
}

/// Copies what lies at an address of this kernel to an offset in a partition, window by window.
///
/// # Safety
/// So much is mapped there, the partition is that of a replica that was removed, and nobody runs in
/// it.
unsafe fn copy_out(from: u64, partition: u64, offset: u64, bytes: u64) {
    let (mut from, mut offset) = (from, offset);
    let end = offset + bytes;
    while offset < end {
        let start = offset / LARGE * LARGE;
        let whole = (end - start).min(WINDOW_BYTES);
        let part = start + whole - offset;
        set_window(partition + start, whole);
        // SAFETY: the caller's; both sides are mapped and apart.
        unsafe {
            let to = COPY + (offset - start);
            ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, part as usize);
        }
        set_window(0, whole);
        (from, offset) = (from + part, offset + part);
    }
}

/// Copies this partition into that of `replica`, and starts its core there: of object memory the
/// first `given` bytes. `machine` is what the copy goes on with: it is passed so that all of it is
/// in memory.
#[inline(never)]
pub(crate) fn donate(machine: &mut Machine, parameters: &Parameters, replica: u64, given: u64) {
    let size = parameters.objects + OBJECTS;
    let target = parameters.base - parameters.replica * size + replica * size;
    let image = Image::new();
    core::hint::black_box(machine);
    let core = replica as u32;
    if !boot::may_restart(core, super::machine::is_retired(replica)) {
        // A core that cannot be reset and has not come to a halt may run in that memory. It will
        // not follow the group, and is removed again.
        return;
    }
    let objects = given.min(parameters.objects) - 4096;
    // SAFETY: both sides are mapped and apart; nobody runs in the target. What changes here
    // meanwhile is this function's own stack, which is not copied.
    unsafe {
        copy_out(image.start, target, 0, image.bss_end - image.start);
        copy_out(WINDOW + 4096, target, OBJECTS + 4096, objects);
        set_window(target, LARGE);
        let mark = COPY + (&raw const COPIED as u64 - image.start);
        (mark as *mut bool).write_volatile(true);
        set_window(0, LARGE);
    }
    permit(core);
    boot::restart(core, target + TABLES, parameters.cycles);
}

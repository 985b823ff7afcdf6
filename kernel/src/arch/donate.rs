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

fn set_window(from: u64, bytes: u64) {
    for index in 0..bytes / LARGE {
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

/// Copies this partition into that of `replica`, and starts its core there. `machine` is what the
/// copy goes on with: it is passed so that all of it is in memory.
#[inline(never)]
pub(crate) fn donate(machine: &mut Machine, parameters: &Parameters, replica: u64) {
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
    set_window(target, size);
    // SAFETY: both sides are mapped and apart; nobody runs in the target. What changes here
    // meanwhile is this function's own stack, which is not copied.
    unsafe {
        let kernel = (image.bss_end - image.start) as usize;
        ptr::copy_nonoverlapping(image.start as *const u8, COPY as *mut u8, kernel);
        let objects = (parameters.objects - 4096) as usize;
        let (from, to) = (WINDOW + 4096, COPY + OBJECTS + 4096);
        ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, objects);
        let mark = COPY + (&raw const COPIED as u64 - image.start);
        (mark as *mut bool).write_volatile(true);
    }
    set_window(0, size);
    permit(core);
    boot::restart(core, target + TABLES, parameters.cycles);
}

//! Re-integration: one replica's partition is copied into that of a lost one, whose core then
//! starts in the copy.
//!
//! The donor maps the other partition through a window for as long as the copy takes. Everything is
//! copied but what is a partition's own, and that is made anew: the kernel's page tables, and the
//! parameters that tell the copy who it is. So no flip in a lost replica's memory outlives it. The
//! core of the copy finds a mark and goes on as a newcomer.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::loader::{Image, Parameters};
use super::memory::View;
use super::paging::{self, Partition};
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

/// The page of the loader's parameters.
const PAGE: usize = 4096;

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

/// Copies from this kernel's addresses to the same offsets in a partition of so many bytes:
/// `from` is where offset 0 would lie. The ranges of offsets come in order.
///
/// # Safety
/// So much is mapped there, the partition is that of a replica that was removed, and nobody runs in
/// it.
unsafe fn copy_out(
    from: u64,
    (partition, size): (u64, u64),
    ranges: impl Iterator<Item = Range<u64>>,
) {
    let mut open = 0..0;
    for range in ranges {
        assert!(range.end <= size, "the copy ends with its partition");
        let mut offset = range.start;
        while offset < range.end {
            if !open.contains(&offset) {
                let start = offset / WINDOW_BYTES * WINDOW_BYTES;
                open = start..(start + WINDOW_BYTES).min(size);
                set_window(0, WINDOW_BYTES);
                set_window(partition + start, open.end - start);
            }
            let part = range.end.min(open.end) - offset;
            // SAFETY: the caller's; both sides are mapped and apart.
            unsafe {
                let to = COPY + (offset - open.start);
                ptr::copy_nonoverlapping(
                    (from + offset) as *const u8,
                    to as *mut u8,
                    part as usize,
                );
            }
            offset += part;
        }
    }
    set_window(0, WINDOW_BYTES);
}

/// Where the partition of `replica` begins, and its bytes.
const fn partition_of(parameters: &Parameters, replica: u64) -> (u64, u64) {
    let size = parameters.objects + OBJECTS;
    let first = parameters.base - parameters.replica * size;
    (first + replica * size, size)
}

/// May this partition be copied into that of `replica`? A core that cannot be reset and has not
/// come to a halt may run in that memory.
pub(crate) fn may_donate(replica: u64) -> bool {
    boot::may_restart(replica as u32)
}

/// Resets the core of `replica`, whose partition is about to be filled ([`may_donate`]). Whoever
/// removed that replica stopped its core; should that have been in vain, it writes there no more.
///
/// # Panics
/// If there is no permit for it.
pub(crate) fn reset_lost(parameters: &Parameters, replica: u64) {
    let core = replica as u32;
    permit(core);
    boot::reset(core, parameters.cycles);
}

/// Copies these ranges of object memory into the partition of `replica`, which may be done
/// ([`may_donate`]).
pub(crate) fn donate_part(
    parameters: &Parameters,
    replica: u64,
    ranges: impl Iterator<Item = Range<u64>>,
) {
    let target = partition_of(parameters, replica);
    let ranges = ranges.map(|range| range.start + OBJECTS..range.end + OBJECTS);
    // SAFETY: object memory is mapped, and apart from the window; nobody runs in the target.
    unsafe { copy_out(WINDOW - OBJECTS, target, ranges) };
}

/// Makes anew what is the own of the partition of `replica`, and marks the copy in it as one. Are
/// its page tables then as they should be? With `soil`, where a test says so, what was there before
/// is made useless first.
///
/// # Safety
/// The partition is that of a replica that was removed, and nobody runs in it.
unsafe fn make_own(image: &Image, parameters: &Parameters, replica: u64, soil: bool) -> bool {
    let (base, size) = partition_of(parameters, replica);
    set_window(base, OBJECTS + LARGE);
    let mark = COPY + (&raw const COPIED as u64 - image.start);
    let page = (COPY + OBJECTS) as *mut Parameters;
    let root = base + TABLES;
    let own = Parameters {
        replica,
        base,
        root,
        ..*parameters
    };
    // SAFETY: the window leads there, and to nothing of this kernel's. The command line stands
    // behind the parameters.
    let view = unsafe {
        if soil {
            ptr::write_bytes((COPY + TABLES) as *mut u8, 0xff, LARGE as usize);
            ptr::write_bytes(page.cast::<u8>(), 0xff, PAGE);
        }
        (mark as *mut bool).write_volatile(true);
        ptr::copy_nonoverlapping(WINDOW as *const u8, page.cast(), PAGE);
        page.write_volatile(own);
        View::through(COPY, base)
    };
    let partition = Partition {
        base,
        size,
        replica,
        replicas: parameters.replicas,
    };
    paging::build(view, image, partition);
    let is_whole = paging::audit(view, partition).is_ok();
    set_window(0, OBJECTS + LARGE);
    is_whole
}

/// Copies what the partition of `replica` lacks of this one, and starts its core there. `machine`
/// is what the copy goes on with: it is passed so that all of it is in memory.
#[inline(never)]
pub(crate) fn donate(machine: &mut Machine, parameters: &Parameters, replica: u64) {
    let target = partition_of(parameters, replica);
    let image = Image::new();
    let machine = core::hint::black_box(machine);
    let core = replica as u32;
    if !may_donate(replica) {
        // It will not follow the group, and is removed again.
        return;
    }
    reset_lost(parameters, replica);
    donate_part(parameters, replica, machine.missing());
    let own = core::iter::once(0..image.bss_end - image.start);
    // SAFETY: both sides are mapped and apart; nobody runs in the target. What changes here
    // meanwhile is this function's own stack, which is not copied.
    let is_whole = unsafe {
        copy_out(image.start, target, own);
        make_own(&image, parameters, replica, machine.soils())
    };
    if !is_whole {
        // Its memory does not keep what is stored there.
        return;
    }
    permit(core);
    let is_only = machine.is_complete_but_one();
    boot::restart(core, is_only, target.0 + TABLES, parameters.cycles);
}

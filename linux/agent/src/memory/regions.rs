//! The shared objects as this replica sees them: who it is, and what it alone may write.
//!
//! All objects are mapped once, before the first clone, for every group that there may ever be. A
//! replica makes its own region of its own group writable and leaves all else read-only.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use linux_raw_sys::general::{MAP_FIXED_NOREPLACE, MAP_SHARED, PROT_READ, PROT_WRITE};
use rcoe_core::coupling::Board;
use rcoe_core::{MAX_REPLICAS, Outbox, Port, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{
    BOARD_OFFSET, BOARD_SHAPE, CONTROL_ADDR, CONTROL_BYTES, Control, GROUPS, INTAKE_OFFSET,
    LAYOUT_VERSION, NOTEBOOK_BYTES, NOTEBOOK_OFFSET, Notebook, OBJECT_BYTES, OUTBOX_OFFSET,
    QUEUES_BYTES, QUEUES_OFFSET, QUEUES_SLOTS, REGION_BYTES, RING_OFFSET, RING_WORDS, Report,
    control_addr, object_addr, region_addr,
};

use crate::lifetime::Who;
use crate::protocol::env::Sibling;
use crate::sched::turns;
use crate::sys;

/// Exit status if the supervisor and this agent do not fit; only the supervisor sees it.
const UNFIT: u8 = 125;

/// This replica's number plus one; 0 until the shared objects are mapped.
#[unsafe(link_section = ".bss.own.1.small")]
static OWN_NUMBER: AtomicUsize = AtomicUsize::new(0);
/// This replica's group.
#[unsafe(link_section = ".bss.own.1.small")]
static OWN_GROUP: AtomicUsize = AtomicUsize::new(0);

/// This replica's report, once it is mapped.
pub(crate) fn own_report() -> Option<&'static Report> {
    Some(report(own_group(), own_number()?))
}

/// This replica's number in its group, once it is one.
pub(crate) fn own_number() -> Option<usize> {
    OWN_NUMBER.load(Ordering::Relaxed).checked_sub(1)
}

/// This replica's group.
pub(crate) fn own_group() -> usize {
    OWN_GROUP.load(Ordering::Relaxed)
}

/// Says which replica this is.
pub(crate) fn set_own(group: usize, index: usize) {
    OWN_GROUP.store(group, Ordering::Relaxed);
    OWN_NUMBER.store(index + 1, Ordering::Relaxed);
}

/// The supervisor's words for a group.
pub(crate) fn control(group: usize) -> &'static Control {
    // SAFETY: mapped at this address before anything else runs; all its fields are atomic.
    unsafe { &*(control_addr(group) as *const Control) }
}

/// The groups that there are or have been. Nobody has ever been in those above.
pub(crate) fn groups() -> core::ops::Range<usize> {
    let reach = control(0).reach.load(Ordering::Acquire) as usize;
    0..reach.clamp(1, GROUPS)
}

/// What a replica tells the supervisor.
pub(crate) fn report(group: usize, index: usize) -> &'static Report {
    // SAFETY: replica regions are mapped at these addresses for good; all fields are atomic.
    unsafe { &*(region_addr(group, index) as *const Report) }
}

fn outbox(group: usize, index: usize) -> &'static Outbox {
    // SAFETY: as for `report`; all-zero memory is a fresh outbox.
    unsafe { &*((region_addr(group, index) + OUTBOX_OFFSET) as *const Outbox) }
}

/// What a replica publishes.
pub(crate) fn port(group: usize, index: usize) -> Port<'static> {
    let ring = (region_addr(group, index) + RING_OFFSET) as *const AtomicU64;
    // SAFETY: as for `report`; the ring is that many atomic words.
    let ring = unsafe { core::slice::from_raw_parts(ring, RING_WORDS) };
    Port {
        outbox: outbox(group, index),
        ring,
    }
}

/// Where a replica says on which point between calls it would agree.
pub(crate) fn board(group: usize, index: usize) -> Board<'static> {
    let cells = (region_addr(group, index) + BOARD_OFFSET) as *const AtomicU64;
    // SAFETY: as for `report`; all-zero memory is a fresh board of that many atomic words.
    let cells = unsafe { core::slice::from_raw_parts(cells, BOARD_SHAPE.words()) };
    Board::new(cells, BOARD_SHAPE)
}

/// Where the host puts what a replica receives from a stream.
pub(crate) const fn intake(group: usize, index: usize) -> u64 {
    (region_addr(group, index) + INTAKE_OFFSET) as u64
}

/// Where the queues of a replica's io_uring lie, by how many it has made.
pub(crate) const fn queues(group: usize, index: usize, made: u32) -> u64 {
    let slot = made as usize % QUEUES_SLOTS;
    (region_addr(group, index) + QUEUES_OFFSET + slot * 2 * QUEUES_BYTES) as u64
}

/// The same as the waiting code needs it.
pub(crate) fn sibling(group: usize, index: usize) -> Sibling {
    Sibling {
        report: report(group, index),
        outbox: outbox(group, index),
    }
}

/// The replica of this number in the group, the process of which the program knows by `pid`.
pub(crate) fn who(group: usize, id: ReplicaId, members: ReplicaSet, pid: u32) -> Who {
    Who {
        group,
        id,
        members,
        pid,
        control: control(group),
        report: report(group, id.index()),
    }
}

/// What replicas of this number have found in files.
pub(crate) fn notebook(index: usize) -> &'static Notebook {
    // SAFETY: as for `report`.
    unsafe { &*((object_addr(index) + NOTEBOOK_OFFSET) as *const Notebook) }
}

/// Writes into this replica's notebook, which is not writable otherwise: it belongs to all
/// processes.
pub(crate) fn with_own_notebook(write: impl FnOnce(&Notebook)) {
    let Some(index) = OWN_NUMBER.load(Ordering::Relaxed).checked_sub(1) else {
        return;
    };
    let change = |prot| {
        let start = (object_addr(index) + NOTEBOOK_OFFSET) as u64;
        // SAFETY: the notebook is this replica's.
        unsafe { sys::mprotect(start, NOTEBOOK_BYTES as u64, prot) }
    };
    if change(PROT_READ | PROT_WRITE).is_ok() {
        write(notebook(index));
        change(PROT_READ).expect("a mapping of ours");
    }
}

/// Maps control object, the memory that processes share, and replica objects from the descriptors
/// and closes these.
pub(crate) fn map(list: &[u8]) {
    for (position, text) in list.split(|byte| *byte == b',').enumerate() {
        let fd = parse_number(text);
        if position == 1 {
            map_arena(fd);
            continue;
        }
        let (addr, len, prot) = match position.checked_sub(2) {
            None => (CONTROL_ADDR, GROUPS * CONTROL_BYTES, PROT_READ),
            // Writable until the replicas part; each then keeps its own.
            Some(index) => (object_addr(index), OBJECT_BYTES, PROT_READ | PROT_WRITE),
        };
        let flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
        // SAFETY: an address of the agent's window that nothing uses yet.
        let mapped = unsafe { sys::mmap(addr as u64, len as u64, prot, flags, fd, 0) };
        if mapped != Ok(addr as u64) {
            sys::exit_group(UNFIT);
        }
        sys::close(fd);
    }
    if control(0).version.load(Ordering::Relaxed) != LAYOUT_VERSION {
        sys::exit_group(UNFIT);
    }
    set_own(0, 0);
}

fn map_arena(fd: i32) {
    let control = control(0);
    let replicas = control.replicas.load(Ordering::Relaxed) as usize;
    let bytes = control.slice_bytes.load(Ordering::Relaxed);
    if turns::slice::map(fd, replicas.min(MAX_REPLICAS), bytes).is_err() {
        sys::exit_group(UNFIT);
    }
    sys::close(fd);
}

fn parse_number(text: &[u8]) -> i32 {
    text.iter()
        .fold(0, |number, digit| number * 10 + i32::from(digit - b'0'))
}

/// Leaves of all objects only this replica's own region writable.
pub(crate) fn protect(group: usize, index: usize) {
    let started = control(0).replicas.load(Ordering::Relaxed) as usize;
    for other in 0..started.min(MAX_REPLICAS) {
        // SAFETY: only its owner writes a region from here on.
        unsafe { sys::mprotect(object_addr(other) as u64, OBJECT_BYTES as u64, PROT_READ) }
            .expect("a mapping of ours");
    }
    open(group, index);
}

/// Makes this replica's own region writable, whatever else still is.
pub(crate) fn open(group: usize, index: usize) {
    let prot = PROT_READ | PROT_WRITE;
    // SAFETY: the region is this replica's.
    unsafe { sys::mprotect(region_addr(group, index) as u64, REGION_BYTES as u64, prot) }
        .expect("a mapping of ours");
}

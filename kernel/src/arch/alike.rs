//! The kernel's own image in what replicas compare before one is copied, and where they tell each
//! other what came of it.
//!
//! Code, constants and statics are alike word by word at one point of the trace. Some statics are
//! left out: the machine, of which the protocol's part is each replica's own (votes compare it) and
//! the rest is compared value by value, the interrupts that came, and what is noted while a digest
//! or a copy is made. Stacks are not copied, so
//! they are not compared either.

use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::AtomicBool;

use rcoe_core::portions::Kept;
use rcoe_core::primitive::{AtomicU64 as Word, Ordering};
use rcoe_core::{Outbox, ReplicaId};
use rcoe_kernel_objects::{Checksum, KEPT_WORDS, Marks};

use super::loader::Image;
use super::processor::layout::{SHARED, SLICE};

/// Where in a slice a digest is published: between the outbox and the ring.
const PLACE: u64 = SLICE / 4;
const _: () = assert!(size_of::<Outbox>() as u64 <= PLACE);

/// What is noted while a digest is made.
struct Cell(UnsafeCell<Marks>);

// SAFETY: one core runs in a partition, and [`with_marks`] lends it once at a time.
unsafe impl Sync for Cell {}

static MARKS: Cell = Cell(UnsafeCell::new(Marks::new()));
/// Are they lent?
static LENT: AtomicBool = AtomicBool::new(false);

/// What is noted of each block while a copy is made in portions, and which the kernel writes.
struct KeptCell(UnsafeCell<[u64; KEPT_WORDS]>);

// SAFETY: one core runs in a partition, and [`kept`] lends it once, for good.
unsafe impl Sync for KeptCell {}

static KEPT: KeptCell = KeptCell(UnsafeCell::new([0; KEPT_WORDS]));
/// Is it lent?
static KEPT_LENT: AtomicBool = AtomicBool::new(false);

/// Lends those notes for good.
pub(crate) fn kept() -> Kept<'static> {
    assert!(!KEPT_LENT.swap(true, Ordering::Relaxed), "one kernel");
    // SAFETY: nobody else has them, now or later.
    Kept::new(unsafe { &mut *KEPT.0.get() })
}

/// Where these notes are.
pub(super) fn own_statics() -> [Range<u64>; 2] {
    let range = |start: u64, bytes: usize| start..start + bytes as u64;
    [
        range(&raw const MARKS as u64, size_of_val(&MARKS)),
        range(&raw const KEPT as u64, size_of_val(&KEPT)),
    ]
}

/// Lends the notes for a digest.
pub(crate) fn with_marks<T>(run: impl FnOnce(&mut Marks) -> T) -> T {
    assert!(!LENT.swap(true, Ordering::Relaxed), "one digest at a time");
    // SAFETY: nobody else has them.
    let result = run(unsafe { &mut *MARKS.0.get() });
    LENT.store(false, Ordering::Relaxed);
    result
}

/// A digest of the kernel's image.
pub(crate) fn image_digest() -> u64 {
    let image = Image::new();
    let own = super::machine::own_statics();
    let mut sum = Checksum::default();
    let mut address = image.start;
    while address < image.bss_end {
        if let Some(range) = own.iter().find(|range| range.contains(&address)) {
            address = range.end.next_multiple_of(8);
            continue;
        }
        // SAFETY: the image is mapped from end to end and aligned; nobody writes it meanwhile.
        sum.word(unsafe { ptr::read_volatile(address as *const u64) });
        address += 8;
    }
    sum.digest()
}

fn published(replica: ReplicaId) -> &'static Word {
    let place = SHARED + replica.index() as u64 * SLICE + PLACE;
    // SAFETY: slices are mapped for as long as the kernel runs, and nothing else lies there; an
    // atomic word is valid whatever it holds.
    unsafe { &*(place as *const Word) }
}

/// Tells the others this replica's digest.
pub(crate) fn publish_digest(own: ReplicaId, digest: u64) {
    published(own).store(digest, Ordering::Release);
}

/// What a replica told last.
pub(crate) fn digest_of(replica: ReplicaId) -> u64 {
    published(replica).load(Ordering::Acquire)
}

//! The kernel's own image in what replicas compare before one is copied, and where they tell each
//! other what came of it.
//!
//! Code, constants and statics are alike word by word at one point of the trace. Two statics are
//! left out: the machine, of which the protocol's part is each replica's own (votes compare it) and
//! the rest is compared value by value, and the interrupts that came. Stacks are not copied, so
//! they are not compared either.

use core::ptr;

use rcoe_core::primitive::{AtomicU64 as Word, Ordering};
use rcoe_core::{Outbox, ReplicaId};
use rcoe_kernel_objects::Checksum;

use super::loader::Image;
use super::processor::layout::{SHARED, SLICE};

/// Where in a slice a digest is published: between the outbox and the ring.
const PLACE: u64 = SLICE / 4;
const _: () = assert!(size_of::<Outbox>() as u64 <= PLACE);

/// A digest of the kernel's image.
pub(crate) fn image_digest() -> u64 {
    let image = Image::new();
    let own = super::machine::own_statics();
    let mut sum = Checksum::default();
    for address in (image.start..image.bss_end).step_by(8) {
        if !own.iter().any(|range| range.contains(&address)) {
            // SAFETY: the image is mapped from end to end and aligned; nobody writes it meanwhile.
            sum.word(unsafe { ptr::read_volatile(address as *const u64) });
        }
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

//! Scrubbing: flips that lie unused in one replica's memory are found and repaired.
//!
//! Healthy replicas have the same in the program's memory at the same point of the trace, byte for
//! byte. The supervisor orders a look at some pages: at the point of the trace at which the order
//! arrives each replica publishes a digest of each of them and goes on. The supervisor compares the
//! digests of that point when all have told. If some differ it orders a second look at these pages:
//! all meet, publish digests, meet again, and see alike what most members have. Whoever differs
//! takes the bytes that are not as they should be from a member that has them, while all wait.
//!
//! Contract: nothing is changed unless more than half of the members agree on it, or, where none
//! does, the supervisor knows from an earlier look who is right. Other pages stay as they are, and
//! the supervisor is told.
//!
//! The agent's own memory is the same in all replicas too, but for what is one replica's own
//! ([`own`]): that is neither compared nor changed. What runs here while it is repaired keeps to
//! it: the protocol's state, which every vote compares, and the stack. Of what was read from
//! elsewhere before a repair only the present call and its result are used after it, and votes
//! compare these.
//!
//! Memory that the program's processes share with each other lies in slices, one for each replica
//! ([`crate::sched::turns`]). Orders name its pages by their place in the first slice, and each
//! replica looks at its own. In a turn nobody else changes a slice, and the slices have had the
//! same turns before it, so they are alike at a point of the trace at which the process has its
//! turn; an order that comes at another one is left out.
//!
//! Not covered: what is private to a replica; registers; memory that the replicas share; whose turn
//! it is in a slice.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rcoe_core::{MAX_REPLICAS, ReplicaId};
use rcoe_linux_abi::PAGE_BYTES;
use rcoe_linux_abi::arena::{SLICE_STRIDE, slice_addr};
use rcoe_linux_abi::{AGENT_BASE, AGENT_END, BLOCKS, Report, SCRUB_PAGES};
use xxhash_rust::xxh3::xxh3_64;

use crate::calls::processes::release_twin;
use crate::kernel::Kernel;
use crate::memory::{deferred, own, regions};
use crate::sys;

type Page = [u8; PAGE_BYTES];
/// Instead of the digest of a page that cannot be read.
const UNREADABLE: u64 = 0;
/// Pages read at once: few enough that the nearest cache holds them until they are digested, and
/// the program finds in the others what it had there.
const BATCH: usize = 4;
const _: () = assert!(BATCH <= deferred::WINDOW);

/// Tells what is in these pages at this point of the trace. What is in them there the supervisor
/// compares when all members have told, so nobody waits; a divergence of one page is repaired by an
/// order of its own.
pub(crate) fn digest(kernel: &mut Kernel, word: u64, page: u64, count: u8) {
    let pages = Pages::from(page);
    // Memory that still waits to be taken over from a twin is looked at when it has come.
    let skipped = pages.are_changing(kernel) || deferred::is_active();
    if !skipped {
        let private = Private::within(kernel, &pages);
        tell(kernel, &private, &pages, usize::from(count));
    }
    conclude(kernel, word, skipped);
}

/// Compares pages, and repairs those of this replica that are not what most have, or where no
/// majority has the same, not what the member `right` has.
pub(crate) fn scrub(
    kernel: &mut Kernel,
    word: u64,
    (page, count): (u64, u8),
    right: Option<ReplicaId>,
) {
    let count = usize::from(count).min(SCRUB_PAGES);
    let pages = Pages::from(page);
    kernel.report.repaired.store(0, Ordering::Relaxed);
    kernel.report.undecided.store(0, Ordering::Relaxed);
    let skipped = pages.are_changing(kernel);
    if !skipped {
        if deferred::is_active() {
            deferred::settle_all();
            release_twin(kernel);
        }
        let private = Private::within(kernel, &pages);
        kernel.rendezvous();
        tell(kernel, &private, &pages, count);
        kernel.rendezvous();
        let opinion = Opinion::gather(kernel, count, right);
        if !opinion.is_unanimous() {
            repair(kernel, &pages, &opinion, &private);
        }
    }
    conclude(kernel, word, skipped);
}

/// The order is carried out, or was left out.
fn conclude(kernel: &Kernel, word: u64, skipped: bool) {
    let skipped = u32::from(skipped);
    kernel.report.skipped.store(skipped, Ordering::Relaxed);
    kernel.report.scrubbed.store(word, Ordering::Release);
}

/// Publishes digests of pages.
fn tell(kernel: &Kernel, private: &Private, pages: &Pages, count: usize) {
    let count = count.min(SCRUB_PAGES);
    let digests = kernel.report.digests[..count].chunks(BATCH);
    let blocks = kernel.report.blocks[..count].chunks(BATCH);
    let own = kernel.replica.id();
    for (batch, cells) in digests.zip(blocks).enumerate() {
        tell_batch(cells, private, pages.address(own, batch * BATCH));
    }
}

/// All are read at once; only what ends early is read page by page.
fn tell_batch(
    (digests, blocks): (&[AtomicU64], &[[AtomicU32; BLOCKS]]),
    private: &Private,
    first: u64,
) {
    let buffer = &mut deferred::buffer()[..digests.len() * PAGE_BYTES];
    let read = sys::read_process(sys::getpid(), first, buffer);
    let (pages, _) = buffer.as_chunks_mut::<PAGE_BYTES>();
    let cells = digests.iter().zip(blocks);
    for ((index, page), (cell, blocks)) in pages.iter_mut().enumerate().zip(cells) {
        let address = first.saturating_add((index * PAGE_BYTES) as u64);
        let whole = (index + 1) * PAGE_BYTES <= read;
        let digest = if whole || sys::read_process(sys::getpid(), address, page) == PAGE_BYTES {
            private.clear(address, page);
            let parts = rcoe_linux_abi::blocks(page, xxh3_64);
            for (cell, part) in blocks.iter().zip(parts) {
                cell.store(part, Ordering::Relaxed);
            }
            xxh3_64(page)
        } else {
            UNREADABLE
        };
        cell.store(digest, Ordering::Relaxed);
    }
}

/// The pages that an order names.
struct Pages {
    /// Address of the first one; of shared memory in the first slice.
    first: u64,
    shared: bool,
}

impl Pages {
    fn from(page: u64) -> Self {
        let first = page.saturating_mul(PAGE_BYTES as u64);
        let slice = slice_addr(0) as u64..slice_addr(1) as u64;
        Self {
            first,
            shared: slice.contains(&first),
        }
    }

    /// Where a replica has one of them.
    fn address(&self, replica: ReplicaId, index: usize) -> u64 {
        let slice = if self.shared {
            (replica.index() * SLICE_STRIDE) as u64
        } else {
            0
        };
        let place = self.first.saturating_add((index * PAGE_BYTES) as u64);
        place.saturating_add(slice)
    }

    /// Whether another process may change them now.
    fn are_changing(&self, kernel: &Kernel) -> bool {
        self.shared && !kernel.turns.has_turn()
    }
}

fn report_of(id: ReplicaId) -> &'static Report {
    regions::report(regions::own_group(), id.index())
}

/// What the members think of the pages. The same in all of them.
struct Opinion {
    /// Who has other than most, by replica, one bit for each page.
    odd: [u64; MAX_REPLICAS],
    /// A member that has what most have, by page.
    donors: [ReplicaId; SCRUB_PAGES],
    /// Pages of which no majority has the same.
    undecided: u64,
}

impl Opinion {
    fn gather(kernel: &Kernel, count: usize, right: Option<ReplicaId>) -> Self {
        let members = kernel.replica.members();
        let mut opinion = Self {
            odd: [0; MAX_REPLICAS],
            donors: [kernel.replica.id(); SCRUB_PAGES],
            undecided: 0,
        };
        for index in 0..count {
            let of = |id: ReplicaId| report_of(id).digests[index].load(Ordering::Acquire);
            let alike = |digest| members.iter().filter(|&it| of(it) == digest).count();
            let donor = members.iter().find(|&it| 2 * alike(of(it)) > members.len());
            let named = || right.filter(|&it| members.contains(it) && of(it) != UNREADABLE);
            let Some(donor) = donor.or_else(named) else {
                opinion.undecided |= 1 << index;
                continue;
            };
            opinion.donors[index] = donor;
            for odd in members.iter().filter(|&it| of(it) != of(donor)) {
                opinion.odd[odd.index()] |= 1 << index;
            }
        }
        opinion
    }

    fn is_unanimous(&self) -> bool {
        self.undecided == 0 && self.odd.iter().all(|&pages| pages == 0)
    }
}

/// Everybody stands still while those that are odd take what is right.
#[cold]
#[inline(never)]
fn repair(kernel: &mut Kernel, pages: &Pages, opinion: &Opinion, private: &Private) {
    // The state itself may be among what is repaired, by the host and byte by byte.
    let _ = (&raw mut *kernel).expose_provenance();
    let supervisor = kernel.control.supervisor.load(Ordering::Relaxed);
    let (mut repaired, mut undecided) = (0, opinion.undecided);
    sys::with_open_memory(supervisor, || {
        kernel.rendezvous();
        let own = kernel.replica.id();
        let odd = opinion.odd[own.index()];
        for index in (0..SCRUB_PAGES).filter(|index| odd >> index & 1 != 0) {
            let donor = opinion.donors[index];
            let places = [own, donor].map(|id| pages.address(id, index));
            let place = private.take(places, report_of(donor), index);
            let done = if place.is_some() {
                &mut repaired
            } else {
                &mut undecided
            };
            *done |= 1 << index;
            let place = place.unwrap_or_default();
            kernel.report.odd[index].store(place, Ordering::Relaxed);
        }
        kernel.rendezvous();
    });
    kernel.report.repaired.store(repaired, Ordering::Relaxed);
    kernel.report.undecided.store(undecided, Ordering::Relaxed);
}

/// What of the pages under way is this replica's own, from start to end.
struct Private(u64, u64);

impl Private {
    /// Of these pages. Within the agent's memory, forgets what only a primary has noted and can
    /// find out again.
    fn within(kernel: &mut Kernel, pages: &Pages) -> Self {
        let agent = AGENT_BASE as u64..AGENT_END as u64;
        if pages.shared || !agent.contains(&pages.first) {
            return Self(0, 0);
        }
        kernel.signals.forget_told();
        kernel.timers.forget_armed();
        let (start, end) = own::range(kernel);
        Self(start, end)
    }

    /// Reads a page of a process; private bytes read as 0.
    fn read(&self, pid: u32, address: u64, page: &mut Page) -> bool {
        if sys::read_process(pid, address, page) != PAGE_BYTES {
            return false;
        }
        self.clear(address, page);
        true
    }

    /// Makes what is private in a page 0.
    fn clear(&self, address: u64, page: &mut Page) {
        let (from, to) = (self.0.max(address), self.1.min(address + PAGE_BYTES as u64));
        if from < to {
            let offset = |place: u64| crate::convert::size(place - address);
            page[offset(from)..offset(to)].fill(0);
        }
    }

    /// What a page of this process holds, in a word.
    fn digest(&self, address: u64) -> u64 {
        let mut page = [0; PAGE_BYTES];
        if !self.read(sys::getpid(), address, &mut page) {
            return UNREADABLE;
        }
        xxh3_64(&page)
    }

    /// Makes a page what the donor has, each at its place. Returns the first byte that was not, or
    /// `None` if the page is not right afterwards.
    fn take(&self, [address, from]: [u64; 2], donor: &Report, index: usize) -> Option<u64> {
        let (mut own, mut right) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
        let agreed = donor.digests[index].load(Ordering::Acquire);
        let pid = donor.pid.load(Ordering::Relaxed);
        let read = self.read(sys::getpid(), address, &mut own) && self.read(pid, from, &mut right);
        if !read || xxh3_64(&right) != agreed {
            return None;
        }
        let memory = sys::open_file(b"/proc/self/mem\0", true).ok()?;
        let odd = || (0..PAGE_BYTES).filter(|&offset| own[offset] != right[offset]);
        for offset in odd() {
            let from = (&raw const right[offset]) as u64;
            sys::pwrite_raw(memory, from, 1, address + offset as u64);
        }
        sys::close(memory);
        let place = address + odd().next().unwrap_or(0) as u64;
        (self.digest(address) == agreed).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_there_has_a_digest_too() {
        let all = Private(0, 0);
        assert_eq!(all.digest(0x1000), UNREADABLE);
        let page = Box::new([1_u8; 2 * PAGE_BYTES]);
        let at = (page.as_ptr() as u64).next_multiple_of(PAGE_BYTES as u64);
        let before = all.digest(at);
        assert_ne!(before, UNREADABLE);
        assert_eq!(before, all.digest(at));
    }

    #[test]
    fn what_is_private_does_not_count() {
        let mut pages = Box::new([1_u8; 3 * PAGE_BYTES]);
        let at = (pages.as_ptr() as u64).next_multiple_of(PAGE_BYTES as u64);
        for (start, end, inside) in [
            (at - 1, at + 2, [0, 1]),
            (
                at + PAGE_BYTES as u64 - 1,
                at + PAGE_BYTES as u64 + 4,
                [PAGE_BYTES - 1, PAGE_BYTES],
            ),
        ] {
            let private = Private(start, end);
            let before = private.digest(at);
            let index = crate::convert::size(at - pages.as_ptr() as u64);
            for own in inside {
                pages[index + own] = 7;
                assert_eq!(private.digest(at), before, "byte {own}");
            }
            pages[index + 2] += 1;
            assert_ne!(private.digest(at), before);
        }
    }
}

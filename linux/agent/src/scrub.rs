//! Scrubbing: flips that lie unused in one replica's memory are found and repaired.
//!
//! Healthy replicas have the same in the program's memory at the same point of the trace, byte for
//! byte. The supervisor orders a look at some pages; all meet, publish a digest of each page, meet
//! again, and see alike what most members have. Whoever differs takes the bytes that are not as
//! they should be from a member that has them, while all wait.
//!
//! Contract: nothing is changed unless more than half of the members agree on it. Pages on which no
//! such majority agrees stay as they are, and the supervisor is told.
//!
//! The agent's own memory is the same in all replicas too, but for what is one replica's own
//! ([`private_ranges`]): that is neither compared nor changed. What runs here while it is repaired
//! keeps to those ranges: the protocol's state, which every vote compares, and the stack. Of what
//! was read from elsewhere before a repair only the present call and its result are used after it,
//! and votes compare these.
//!
//! Not covered: what is private to a replica; programs that share memory between processes, where
//! pages are compared by nobody; registers; memory that the replicas share.

use core::sync::atomic::Ordering;

use rcoe_core::{MAX_REPLICAS, ReplicaId};
use rcoe_linux_abi::{AGENT_BASE, AGENT_END, PRIVATE_RANGES, Report, SCRUB_PAGES};
use xxhash_rust::xxh3::xxh3_64;

use crate::calls::processes::release_twin;
use crate::kernel::Kernel;
use crate::reintegration::private_ranges;
use crate::{deferred, regions, sys};

const PAGE: usize = 4096;
type Page = [u8; PAGE];
/// Instead of the digest of a page that cannot be read.
const UNREADABLE: u64 = 0;

/// Compares pages, and repairs those of this replica that are not what most have.
pub(crate) fn scrub(kernel: &mut Kernel, word: u64, page: u64, count: u8) {
    let count = usize::from(count).min(SCRUB_PAGES);
    let first = page.saturating_mul(PAGE as u64);
    kernel.report.repaired.store(0, Ordering::Relaxed);
    kernel.report.undecided.store(0, Ordering::Relaxed);
    if !kernel.turns.is_member() {
        if deferred::is_active() {
            deferred::settle_all();
            release_twin(kernel);
        }
        let private = Private::within(kernel, first);
        kernel.rendezvous();
        for (index, cell) in kernel.report.digests.iter().take(count).enumerate() {
            let digest = private.digest(address(first, index));
            cell.store(digest, Ordering::Relaxed);
        }
        kernel.rendezvous();
        let opinion = Opinion::gather(kernel, count);
        if !opinion.is_unanimous() {
            repair(kernel, first, &opinion, &private);
        }
    }
    kernel.report.scrubbed.store(word, Ordering::Release);
}

fn address(first: u64, index: usize) -> u64 {
    first.saturating_add((index * PAGE) as u64)
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
    fn gather(kernel: &Kernel, count: usize) -> Self {
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
            let Some(donor) = donor else {
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
fn repair(kernel: &mut Kernel, first: u64, opinion: &Opinion, private: &Private) {
    // The state itself may be among what is repaired, by the host and byte by byte.
    let _ = (&raw mut *kernel).expose_provenance();
    let supervisor = kernel.control.supervisor.load(Ordering::Relaxed);
    let (mut repaired, mut undecided) = (0, opinion.undecided);
    sys::with_open_memory(supervisor, || {
        kernel.rendezvous();
        let odd = opinion.odd[kernel.replica.id().index()];
        for index in (0..SCRUB_PAGES).filter(|index| odd >> index & 1 != 0) {
            let donor = report_of(opinion.donors[index]);
            let place = private.take(address(first, index), donor, index);
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

/// What of the pages under way is this replica's own, as start and length.
struct Private([(u64, u64); PRIVATE_RANGES]);

impl Private {
    /// Of the pages from `first` on. Within the agent's memory, forgets what only a primary has
    /// noted and can find out again.
    fn within(kernel: &mut Kernel, first: u64) -> Self {
        let agent = AGENT_BASE as u64..AGENT_END as u64;
        if !agent.contains(&first) {
            return Self([(0, 0); PRIVATE_RANGES]);
        }
        kernel.signals.forget_told();
        kernel.timers.forget_armed();
        Self(private_ranges(kernel))
    }

    /// Reads a page of a process; private bytes read as 0.
    fn read(&self, pid: u32, address: u64, page: &mut Page) -> bool {
        if sys::read_process(pid, address, page) != PAGE {
            return false;
        }
        let end = address + PAGE as u64;
        for &(start, len) in &self.0 {
            let (from, to) = (start.max(address), (start + len).min(end));
            if from < to {
                let offset = |place: u64| crate::convert::size(place - address);
                page[offset(from)..offset(to)].fill(0);
            }
        }
        true
    }

    /// What a page holds, in a word.
    fn digest(&self, address: u64) -> u64 {
        let mut page = [0; PAGE];
        if !self.read(sys::getpid(), address, &mut page) {
            return UNREADABLE;
        }
        xxh3_64(&page)
    }

    /// Makes a page what the donor has. Returns the first byte that was not, or `None` if the page
    /// is not right afterwards.
    fn take(&self, address: u64, donor: &Report, index: usize) -> Option<u64> {
        let (mut own, mut right) = ([0; PAGE], [0; PAGE]);
        let agreed = donor.digests[index].load(Ordering::Acquire);
        let pid = donor.pid.load(Ordering::Relaxed);
        let read =
            self.read(sys::getpid(), address, &mut own) && self.read(pid, address, &mut right);
        if !read || xxh3_64(&right) != agreed {
            return None;
        }
        let memory = sys::open_file(b"/proc/self/mem\0", true).ok()?;
        let odd = || (0..PAGE).filter(|&offset| own[offset] != right[offset]);
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
        let all = Private([(0, 0); PRIVATE_RANGES]);
        assert_eq!(all.digest(0x1000), UNREADABLE);
        let page = Box::new([1_u8; 2 * PAGE]);
        let at = (page.as_ptr() as u64).next_multiple_of(PAGE as u64);
        let before = all.digest(at);
        assert_ne!(before, UNREADABLE);
        assert_eq!(before, all.digest(at));
    }

    #[test]
    fn what_is_private_does_not_count() {
        let mut pages = Box::new([1_u8; 3 * PAGE]);
        let start = pages.as_ptr() as u64;
        let at = start.next_multiple_of(PAGE as u64);
        let mut private = Private([(0, 0); PRIVATE_RANGES]);
        private.0[1] = (at - 1, 3);
        private.0[2] = (at + PAGE as u64 - 1, 5);
        let before = private.digest(at);
        let index = crate::convert::size(at - start);
        for own in [0, 1, PAGE - 1, PAGE] {
            pages[index + own] = 7;
            assert_eq!(private.digest(at), before, "byte {own}");
        }
        pages[index + 2] = 7;
        assert_ne!(private.digest(at), before);
    }
}

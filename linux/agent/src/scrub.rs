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
//! Not covered: what the agent itself writes, of which a part belongs to one replica alone;
//! programs that share memory between processes, where pages are compared by nobody; registers;
//! memory that the replicas share.

use core::sync::atomic::Ordering;

use rcoe_core::{MAX_REPLICAS, ReplicaId};
use rcoe_linux_abi::{Report, SCRUB_PAGES};
use xxhash_rust::xxh3::xxh3_64;

use crate::calls::processes::release_twin;
use crate::kernel::Kernel;
use crate::{deferred, regions, sys};

const PAGE: usize = 4096;
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
        kernel.rendezvous();
        for (index, cell) in kernel.report.digests.iter().take(count).enumerate() {
            let digest = digest(address(first, index));
            cell.store(digest, Ordering::Relaxed);
        }
        kernel.rendezvous();
        let opinion = Opinion::gather(kernel, count);
        if !opinion.is_unanimous() {
            repair(kernel, first, &opinion);
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
fn repair(kernel: &mut Kernel, first: u64, opinion: &Opinion) {
    let supervisor = kernel.control.supervisor.load(Ordering::Relaxed);
    let (mut repaired, mut undecided) = (0, opinion.undecided);
    sys::with_open_memory(supervisor, || {
        kernel.rendezvous();
        let odd = opinion.odd[kernel.replica.id().index()];
        for index in (0..SCRUB_PAGES).filter(|index| odd >> index & 1 != 0) {
            let donor = report_of(opinion.donors[index]);
            if take(kernel.report, address(first, index), donor, index) {
                repaired |= 1 << index;
            } else {
                undecided |= 1 << index;
            }
        }
        kernel.rendezvous();
    });
    kernel.report.repaired.store(repaired, Ordering::Relaxed);
    kernel.report.undecided.store(undecided, Ordering::Relaxed);
}

/// Makes a page what the donor has; whether it is that afterwards.
fn take(own_report: &Report, address: u64, donor: &Report, index: usize) -> bool {
    let (mut own, mut right) = ([0; PAGE], [0; PAGE]);
    let pid = donor.pid.load(Ordering::Relaxed);
    if !read(sys::getpid(), address, &mut own) || !read(pid, address, &mut right) {
        return false;
    }
    let Ok(memory) = sys::open_file(b"/proc/self/mem\0", true) else {
        return false;
    };
    let odd = || (0..PAGE).filter(|&offset| own[offset] != right[offset]);
    for offset in odd() {
        let from = (&raw const right[offset]) as u64;
        sys::pwrite_raw(memory, from, 1, address + offset as u64);
    }
    sys::close(memory);
    let place = address + odd().next().unwrap_or(0) as u64;
    own_report.odd[index].store(place, Ordering::Relaxed);
    digest(address) == donor.digests[index].load(Ordering::Acquire)
}

fn read(pid: u32, address: u64, page: &mut [u8; PAGE]) -> bool {
    sys::read_process(pid, address, page) == PAGE
}

/// What a page holds, in a word.
fn digest(address: u64) -> u64 {
    let mut page = [0; PAGE];
    if !read(sys::getpid(), address, &mut page) {
        return UNREADABLE;
    }
    xxh3_64(&page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_there_has_a_digest_too() {
        assert_eq!(digest(0x1000), UNREADABLE);
        let page = Box::new([1_u8; 2 * PAGE]);
        let at = (page.as_ptr() as u64).next_multiple_of(PAGE as u64);
        let before = digest(at);
        assert_ne!(before, UNREADABLE);
        assert_eq!(before, digest(at));
    }
}

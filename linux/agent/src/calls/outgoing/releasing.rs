//! When effects that wait go out.
//!
//! The primary releases: at a call, at a reminder or before it waits, what all have come to by
//! then; after a rendezvous all that waits. What came of the latter all hear with a record. A new
//! primary first finds out how far a lost one has come.
//!
//! Contract: nothing leaves before all have posted the same, and in the order of the queue.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EAGAIN;
use linux_raw_sys::general::POLLOUT;

use crate::calls::outgoing::queue::Released;
use crate::calls::outgoing::{accuse, examine};
use crate::convert::low32;
use crate::kernel::{Kernel, count};
use crate::protocol::transfer;
use crate::sys::{self, polling, sockets};

/// Primary: releases what all have come to, as far as the host takes it at once.
pub(crate) fn release_agreed(kernel: &mut Kernel) {
    if !kernel.replica.is_primary() || kernel.queue.is_empty() {
        return;
    }
    catch_up(kernel);
    while let Some(entry) = kernel.queue.next() {
        if !kernel.replica.is_posted_alike(entry.post) {
            return;
        }
        match kernel.queue.release() {
            Released::All => {}
            Released::Refused(errno) => kernel.queue.give_up(errno),
            Released::Rest | Released::Damaged => return,
        }
    }
}

/// Primary, about to wait for the outside: what waits goes out as the others come to it. True if
/// nothing is left then, and all went well; else all have to meet.
pub(crate) fn before_wait(kernel: &mut Kernel) -> bool {
    /// How often others are let run, about as long as a rendezvous would take.
    const ROUNDS: u32 = 100;
    kernel.settle_debt();
    for _ in 0..ROUNDS {
        release_agreed(kernel);
        if kernel.queue.is_empty() {
            return !kernel.queue.has_refusals();
        }
        sys::sched_yield();
    }
    false
}

/// All replicas: the primary has said that all that waited is out.
///
/// # Panics
/// If this is the primary and something is not.
pub(crate) fn went_out(kernel: &mut Kernel) {
    assert!(
        kernel.queue.is_empty() || !kernel.replica.is_primary(),
        "what was said to be out is out"
    );
    kernel.outgoing.settle();
    kernel.queue.forget();
    count(&kernel.report.flushes, 1);
}

/// Primary: a lost one may have released some of what waits.
fn catch_up(kernel: &mut Kernel) {
    let caught_up = kernel
        .queue
        .catch_up(examine::position, examine::read_position, is_open);
    if caught_up.is_none() {
        let halt = kernel.replica.lose_effect();
        kernel.park(halt);
    }
}

fn is_open(fd: u32) -> bool {
    sys::is_open(fd.cast_signed())
}

/// Primary, reminded by the host while the program computes.
pub(crate) fn tick(kernel: &mut Kernel) {
    if kernel.queue.tick() {
        release_agreed(kernel);
    }
}

/// All replicas, having met: all that waits goes out, and all hear what came of it.
#[cold]
pub(crate) fn settle(kernel: &mut Kernel) {
    kernel.outgoing.settle();
    count(&kernel.report.flushes, 1);
    loop {
        let word = transfer::agree_all(kernel, true, |kernel| {
            release_all(kernel);
            let refusal = kernel.queue.take_refusal();
            [refusal.map_or(0, |(fd, errno)| u64::from(fd) << 32 | u64::from(errno))]
        });
        let [word] = word;
        if word == 0 {
            return kernel.queue.forget();
        }
        kernel.outgoing.add_failure(low32(word >> 32), low32(word));
    }
}

/// Primary: releases everything. There was room for it; if the host has none all the same, for want
/// of memory, it waits a while, and then gives the connection up rather than leave a hole.
fn release_all(kernel: &mut Kernel) {
    /// Attempts of a tenth of a second.
    const ATTEMPTS: u32 = 50;
    let mut attempts = 0;
    catch_up(kernel);
    while let Some(entry) = kernel.queue.next() {
        let fd = entry.fd;
        match kernel.queue.release() {
            Released::All => attempts = 0,
            Released::Refused(errno) => kernel.queue.give_up(errno),
            Released::Damaged => {
                accuse(kernel);
                kernel.queue.give_up(EAGAIN);
            }
            Released::Rest if attempts < ATTEMPTS => {
                attempts += 1;
                await_room(kernel, fd);
            }
            Released::Rest => {
                sockets::end_connection(fd);
                kernel.queue.give_up(linux_raw_sys::errno::EPIPE);
            }
        }
    }
}

/// Waits a tenth of a second at most, in which this replica is not missed.
fn await_room(kernel: &Kernel, fd: u32) {
    let in_call = &kernel.report.in_call;
    in_call.store(1, Ordering::Relaxed);
    polling::wait_until(fd, POLLOUT, 100);
    in_call.store(0, Ordering::Relaxed);
}

//! Locking memory, `mlock` and its kin; what of it is resident, and what may not be dropped.
//!
//! Every replica locks its own memory. The agent's is not the program's and is left as it is: most
//! of it is room that nobody uses, gigabytes of it. So `mlockall` locks the program's mappings one
//! by one, as the primary finds them; those of the others are the same.
//!
//! What is resident depends on the host, and on what became of a replica, so `mincore` tells of the
//! primary's memory, for all.
//!
//! Not covered: a copy of a lost replica has the memory, but not the locks.

use linux_raw_sys::errno::{EINVAL, ENOMEM, EPERM};
use linux_raw_sys::general::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};
use rcoe_linux_abi::PAGE;

use crate::calls::Call;
use crate::calls::memory::{agent_memory, local};
use crate::calls::processes::each_mapping;
use crate::convert::{low32, size};
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::memory::loader::page_up;
use crate::protocol::transfer;
use crate::sys;

/// Mappings that the primary tells at a time.
const MAPPINGS: usize = 16;
/// Words of a set of pages.
const WORDS: usize = 8;
/// Pages in it, which are agreed on at a time.
const AT_ONCE: u64 = 64 * WORDS as u64;

/// `mlock`, `mlock2` and `munlock`.
pub(in crate::calls) fn lock(kernel: &Kernel, call: &Call) -> i64 {
    if guest::is_agent(call.arg(0), call.arg(1)) {
        return agent_memory(kernel, call.arg(0));
    }
    local(call.nr, call.raw)
}

/// `mlockall`.
pub(in crate::calls) fn lock_all(kernel: &mut Kernel, call: &Call) -> i64 {
    let flags = low32(call.arg(0));
    let known = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
    if flags & (MCL_CURRENT | MCL_FUTURE) == 0 || flags & !known != 0 {
        return sys::error(EINVAL);
    }
    let limit = match sys::may_lock_all() {
        true => u64::MAX,
        false => sys::locked_memory_limit(),
    };
    if limit == 0 {
        return sys::error(EPERM);
    }
    if flags & MCL_CURRENT != 0 {
        let mut total = 0_u64;
        for_each(kernel, |start, end| total += end - start);
        if total > limit {
            return sys::error(ENOMEM);
        }
        let mode = if flags & MCL_ONFAULT == 0 {
            0
        } else {
            MLOCK_ONFAULT
        };
        // As in the kernel, what cannot be brought in is no error.
        for_each(kernel, |start, end| sys::lock(start, end - start, mode));
    }
    if flags & MCL_FUTURE == 0 {
        return 0;
    }
    local(call.nr, [u64::from(flags & !MCL_CURRENT), 0, 0, 0, 0, 0])
}

/// All replicas: goes through the program's mappings.
fn for_each(kernel: &mut Kernel, mut visit: impl FnMut(u64, u64)) {
    let mut from = 0;
    loop {
        let words = transfer::agree_all::<{ 2 * MAPPINGS }>(kernel, true, |_| told(from));
        for pair in words.chunks_exact(2) {
            if pair[1] == 0 {
                return;
            }
            visit(pair[0], pair[1]);
            from = pair[1];
        }
    }
}

/// Primary: the next mappings of the program, start and end each; 0 when there are no more.
fn told(from: u64) -> [u64; 2 * MAPPINGS] {
    let mut words = [0; 2 * MAPPINGS];
    let mut count = 0;
    let listed = sys::with_own_memory(|| {
        each_mapping(|mapping| {
            let (start, end) = (mapping.start, mapping.end);
            let ours = guest::is_agent(start, end - start);
            if count < MAPPINGS && start >= from && !ours && end <= sys::TASK_END {
                words[2 * count..][..2].copy_from_slice(&[start, end]);
                count += 1;
            }
        })
    });
    // Nothing is locked of what is not known; the host has no descriptor left.
    if listed.is_err() {
        [0; 2 * MAPPINGS]
    } else {
        words
    }
}

/// The end of a range of memory, in whole pages; `None` if no program can have it.
pub(super) fn end_of(start: u64, len: u64) -> Option<u64> {
    let end = start.checked_add(page_up(len))?;
    (page_up(len) >= len && end <= sys::TASK_END).then_some(end)
}

/// `mincore`.
pub(in crate::calls) fn mincore(kernel: &mut Kernel, call: &Call) -> i64 {
    let (start, vector) = (call.arg(0), call.arg(2));
    if !start.is_multiple_of(PAGE) {
        return sys::error(EINVAL);
    }
    let Some(end) = end_of(start, call.arg(1)) else {
        return sys::error(ENOMEM);
    };
    let mut at = start;
    while at < end {
        let pages = ((end - at) / PAGE).min(AT_ONCE);
        let mut told = [0_u8; size(AT_ONCE)];
        let told = &mut told[..size(pages)];
        let result = look(at, told);
        if result < 0 {
            return result;
        }
        let resident = transfer::agree_all(kernel, true, |_| set_of(told));
        for (page, byte) in told.iter_mut().enumerate() {
            *byte = (resident[page / 64] >> (page % 64) & 1) as u8;
        }
        let to = vector.wrapping_add((at - start) / PAGE);
        if guest::is_agent(to, pages) || guest::copy_out(to, told).is_err() {
            return guest::Fault::RESULT;
        }
        at += pages * PAGE;
    }
    0
}

/// Which pages of this replica's memory are resident, from an address on.
fn look(start: u64, told: &mut [u8]) -> i64 {
    if guest::is_agent(start, told.len() as u64 * PAGE) {
        return sys::error(ENOMEM);
    }
    sys::resident(start, told)
}

fn set_of(told: &[u8]) -> [u64; WORDS] {
    let mut set = [0; WORDS];
    for (page, byte) in told.iter().enumerate() {
        set[page / 64] |= u64::from(byte & 1) << (page % 64);
    }
    set
}

/// Is a part of the range locked? The primary's word: one that was copied has no locks.
pub(super) fn is_locked(kernel: &mut Kernel, start: u64, len: u64) -> bool {
    if guest::is_agent(start, len) {
        return false;
    }
    let ask = || u64::from(sys::may_not_be_dropped(start, len));
    transfer::agree(kernel, ask) != 0
}

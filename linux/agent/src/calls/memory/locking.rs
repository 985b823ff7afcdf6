//! Locking memory: `mlock` and its kin.
//!
//! Every replica locks its own memory. The agent's is not the program's and is left as it is: most
//! of it is room that nobody uses, gigabytes of it. So `mlockall` locks the program's mappings one
//! by one, as the primary finds them; those of the others are the same.
//!
//! Not covered: a copy of a lost replica has the memory, but not the locks.

use linux_raw_sys::errno::{EINVAL, ENOMEM, EPERM};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};

use crate::calls::Call;
use crate::calls::memory::{agent_memory, local};
use crate::calls::processes::each_mapping;
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::memory::loader::page_up;
use crate::protocol::transfer;
use crate::sys;

/// Mappings that the primary tells at a time.
const AT_ONCE: usize = 16;

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
        for_each(kernel, |start, end| {
            // As in the kernel, what cannot be brought in is no error.
            local(
                nr::__NR_mlock2.into(),
                [start, end - start, mode.into(), 0, 0, 0],
            );
        });
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
        let words = transfer::agree_all::<{ 2 * AT_ONCE }>(kernel, true, |_| told(from));
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
fn told(from: u64) -> [u64; 2 * AT_ONCE] {
    let mut words = [0; 2 * AT_ONCE];
    let mut count = 0;
    let listed = sys::with_own_memory(|| {
        each_mapping(|mapping| {
            let (start, end) = (mapping.start, mapping.end);
            let ours = guest::is_agent(start, end - start);
            if count < AT_ONCE && start >= from && !ours && end <= sys::TASK_END {
                words[2 * count..][..2].copy_from_slice(&[start, end]);
                count += 1;
            }
        })
    });
    // Nothing is locked of what is not known; the host has no descriptor left.
    if listed.is_err() {
        [0; 2 * AT_ONCE]
    } else {
        words
    }
}

/// The end of a range of memory, in whole pages; `None` if no program can have it.
pub(super) fn end_of(start: u64, len: u64) -> Option<u64> {
    let end = start.checked_add(page_up(len))?;
    (page_up(len) >= len && end <= sys::TASK_END).then_some(end)
}

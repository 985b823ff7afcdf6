//! Shared writable mappings of files, of a program without other processes.
//!
//! A store into such a mapping leaves the program at once, without a call at which it could be
//! voted. So every replica maps the file privately, and what it has changed goes out at the points
//! of [`crate::calls::shared::files`]; then all drop their private copies, so that the mapping
//! shows the file again (Romain's *private copy* of shared memory).

use linux_raw_sys::general::{MAP_PRIVATE, MAP_TYPE};

use crate::calls::Call;
use crate::calls::memory::local;
use crate::calls::shared::files::{self, close_if_unused, own_descriptor};
use crate::calls::shared::{Backing, Mapping};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::loader::page_up;
use crate::sys::{self, FileFacts};

/// Would part of a file be mapped twice?
pub(super) fn would_alias(kernel: &Kernel, call: &Call, facts: &FileFacts) -> bool {
    let (start, end) = files::part(call);
    let live = kernel.shared.live();
    live.iter()
        .any(|it| it.is_of(facts) && it.offset < end && start < it.offset + it.len)
}

/// Maps the file privately.
pub(super) fn map(kernel: &mut Kernel, call: &Call, facts: FileFacts) -> i64 {
    let fd = match own_descriptor(kernel, call.arg(4)) {
        Ok(fd) => fd,
        Err(result) => return result,
    };
    let mut args = call.raw;
    args[3] = call.arg(3) & !u64::from(MAP_TYPE) | u64::from(MAP_PRIVATE);
    let result = local(call.nr, args);
    match sys::check(result) {
        Ok(start) => kernel.shared.add(Mapping {
            start,
            len: page_up(call.arg(1)),
            prot: low32(call.arg(2)),
            read_only: false,
            backing: Backing::Copy,
            fd,
            facts,
            offset: call.arg(5),
        }),
        Err(_) => close_if_unused(kernel, fd),
    }
    result
}

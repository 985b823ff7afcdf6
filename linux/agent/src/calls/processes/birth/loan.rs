//! `vfork` and `CLONE_VM | CLONE_VFORK`: memory is copied as `fork` does, and the parent waits
//! until its child has been replaced or has ended. If it has ended, what it wrote above the
//! parent's stack pointer (4 KiB) reaches the parent: there glibc's `posix_spawn` keeps its error
//! word.

use core::sync::atomic::Ordering;

use rcoe_core::ReplicaId;
use rcoe_linux_abi::{LENT_WORDS, Phase};

use crate::calls::processes::wait;
use crate::calls::{Call, io};
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::memory::regions;
use crate::sys;

/// Parent of a child made by `vfork`: waits, and takes what an ended child has left on the stack.
pub(super) fn await_child(kernel: &mut Kernel, call: &Call, group: usize, stack: u64) {
    kernel.processes.awaited = Some(group);
    let ended = io::exchange(kernel, call, true);
    if ended == 1 {
        take_back(kernel, group, stack);
    }
    wait::released(kernel, group);
}

/// Takes what a child made by `vfork` that has ended has left on the stack.
fn take_back(kernel: &Kernel, group: usize, stack: u64) {
    let whole = |index: &usize| {
        let report = regions::report(group, *index);
        report.phase.load(Ordering::Acquire) == Phase::Ended as u32
    };
    let own = core::iter::once(kernel.replica.id().index());
    let members = kernel.replica.members();
    let source = own.chain(members.iter().map(ReplicaId::index)).find(whole);
    let Some(source) = source else { return };
    let mut bytes = [0_u8; LENT_WORDS * 8];
    for (chunk, cell) in bytes
        .chunks_mut(8)
        .zip(&regions::report(group, source).lent)
    {
        chunk.copy_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
    }
    // A child killed by a signal has left nothing.
    if bytes.iter().any(|byte| *byte != 0) {
        let _ = guest::copy_out(stack, &bytes);
    }
}

/// Primary: 0 once the child has been replaced, 1 once it has ended.
pub(in crate::calls::processes) fn await_release(kernel: &Kernel, group: usize) -> i64 {
    let control = kernel.control;
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        if regions::control(group).ending.load(Ordering::Acquire) != 0 {
            return 1;
        }
        let members = kernel.replica.members();
        let mut cells = members
            .iter()
            .map(|id| &regions::report(group, id.index()).replaced);
        let replaced = cells.any(|cell| cell.load(Ordering::Acquire) != 0);
        if replaced {
            return 0;
        }
        let first = members.lowest().map_or(0, ReplicaId::index);
        let first = &regions::report(group, first).replaced;
        let bells = [
            (control.bell.as_ptr().cast_const(), bell),
            (first.as_ptr().cast_const(), 0),
        ];
        sys::futex_wait_any(&bells, crate::calls::processes::LOOK_NS);
        sys::leave_if_orphaned(control.supervisor.load(Ordering::Relaxed));
    }
}

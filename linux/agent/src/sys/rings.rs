//! Rings of requests (`io_uring`) that have no descriptor, but a number among the task's.

use core::mem::MaybeUninit;

use linux_raw_sys::general as nr;
use linux_raw_sys::io_uring::{
    IO_URING_OP_SUPPORTED, io_uring_params, io_uring_probe_op, io_uring_register_op,
};
use rcoe_linux_sys::{syscall2, syscall4};

/// The call that submits requests.
pub(crate) const ENTER: u64 = nr::__NR_io_uring_enter as u64;
/// Operations that are told apart.
const OPERATIONS: usize = 64;

/// Makes a ring for so many requests; its number, `None` if the host refuses it.
///
/// # Safety
/// The memory that the parameters name is for this only.
pub(crate) unsafe fn set_up(entries: u64, params: &mut io_uring_params) -> Option<u32> {
    let at = (&raw mut *params) as u64;
    // SAFETY: the parameters are valid for reading and writing; the rest is the caller's promise.
    let made = unsafe { syscall2(u64::from(nr::__NR_io_uring_setup), entries, at) };
    u32::try_from(made).ok()
}

/// Operations that the host knows, one bit each.
pub(crate) fn known_operations(number: u32) -> u64 {
    #[repr(C)]
    struct Probe {
        head: [u64; 2],
        operations: [io_uring_probe_op; OPERATIONS],
    }
    // SAFETY: integers only, for which zero is a value.
    let mut probe: Probe = unsafe { MaybeUninit::zeroed().assume_init() };
    let operation = io_uring_register_op::IORING_REGISTER_PROBE as u64
        | io_uring_register_op::IORING_REGISTER_USE_REGISTERED_RING as u64;
    // SAFETY: the structure has room for as many operations as are asked for.
    let done = unsafe {
        syscall4(
            u64::from(nr::__NR_io_uring_register),
            u64::from(number),
            operation,
            (&raw mut probe) as u64,
            OPERATIONS as u64,
        )
    };
    if done < 0 {
        return 0;
    }
    let supported = |op: &&io_uring_probe_op| u32::from(op.flags) & IO_URING_OP_SUPPORTED != 0;
    let known = probe.operations.iter().filter(supported);
    known.fold(0, |set, op| {
        set | 1_u64.checked_shl(op.op.into()).unwrap_or(0)
    })
}

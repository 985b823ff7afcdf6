//! What the kernel looks at before memory, or before what is not carried: of such a call the
//! program is told the same here.

use linux_raw_sys::errno::{E2BIG, EINVAL, EPERM};
use linux_raw_sys::general as nr;
use rcoe_linux_abi::limits::NOFILE;
use rcoe_linux_syscalls::{Special, Waits};

use crate::calls::{Call, scheduling};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sched::timeouts;
use crate::sys;

const CAP_SYS_ADMIN: u32 = 21;

fn may_administer() -> bool {
    sys::capabilities().effective & 1 << CAP_SYS_ADMIN != 0
}

/// The result of a call with memory that is not there.
#[cold]
#[inline(never)]
pub(super) fn of_fault(kernel: &mut Kernel, call: &Call) -> i64 {
    match call.what.special {
        Special::HostName => of_name(call),
        Special::Semop => of_operations(kernel, call),
        Special::SchedSetattr | Special::SchedSetparam | Special::SchedSetscheduler => {
            scheduling::judge(call)
        }
        Special::Pselect6 | Special::EpollPwait => of_mask(call).unwrap_or(Fault::RESULT),
        _ if call.what.facts.waits == Waits::Poll => of_poll(call, kernel.limits.soft(NOFILE)),
        _ => Fault::RESULT,
    }
}

/// A name of the host's.
fn of_name(call: &Call) -> i64 {
    const LONGEST: i32 = 64;
    let len = low32(call.arg(1)).cast_signed();
    if !may_administer() {
        sys::error(EPERM)
    } else if !(0..=LONGEST).contains(&len) {
        sys::error(EINVAL)
    } else {
        Fault::RESULT
    }
}

/// Operations on semaphores, of which the host does only so many at a time.
fn of_operations(kernel: &mut Kernel, call: &Call) -> i64 {
    let most = transfer::agree(kernel, sys::semaphores::most_operations);
    if call.arg(2) > most {
        sys::error(E2BIG)
    } else {
        Fault::RESULT
    }
}

/// Descriptors to be polled, of which there may be so many.
fn of_poll(call: &Call, most: u64) -> i64 {
    match of_mask(call) {
        Some(error) => error,
        None if call.arg(1) > most => sys::error(EINVAL),
        None => Fault::RESULT,
    }
}

/// The error of a wait under a mask of signals whose time or mask is wrong: these come before all
/// that it waits for.
pub(super) fn of_mask(call: &Call) -> Option<i64> {
    const MASK_BYTES: u64 = 8;
    let (time, mask, bytes) = match call.what.special {
        Special::Ppoll => (call.arg(2), call.arg(3), call.arg(4)),
        Special::EpollPwait => (0, call.arg(4), call.arg(5)),
        Special::Pselect6 if call.arg(5) != 0 => match guest::read::<[u64; 2]>(call.arg(5)) {
            Ok([mask, bytes]) => (call.arg(4), mask, bytes),
            Err(Fault) => return Some(Fault::RESULT),
        },
        Special::Pselect6 => (call.arg(4), 0, 0),
        _ => return None,
    };
    if time != 0 {
        match timeouts::timespec(time) {
            Err(Fault) => return Some(Fault::RESULT),
            Ok(None) => return Some(sys::error(EINVAL)),
            Ok(Some(_)) => {}
        }
    }
    if mask != 0 && bytes != MASK_BYTES {
        return Some(sys::error(EINVAL));
    }
    (mask != 0 && guest::read::<u64>(mask).is_err()).then_some(Fault::RESULT)
}

/// What the kernel says of `clone` and `unshare` with namespaces that this process may not make,
/// or with flags that it does not know; `None` if it would do what is not carried here.
pub(super) fn of_namespaces(call: &Call) -> Option<i64> {
    let flags = match call.what.special {
        Special::Unshare if call.raw[0] & !UNSHARED != 0 => return Some(sys::error(EINVAL)),
        Special::Unshare => call.raw[0],
        Special::Clone => low32(call.raw[0]).into(),
        _ => return None,
    };
    let by_itself = flags & u64::from(nr::CLONE_NEWUSER) != 0;
    (flags & NAMESPACES != 0 && !by_itself && !may_administer()).then(|| sys::error(EPERM))
}

/// Namespaces that need a privilege, but for those of users.
const NAMESPACES: u64 = (nr::CLONE_NEWNS
    | nr::CLONE_NEWCGROUP
    | nr::CLONE_NEWUTS
    | nr::CLONE_NEWIPC
    | nr::CLONE_NEWPID
    | nr::CLONE_NEWNET) as u64;
/// All that `unshare` knows.
const UNSHARED: u64 = NAMESPACES
    | (nr::CLONE_THREAD
        | nr::CLONE_FS
        | nr::CLONE_SIGHAND
        | nr::CLONE_VM
        | nr::CLONE_FILES
        | nr::CLONE_SYSVSEM
        | nr::CLONE_NEWUSER
        | nr::CLONE_NEWTIME) as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1024;
    const NOWHERE: u64 = u64::MAX - 4095;

    const POLL: u64 = 7;
    const PPOLL: u64 = 271;

    fn of(nr: u64, arguments: [u64; 5]) -> i64 {
        let [list, count, time, mask, bytes] = arguments;
        let call = Call::new(nr, [list, count, time, mask, bytes, 0]).expect("known");
        of_poll(&call, MOST)
    }

    #[test]
    fn too_many_descriptors_are_told_of_before_a_list_that_is_not_there() {
        let told = |count| of(POLL, [NOWHERE, count, 0, 0, 0]);
        assert_eq!(told(MOST), Fault::RESULT);
        assert_eq!(told(MOST + 1), sys::error(EINVAL));
        assert_eq!(told(u64::MAX), sys::error(EINVAL));
        assert_eq!(told(1 << 32 | 1), Fault::RESULT, "the number has 32 bits");
    }

    #[test]
    fn time_and_mask_are_looked_at_first() {
        let (time, wrong, mask) = ([1_u64, 0], [0_u64, u64::MAX], 0_u64);
        let at = |it: &[u64; 2]| it.as_ptr() as u64;
        let mask = (&raw const mask) as u64;
        let told = |count, time, mask, bytes| of(PPOLL, [NOWHERE, count, time, mask, bytes]);
        let (many, few, einval) = (MOST + 1, 1, sys::error(EINVAL));
        assert_eq!(told(many, at(&time), mask, 8), einval);
        assert_eq!(told(few, at(&time), mask, 8), Fault::RESULT);
        assert_eq!(told(many, 0, 0, 0), einval);
        assert_eq!(told(few, at(&wrong), mask, 8), einval);
        assert_eq!(told(few, at(&time), mask, 4), einval);
    }
}

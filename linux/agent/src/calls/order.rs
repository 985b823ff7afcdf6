//! What the kernel looks at before memory, or before what is not carried: of such a call the
//! program is told the same here.

use linux_raw_sys::errno::{E2BIG, EINVAL, EPERM};
use linux_raw_sys::general as nr;
use rcoe_linux_syscalls::Special;

use crate::calls::Call;
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest::Fault;
use crate::protocol::transfer;
use crate::sys;

const CAP_SYS_ADMIN: u32 = 21;

fn may_administer() -> bool {
    sys::capabilities().effective & 1 << CAP_SYS_ADMIN != 0
}

/// The result of a call with memory that is not there.
pub(super) fn of_fault(kernel: &mut Kernel, call: &Call) -> i64 {
    match call.what.special {
        Special::HostName => of_name(call),
        Special::Semop => of_operations(kernel, call),
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

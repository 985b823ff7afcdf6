//! The kernel's numbers of signals, of errors and of what comes with signals.
//!
//! Errors stand here as results of calls, which is how the program's processes get them.

use linux_raw_sys::{errno, general};

pub(crate) use linux_raw_sys::general::{
    SIGALRM, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGKILL, SIGPROF, SIGSEGV, SIGSTOP, SIGSYS,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGVTALRM, SIGXCPU,
};

pub(crate) const EPERM: i64 = -(errno::EPERM as i64);
pub(crate) const ESRCH: i64 = -(errno::ESRCH as i64);
pub(crate) const EAGAIN: i64 = -(errno::EAGAIN as i64);
pub(crate) const EACCES: i64 = -(errno::EACCES as i64);
pub(crate) const EINVAL: i64 = -(errno::EINVAL as i64);
pub(crate) const ENOTTY: i64 = -(errno::ENOTTY as i64);

/// As the numbers that processes stop with are told.
pub(crate) const SIGTRAP: i32 = general::SIGTRAP.cast_signed();

pub(crate) const SI_USER: i32 = general::SI_USER.cast_signed();
pub(crate) const SI_KERNEL: i32 = general::SI_KERNEL.cast_signed();
pub(crate) const CLD_EXITED: i32 = general::CLD_EXITED.cast_signed();
pub(crate) const CLD_KILLED: i32 = general::CLD_KILLED.cast_signed();
pub(crate) const CLD_STOPPED: i32 = general::CLD_STOPPED.cast_signed();
pub(crate) const CLD_CONTINUED: i32 = general::CLD_CONTINUED.cast_signed();

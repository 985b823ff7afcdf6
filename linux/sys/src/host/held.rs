//! Children of this process, held by descriptors: what is sent to one can reach no other process.
//!
//! Intuition: a process id is only a number, which may be wrong, or be another process's by now. A
//! descriptor is of one process for good, and the kernel is asked whether that one is a child of
//! ours before anything is sent.
//!
//! Contract: a child that was reaped gets nothing any more. A descriptor that cannot be kept
//! because there are too many is opened for each use, from a reserve of one.
//!
//! Not covered: children of another thread's `clone` without `SIGCHLD` are children all the same.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

use super::guardian::Ward;

/// A descriptor that is given up when another is needed and there is no room for it.
static RESERVE: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// A child of this process.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    /// Given back before the descriptor is closed.
    _ward: Option<Ward>,
    descriptor: Option<OwnedFd>,
}

impl Held {
    /// The child with this process id; `None` if we have none, or have reaped it.
    #[must_use]
    pub fn child(pid: u32) -> Option<Self> {
        reserve();
        match open_process(pid) {
            Ok(descriptor) => is_child(&descriptor).then_some(Self {
                pid,
                _ward: Ward::new(&descriptor),
                descriptor: Some(descriptor),
            }),
            Err(error) if is_shortage(&error) => {
                with_reserve(pid, |descriptor| is_child(descriptor).then_some(())).map(|()| Self {
                    pid,
                    _ward: None,
                    descriptor: None,
                })
            }
            Err(_) => None,
        }
    }

    /// Its process id.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends it a signal; nothing if it is gone.
    pub fn signal(&self, signal: u32) {
        match &self.descriptor {
            Some(descriptor) => send(descriptor, signal),
            None => {
                with_reserve(self.pid, |descriptor| {
                    is_child(descriptor).then(|| send(descriptor, signal))
                });
            }
        }
    }
}

/// Sends a signal to the child with this process id; nothing if we have no such child.
pub fn signal_child(pid: u32, signal: u32) {
    if let Some(child) = Held::child(pid) {
        child.signal(signal);
    }
}

/// Asks whether the host lets this process signal by descriptors.
///
/// # Errors
/// It does not, for this reason.
pub fn can_signal_by_descriptor() -> io::Result<()> {
    let own = open_process(std::process::id())?;
    // SAFETY: numbers, and no further information: signal 0 only asks.
    match unsafe { send_raw(&own, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor of a process.
pub(super) fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(descriptor) {
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(descriptor @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Is it a child of ours that was not reaped?
fn is_child(descriptor: &OwnedFd) -> bool {
    let id = descriptor.as_raw_fd().cast_unsigned();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the place is as large as what the kernel writes.
    unsafe { libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), options) == 0 }
}

fn send(descriptor: &OwnedFd, signal: u32) {
    // SAFETY: a descriptor of a child of ours. One that is gone is no error.
    unsafe { send_raw(descriptor, signal) };
}

/// # Safety
/// What the signal does to the process must be meant.
unsafe fn send_raw(descriptor: &OwnedFd, signal: u32) -> i64 {
    let no_info = core::ptr::null::<libc::siginfo_t>();
    let descriptor = descriptor.as_raw_fd();
    // SAFETY: forwarded from the caller; there is no information to read.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, signal, no_info, 0) }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}

/// Keeps a descriptor for hard times, if there is room for one.
fn reserve() {
    let mut kept = RESERVE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if kept.is_none() {
        *kept = open_process(std::process::id()).ok();
    }
}

/// Does something with a descriptor of a process, in the place of the one that is kept.
fn with_reserve<T>(pid: u32, work: impl FnOnce(&OwnedFd) -> Option<T>) -> Option<T> {
    let mut kept = RESERVE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    *kept = None;
    let result = open_process(pid)
        .ok()
        .and_then(|descriptor| work(&descriptor));
    *kept = open_process(std::process::id()).ok();
    result
}

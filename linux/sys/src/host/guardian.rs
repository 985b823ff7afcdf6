//! A process that ends all that its maker has made, should its maker be killed.
//!
//! Intuition: the kernel can end children with their parent (the parent-death signal), but forgets
//! that when a child changes its user, and asks for the right to signal it then. So there is a
//! process beside the maker, outside of what the program can change, that waits for the maker's end
//! and then kills each child by the descriptor that its maker holds.
//!
//! It shares memory and descriptors with its maker, so it knows the same children, and costs little
//! more than a number. It leads a session of its own, so that no terminal and no job control of the
//! maker's reaches it.
//!
//! Not covered: a child that the maker has not met yet, and the end of all that share memory with
//! the maker at once (the host's memory is used up). Then the parent-death signal remains.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::vec;
use std::vec::Vec;

use super::held::{open_process, signal_child};
use super::signals::set_mask;
use crate::{errno_of, syscall6};

/// Children that can be guarded at once.
const PLACES: usize = 4096;
/// Words of its stack; it calls two functions deep.
const STACK_WORDS: usize = 8192;

/// Descriptors of the children, each plus one.
static WARDS: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];

/// A place among those that are ended; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Ward(usize);

impl Ward {
    /// A place for the child behind this descriptor, which must not be closed before this is
    /// dropped; `None` if all are taken.
    pub(super) fn new(child: &OwnedFd) -> Option<Self> {
        let word = child.as_raw_fd() + 1;
        let free = |place: &AtomicI32| {
            place
                .compare_exchange(0, word, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        WARDS.iter().position(free).map(Self)
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        WARDS[self.0].store(0, Ordering::SeqCst);
    }
}

/// Such a process; ended and reaped when this is dropped.
#[derive(Debug)]
pub struct Guardian {
    pid: u32,
    /// What it waits for; in use until it is reaped.
    _maker: OwnedFd,
    /// In use until it is reaped.
    _stack: Vec<u128>,
}

impl Guardian {
    /// Makes one. Blocks all signals of the calling thread, as the supervisor has done anyway.
    ///
    /// # Errors
    /// If the host has no room for another process or descriptor.
    pub fn new() -> io::Result<Self> {
        set_mask(u64::MAX);
        let maker = open_process(std::process::id())?;
        let mut stack = vec![0_u128; STACK_WORDS / 2];
        let flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES;
        let descriptor = usize::try_from(maker.as_raw_fd()).unwrap_or(usize::MAX);
        // SAFETY: the stack is the child's alone and lives until it is reaped; it grows down from
        // its aligned end. The child catches no signal since it inherits a mask that blocks all,
        // and touches nothing of libc's, whose thread memory is the maker's.
        let pid = unsafe {
            libc::clone(
                watch,
                stack.as_mut_ptr_range().end.cast(),
                flags,
                core::ptr::without_provenance_mut(descriptor),
            )
        };
        match u32::try_from(pid) {
            Ok(pid) => Ok(Self {
                pid,
                _maker: maker,
                _stack: stack,
            }),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

impl Guardian {
    /// The process that it is.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.pid
    }

    /// Has it end soon: there is nobody left to guard.
    pub fn dismiss(&self) {
        signal_child(self.pid, libc::SIGKILL.cast_unsigned());
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.dismiss();
        let mut status = 0;
        // SAFETY: waits for our own child; the status is a valid place to write.
        unsafe { libc::waitpid(self.pid.cast_signed(), &raw mut status, libc::__WALL) };
    }
}

/// The guardian's life.
extern "C" fn watch(maker: *mut c_void) -> c_int {
    let maker = i32::try_from(maker.addr()).unwrap_or(-1);
    // SAFETY: a session of its own.
    unsafe { syscall6(libc::SYS_setsid.cast_unsigned(), [0; 6]) };
    let mut end = libc::pollfd {
        fd: maker,
        events: libc::POLLIN,
        revents: 0,
    };
    while end.revents == 0 {
        let poll = [(&raw mut end) as u64, 1, 0, 0, 0, 0];
        // SAFETY: one valid entry, no time limit, no mask.
        let polled = unsafe { syscall6(libc::SYS_ppoll.cast_unsigned(), poll) };
        if errno_of(polled).is_some_and(|errno| errno != libc::EINTR) {
            return 1;
        }
    }
    for ward in &WARDS {
        let child = ward.load(Ordering::SeqCst);
        if child != 0 {
            let descriptor = u64::from((child - 1).cast_unsigned());
            let kill = [descriptor, libc::SIGKILL as u64, 0, 0, 0, 0];
            // SAFETY: a descriptor of a child of the maker's, which nobody can close any more.
            unsafe { syscall6(libc::SYS_pidfd_send_signal.cast_unsigned(), kill) };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Held, in_child};

    /// Ends by an alarm where nobody kills it.
    fn linger() -> u32 {
        // SAFETY: the child makes only system calls, all of which touch no memory.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::signal(libc::SIGALRM, libc::SIG_DFL);
                set_mask(0);
                libc::alarm(60);
                loop {
                    libc::pause();
                }
            }
            u32::try_from(pid).expect("a child")
        }
    }

    /// Where the maker tells of its child.
    static TELL: AtomicI32 = AtomicI32::new(-1);

    #[test]
    fn children_end_with_a_maker_that_is_killed() {
        fn make() -> u8 {
            let _guardian = Guardian::new().expect("a guardian");
            let child = Held::child(linger()).expect("a child");
            let pid = child.pid();
            // SAFETY: writes a number, and ends this process.
            unsafe {
                libc::write(TELL.load(Ordering::SeqCst), (&raw const pid).cast(), 4);
                libc::kill(libc::getpid(), libc::SIGKILL);
            }
            0
        }
        let (mut ends, mut pid, mut status) = ([0; 2], 0_i32, 0);
        // SAFETY: orphans come to this process; a place for two descriptors.
        unsafe {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        }
        TELL.store(ends[1], Ordering::SeqCst);
        assert_eq!(in_child(make).expect("forked"), None);
        // SAFETY: a place for a number, and one for a status.
        unsafe {
            assert_eq!(libc::read(ends[0], (&raw mut pid).cast(), 4), 4);
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            for end in ends {
                libc::close(end);
            }
        }
        assert!(libc::WIFSIGNALED(status), "{status:x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
    }
}

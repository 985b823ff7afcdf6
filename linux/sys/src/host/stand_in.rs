//! A process that does nothing but exist, until it is told to end.
//!
//! Intuition: what a descriptor of a process (`pidfd`) tells is when that process has ended. A
//! process of the program is many processes of the host, of which any may be lost without its
//! having ended; so its descriptors are of a process that stands in for it.
//!
//! It shares memory and descriptors with its maker, so it costs little more than a number. It sends
//! no signal when it ends and is not found by waiting for any child, so it stays a zombie, as the
//! process it stands for may, until its owner drops it.
//!
//! Not covered: it is killed with the thread that made it, and not told apart from other children
//! by `/proc`.

use core::arch::asm;
use std::io;

use super::held::signal_child;
use super::signals::set_mask;

const CLONE: u64 = libc::CLONE_VM.cast_unsigned() as u64
    | libc::CLONE_FS.cast_unsigned() as u64
    | libc::CLONE_FILES.cast_unsigned() as u64;

/// Such a process; ended and reaped when this is dropped.
#[derive(Debug)]
pub struct StandIn(u32);

impl StandIn {
    /// Makes one. Blocks all signals of the calling thread, as the supervisor has done anyway.
    ///
    /// # Errors
    /// If the host has no room for another process.
    pub fn new() -> io::Result<Self> {
        set_mask(u64::MAX);
        // SAFETY: getpid cannot fail and touches no memory.
        let own = unsafe { libc::getpid() };
        let result: i64;
        // SAFETY: the child runs on the caller's stack but never touches it: it makes system calls
        // from registers only, catches no signal since it inherits a mask that blocks all, and does
        // not leave the loop. What it clobbers are its own registers.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 4f",
                // prctl(PR_SET_PDEATHSIG, SIGKILL), unless the maker is gone already.
                "mov edi, 1",
                "mov esi, 9",
                "mov eax, 157",
                "syscall",
                "mov eax, 110",
                "syscall",
                "cmp eax, r9d",
                "jne 3f",
                // pause
                "2:",
                "mov eax, 34",
                "syscall",
                "jmp 2b",
                // exit(0)
                "3:",
                "xor edi, edi",
                "mov eax, 60",
                "syscall",
                "jmp 3b",
                "4:",
                inlateout("rax") libc::SYS_clone => result,
                in("rdi") CLONE, in("rsi") 0, in("rdx") 0, in("r10") 0, in("r8") 0,
                in("r9") own,
                lateout("rcx") _, lateout("r11") _,
                options(nostack),
            );
        }
        match u32::try_from(result) {
            Ok(pid) => Ok(Self(pid)),
            Err(_) => Err(io::Error::from_raw_os_error(
                i32::try_from(-result).unwrap_or(libc::EAGAIN),
            )),
        }
    }

    /// Its process id, which nobody else has until this is dropped.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.0
    }

    /// Ends it; it stays a zombie.
    pub fn end(&self) {
        signal_child(self.0, libc::SIGKILL.cast_unsigned());
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.end();
        let mut status = 0;
        // SAFETY: waits for our own child; the status is a valid place to write.
        unsafe { libc::waitpid(self.0.cast_signed(), &raw mut status, libc::__WALL) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use super::*;

    fn has_ended(fd: &OwnedFd) -> bool {
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn exists_until_it_is_ended_and_stays_a_zombie_until_dropped() {
        let it = StandIn::new().expect("a process");
        // SAFETY: numbers only, and a fresh descriptor that nobody else owns.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, it.pid(), 0);
            OwnedFd::from_raw_fd(i32::try_from(fd).expect("a descriptor"))
        };
        assert!(!has_ended(&fd));
        it.end();
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, -1) }, 1);
        // SAFETY: signal 0 only asks.
        let exists = || unsafe { libc::kill(it.pid().cast_signed(), 0) } == 0;
        assert!(exists(), "a zombie still has its number");
        drop(it);
        assert!(has_ended(&fd));
    }
}

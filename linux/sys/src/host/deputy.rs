//! A process that leads a session on a terminal for one of the program's sessions.
//!
//! Intuition: to the host all of the program is one job of the terminal that rcoe has, so no other
//! terminal could send it a signal. A deputy is the leader, and all, of a session of the host's on
//! such a terminal, and in its foreground; what the terminal sends to the foreground, or tells the
//! session's leader when it hangs up, comes to the deputy, which leaves a mark for its maker and
//! rings.
//!
//! It keeps no descriptor of the terminal, so that both ends notice when the last one is closed. It
//! shares memory and descriptors with its maker, sends no signal when it ends and is not found by
//! waiting for any child.
//!
//! Not covered: it is killed with the thread that made it.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::boxed::Box;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::vec::Vec;
use std::{io, vec};

use super::birth::SIGSET_BYTES;
use super::doorbell::Bell;
use super::held::signal_child;
use super::signals::set_mask;
use crate::{errno_of, syscall6};

/// What the terminal sends: hang-up, interrupt, quit, suspend, and a new size.
const PASSED_ON: [i32; 5] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGWINCH,
];
/// Words of the deputy's stack; it calls two functions deep.
const STACK_WORDS: usize = 8192;
/// How long to wait before looking whether a new deputy is still there.
static LOOK: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What a new deputy is told, and tells.
struct Start {
    fd: i32,
    steal: bool,
    maker: i32,
    post: *const Post,
    /// [`PENDING`], [`DONE`], or that and an errno more.
    outcome: AtomicU32,
}

const PENDING: u32 = 0;
const DONE: u32 = 1;

/// What a deputy shares with its maker for as long as it lives.
#[derive(Debug)]
struct Post {
    /// Signals that have come, bit `n - 1` for signal `n`.
    arrived: AtomicU64,
    bell: Arc<Bell>,
}

/// Such a process; ended and reaped when this is dropped.
#[derive(Debug)]
pub struct Deputy {
    pid: u32,
    /// In use until it is reaped.
    post: Box<Post>,
    /// In use until it is reaped.
    _stack: Vec<u128>,
}

impl Deputy {
    /// Makes one for the terminal, which rings this bell when something has come; `steal` takes the
    /// terminal from the session that it belongs to, if the caller may. Blocks all signals of the
    /// calling thread, as the supervisor has done anyway.
    ///
    /// # Errors
    /// What `TIOCSCTTY` says, or that the host has no room for another process.
    pub fn new(terminal: BorrowedFd, steal: bool, bell: Arc<Bell>) -> io::Result<Self> {
        set_mask(u64::MAX);
        let post = Box::new(Post {
            arrived: AtomicU64::new(0),
            bell,
        });
        let start = Start {
            post: &raw const *post,
            fd: terminal.as_raw_fd(),
            steal,
            // SAFETY: getpid cannot fail and touches no memory.
            maker: unsafe { libc::getpid() },
            outcome: AtomicU32::new(PENDING),
        };
        let mut stack = vec![0_u128; STACK_WORDS / 2];
        let flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES;
        // SAFETY: the stack is the child's alone and lives until it is reaped; it grows down from
        // its aligned end. The child reads `start` only before it tells the outcome, for which the
        // maker waits. It catches no signal since it inherits a mask that blocks all, and touches
        // nothing of libc's, whose thread memory is the maker's.
        let pid = unsafe {
            libc::clone(
                serve,
                stack.as_mut_ptr_range().end.cast(),
                flags,
                (&raw const start).cast_mut().cast(),
            )
        };
        let Ok(pid) = u32::try_from(pid) else {
            return Err(io::Error::last_os_error());
        };
        let deputy = Self {
            pid,
            post,
            _stack: stack,
        };
        match deputy.wait_for(&start.outcome) {
            DONE => Ok(deputy),
            error => Err(io::Error::from_raw_os_error((error - DONE).cast_signed())),
        }
    }

    /// What it tells; EAGAIN if it was killed before it did.
    fn wait_for(&self, outcome: &AtomicU32) -> u32 {
        loop {
            let told = outcome.load(Ordering::Acquire);
            if told != PENDING {
                return told;
            }
            let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
            // SAFETY: the word is valid for as long as the call lasts; so is the place for what is
            // told of the child, and zeros are valid in it.
            let ended = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    outcome.as_ptr(),
                    libc::FUTEX_WAIT,
                    PENDING,
                    &raw const LOOK,
                );
                libc::waitid(libc::P_PID, self.pid, info.as_mut_ptr(), options);
                info.assume_init().si_pid() != 0
            };
            if ended && outcome.load(Ordering::Acquire) == PENDING {
                return DONE + libc::EAGAIN.cast_unsigned();
            }
        }
    }

    /// Its process id, which nobody else has until this is dropped.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The signals that the terminal has sent since this was last asked, a hang-up last.
    pub fn arrived(&self) -> impl Iterator<Item = u32> + use<> {
        let set = self.post.arrived.swap(0, Ordering::SeqCst);
        let order = PASSED_ON.iter().rev().map(|signal| signal.cast_unsigned());
        order.filter(move |signal| set & 1 << (signal - 1) != 0)
    }
}

impl Drop for Deputy {
    fn drop(&mut self) {
        signal_child(self.pid, libc::SIGKILL.cast_unsigned());
        let mut status = 0;
        // SAFETY: waits for our own child; the status is a valid place to write.
        unsafe { libc::waitpid(self.pid.cast_signed(), &raw mut status, libc::__WALL) };
    }
}

/// The number of the terminal's device, as `TIOCGDEV` tells it.
///
/// # Errors
/// If it is no terminal.
pub fn terminal_device(terminal: BorrowedFd) -> io::Result<u32> {
    let mut device = 0_u32;
    // SAFETY: the request writes one number, for which there is room.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGDEV, &raw mut device) };
    if done == 0 {
        Ok(device)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A system call of the deputy, without libc.
///
/// # Safety
/// As for [`syscall6`].
unsafe fn call(nr: libc::c_long, args: [u64; 4]) -> Result<i64, i32> {
    let [a, b, c, d] = args;
    // SAFETY: forwarded from the caller.
    let result = unsafe { syscall6(nr.cast_unsigned(), [a, b, c, d, 0, 0]) };
    errno_of(result).map_or(Ok(result), Err)
}

/// The deputy's life.
extern "C" fn serve(start: *mut c_void) -> c_int {
    // SAFETY: the maker keeps it until the outcome is told.
    let (post, taken) = unsafe {
        let start = &*start.cast::<Start>();
        let (post, taken) = (start.post, take(start));
        let told = taken.map_or_else(|errno| DONE + errno.cast_unsigned(), |()| DONE);
        let word = start.outcome.as_ptr() as u64;
        start.outcome.store(told, Ordering::Release);
        // The maker may have seen it and gone on; a wake-up at another word of its is harmless.
        let _ = call(libc::SYS_futex, [word, libc::FUTEX_WAKE as u64, 1, 0]);
        (post, taken)
    };
    if taken.is_err() {
        return 0;
    }
    // SAFETY: the maker keeps it until this process is reaped.
    let post = unsafe { &*post };
    loop {
        pass_on(post);
    }
}

/// Takes the terminal for a session of its own.
fn take(start: &Start) -> Result<(), i32> {
    let kill = libc::SIGKILL.cast_unsigned().into();
    let death = libc::PR_SET_PDEATHSIG.cast_unsigned().into();
    let fd = u64::from(start.fd.cast_unsigned());
    // SAFETY: numbers only.
    unsafe {
        call(libc::SYS_prctl, [death, kill, 0, 0])?;
        if call(libc::SYS_getppid, [0; 4]) != Ok(start.maker.into()) {
            return Err(libc::ESRCH);
        }
        call(libc::SYS_setsid, [0; 4])?;
        call(
            libc::SYS_ioctl,
            [fd, libc::TIOCSCTTY, start.steal.into(), 0],
        )?;
    }
    Ok(())
}

/// Waits for a signal of the terminal and tells the maker of it.
fn pass_on(post: &Post) {
    /// `siginfo_t` as the kernel lays it out: number, errno, code; sender, user; value.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        number: i32,
        errno: i32,
        code: i32,
        _pad: i32,
        pid: i32,
        uid: u32,
        value: u64,
        rest: [u64; 12],
    }
    const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());
    let set = PASSED_ON
        .iter()
        .fold(0_u64, |set, signal| set | 1 << (signal - 1));
    let mut info = Info::default();
    let (set, place) = (&raw const set, &raw mut info);
    let size = SIGSET_BYTES as u64;
    // SAFETY: the set is 8 readable bytes, as the size says, and the place is as large as the
    // kernel's structure.
    let got = unsafe {
        call(
            libc::SYS_rt_sigtimedwait,
            [set as u64, place as u64, 0, size],
        )
    };
    // What a process has sent to this one is not of the terminal.
    if got.is_err() || info.code != libc::SI_KERNEL {
        return;
    }
    post.arrived
        .fetch_or(1 << (info.number - 1), Ordering::SeqCst);
    let word = post.bell.word();
    word.fetch_add(1, Ordering::SeqCst);
    let wake = [word.as_ptr() as u64, libc::FUTEX_WAKE as u64, 1, 0];
    // SAFETY: the word is mapped for as long as the bell is kept.
    let _ = unsafe { call(libc::SYS_futex, wake) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use super::*;
    use crate::host::{Access, SharedObject, in_child};

    /// Both ends of a new terminal.
    fn terminal() -> [OwnedFd; 2] {
        let (mut master, mut slave) = (0, 0);
        // SAFETY: two places for descriptors, which nobody else owns; no name or settings.
        unsafe {
            let null = core::ptr::null_mut();
            let done = libc::openpty(
                &raw mut master,
                &raw mut slave,
                null,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            );
            assert_eq!(done, 0);
            [master, slave].map(|fd| OwnedFd::from_raw_fd(fd))
        }
    }

    /// Waits until something has come.
    fn wait_for_message(bell: &Bell, deputy: &Deputy) -> Vec<u32> {
        loop {
            let seen = bell.value();
            let arrived = deputy.arrived().collect::<Vec<_>>();
            if !arrived.is_empty() {
                return arrived;
            }
            bell.wait(seen);
        }
    }

    #[test]
    fn passes_on_what_the_terminal_sends() {
        fn tell() {
            super::super::block_all_signals();
            let page = SharedObject::create(c"bell", 4096, Access::ReadWrite).expect("memory");
            let bell = Arc::new(Bell::map(page.as_fd(), 0).expect("mapped"));
            let [master, slave] = terminal();
            let deputy = Deputy::new(slave.as_fd(), false, Arc::clone(&bell)).expect("a deputy");
            let number = |signal: i32| signal.cast_unsigned();
            // SAFETY: one readable byte.
            unsafe { libc::write(master.as_raw_fd(), b"\x03".as_ptr().cast(), 1) };
            assert_eq!(wait_for_message(&bell, &deputy), [number(libc::SIGINT)]);
            let second =
                Deputy::new(slave.as_fd(), false, Arc::clone(&bell)).expect_err("it is another's");
            assert_eq!(second.raw_os_error(), Some(libc::EPERM));
            let null = std::fs::File::open("/dev/null").expect("always there");
            assert!(
                Deputy::new(null.as_fd(), false, Arc::clone(&bell)).is_err(),
                "no terminal"
            );
            drop(master);
            assert_eq!(wait_for_message(&bell, &deputy), [number(libc::SIGHUP)]);
        }
        // In a process whose threads all block the messages.
        let tells = || u8::from(std::panic::catch_unwind(tell).is_err());
        assert_eq!(in_child(tells).expect("forked"), Some(0));
    }
}

//! Signals of the supervisor: all blocked, read from a descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::birth::{KernelAction, SIGSET_BYTES};

/// One collected signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    /// Its number.
    pub number: u32,
    /// `si_code`: how it was sent.
    pub code: i32,
    /// The sender's process id, or 0 if the kernel sent it.
    pub sender: u32,
    /// The sender's user.
    pub user: u32,
    /// The value queued with it, or 0.
    pub value: u64,
}

/// A non-blocking descriptor from which blocked signals are read.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// A descriptor for all signals.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn all() -> io::Result<Self> {
        Self::of(u64::MAX)
    }

    /// A descriptor for the signals by which users end programs (`SIGHUP`, `SIGINT`, `SIGQUIT`,
    /// `SIGTERM`), but for those that are ignored. The calling thread has them blocked from here
    /// on.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn endings() -> io::Result<Self> {
        let signals = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
        let set = signals
            .into_iter()
            .filter(|&signal| !is_ignored(signal))
            .fold(0, |set, signal| set | 1_u64 << (signal - 1));
        change_mask(libc::SIG_BLOCK, set);
        Self::of(set)
    }

    fn of(set: u64) -> io::Result<Self> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is 8 readable bytes, as the size says.
        let fd =
            unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const set, SIGSET_BYTES, flags) };
        let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::Other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        super::shared::raise(unsafe { OwnedFd::from_raw_fd(fd) }).map(Self)
    }

    /// The next pending signal, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Whatever `read` fails with, except that it would block.
    pub fn next(&self) -> io::Result<Option<SignalInfo>> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut buffer = [0_u8; SIZE];
        // SAFETY: the buffer is SIZE writable bytes.
        let got = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), SIZE) };
        if got == -1 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        if usize::try_from(got) != Ok(SIZE) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the kernel filled the whole plain-data record; any bits are valid.
        let info: libc::signalfd_siginfo =
            unsafe { core::ptr::read_unaligned(buffer.as_ptr().cast()) };
        Ok(Some(SignalInfo {
            number: info.ssi_signo,
            code: info.ssi_code,
            sender: info.ssi_pid,
            user: info.ssi_uid,
            value: info.ssi_ptr,
        }))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sets the calling thread's mask in the kernel, libc's own signals included.
pub(super) fn set_mask(mask: u64) {
    change_mask(libc::SIG_SETMASK, mask);
}

/// Changes the mask as `how` says.
fn change_mask(how: i32, mask: u64) {
    // SAFETY: the new set is 8 readable bytes, as the size says; a null old set is allowed.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const mask,
            core::ptr::null_mut::<u64>(),
            SIGSET_BYTES,
        );
    }
}

/// Whether a signal is ignored.
fn is_ignored(signal: i32) -> bool {
    let mut action = KernelAction::default();
    // SAFETY: a null new action changes nothing; the old one is a writable kernel sigaction.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            core::ptr::null::<KernelAction>(),
            &raw mut action,
            SIGSET_BYTES,
        );
    }
    action.handler == libc::SIG_IGN
}

/// Sets a disposition to default or ignored.
pub(super) fn set_disposition(signal: i32, ignored: bool) {
    let handler = if ignored {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    let action = KernelAction {
        handler,
        ..KernelAction::default()
    };
    // SAFETY: default and ignored need no handler code; the action is a valid kernel sigaction.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &raw const action,
            core::ptr::null_mut::<KernelAction>(),
            SIGSET_BYTES,
        );
    }
}

/// Blocks every signal of the calling thread, so that [`SignalFd`] gets them.
pub fn block_all_signals() {
    set_mask(u64::MAX);
}

/// Undoes an inherited `SIG_IGN` of `SIGCHLD`, with which the kernel would reap for us.
pub fn default_child_signal() {
    set_disposition(libc::SIGCHLD, false);
}

/// Stops this process by a signal until someone continues it, as job control asks; all signals of
/// the calling thread are blocked. Returns false if it does not stop because nobody could continue
/// it: its process group is orphaned.
pub fn stop_self(signal: u32) -> bool {
    let number = i32::try_from(signal).unwrap_or(libc::SIGSTOP);
    if number != libc::SIGSTOP {
        set_disposition(number, false);
    }
    // SAFETY: raise touches no memory of ours.
    unsafe { libc::raise(number) };
    set_mask(!(1 << (number - 1)));
    set_mask(u64::MAX);
    let mut pending = 0_u64;
    // SAFETY: the set is 8 writable bytes, as the size says.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SIGSET_BYTES) };
    pending & 1 << (libc::SIGCONT - 1) != 0
}

/// Ends this process by a signal's default action, without a core file, so that whoever waits
/// sees the same status as of the program.
pub fn die_by_signal(signal: u8) -> ! {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls only take away from our own process.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
    set_disposition(i32::from(signal), false);
    // SAFETY: sending ourselves a signal touches no memory.
    unsafe { libc::syscall(libc::SYS_kill, libc::getpid(), i32::from(signal)) };
    set_mask(!(1 << (u32::from(signal.max(1)) - 1)));
    // Not reached for a signal whose default action ends a process.
    std::process::exit(i32::from(signal.saturating_add(128)))
}

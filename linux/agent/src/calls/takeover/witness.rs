//! By what a successor finds out about effects that are not on streams.
//!
//! * *Again.* Doing it twice is as good as doing it once: attributes are set, files synchronised.
//! * *Descriptors.* A call that makes descriptors takes the lowest free numbers. The primary notes
//!   which those are, and nobody else changes the table; so if they are open, the call was made.
//! * *Closed.* Likewise, if a descriptor that was open is closed.
//! * *State.* The working directory, or the address that a socket is bound or connected to, are
//!   what they were, or have changed.
//! * *Names*, sets of `epoll` and ends of connections are changed through the ring, as streams are.
//! * *Events* that are told once are armed again: a program has to expect that they come twice.
//! * *Asked.* A signal to another process is a request to the supervisor. Requests are numbered,
//!   and one that comes again is answered again and not carried out twice. Only if the answer is
//!   that the process is none of the program's, the host sends it, and of that nothing is kept.
//!
//! Not covered: everything else; the group stops if the primary is lost inside it.

use core::mem::MaybeUninit;

use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    AT_FDCWD, AT_REMOVEDIR, F_DUPFD, F_DUPFD_CLOEXEC, F_OFD_SETLK, F_OFD_SETLKW, F_SETFD, F_SETFL,
    F_SETLK, F_SETLKW, F_SETPIPE_SZ,
};
use linux_raw_sys::io_uring::io_uring_op;

use super::kinds;
use crate::calls::Call;
use crate::calls::descriptors::raw;
use crate::convert::low32;
use crate::sys;
use crate::uring::Request;

/// What shows whether an effect took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing that is known here.
    None,
    Again,
    /// So many descriptors, of at least this number.
    Descriptors {
        count: u32,
        least: u64,
    },
    Closed,
    Directory,
    Bound,
    Connected,
    Events,
    /// Nothing, as long as the supervisor does it.
    Asked,
}

/// What shows whether `call` was made.
pub(super) fn kind_of(call: &Call) -> Kind {
    let descriptors = |count| Kind::Descriptors { count, least: 0 };
    match u32::try_from(call.nr).unwrap_or(u32::MAX) {
        nr::__NR_open | nr::__NR_openat | nr::__NR_openat2 | nr::__NR_creat => descriptors(1),
        nr::__NR_dup | nr::__NR_socket | nr::__NR_accept | nr::__NR_accept4 => descriptors(1),
        nr::__NR_eventfd | nr::__NR_eventfd2 | nr::__NR_memfd_create => descriptors(1),
        nr::__NR_timerfd_create | nr::__NR_inotify_init | nr::__NR_inotify_init1 => descriptors(1),
        nr::__NR_epoll_create | nr::__NR_epoll_create1 | nr::__NR_fanotify_init => descriptors(1),
        nr::__NR_signalfd | nr::__NR_signalfd4 => descriptors(1),
        nr::__NR_pipe | nr::__NR_pipe2 | nr::__NR_socketpair => descriptors(2),
        nr::__NR_fcntl => of_fcntl(call),
        nr::__NR_close => Kind::Closed,
        nr::__NR_chdir => Kind::Directory,
        nr::__NR_bind => Kind::Bound,
        nr::__NR_connect => Kind::Connected,
        nr::__NR_epoll_wait | nr::__NR_epoll_pwait | nr::__NR_epoll_pwait2 => Kind::Events,
        nr::__NR_tgkill | nr::__NR_rt_tgsigqueueinfo => of_signal(call.arg(2)),
        nr::__NR_kill | nr::__NR_tkill | nr::__NR_rt_sigqueueinfo => of_signal(call.arg(1)),
        nr::__NR_pidfd_send_signal => of_signal(call.arg(1)),
        number if may_be_made_again(number, call) => Kind::Again,
        _ => Kind::None,
    }
}

/// Signal 0 only asks whether there is somebody to be signalled.
const fn of_signal(number: u64) -> Kind {
    match number {
        0 => Kind::Again,
        _ => Kind::Asked,
    }
}

fn of_fcntl(call: &Call) -> Kind {
    match low32(call.arg(1)) {
        F_DUPFD | F_DUPFD_CLOEXEC => Kind::Descriptors {
            count: 1,
            least: call.arg(2),
        },
        F_SETFD | F_SETFL | F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW | F_SETPIPE_SZ => {
            Kind::Again
        }
        _ => Kind::None,
    }
}

fn may_be_made_again(number: u32, call: &Call) -> bool {
    /// Modes of `fallocate` that move what follows.
    const MOVING: u64 = 0x28;
    const SO_ERROR: [u64; 2] = [1, 4];
    match number {
        nr::__NR_fallocate => call.arg(1) & MOVING == 0,
        // Reading an error clears it.
        nr::__NR_getsockopt => [call.arg(1), call.arg(2)] != SO_ERROR,
        nr::__NR_timerfd_settime => call.arg(3) == 0,
        nr::__NR_dup2 | nr::__NR_dup3 => call.arg(0) != call.arg(1),
        nr::__NR_ioctl => sets_a_terminal(low32(call.arg(1))),
        nr::__NR_pwrite64 | nr::__NR_pwritev | nr::__NR_close_range | nr::__NR_fchdir => true,
        nr::__NR_fsync | nr::__NR_fdatasync | nr::__NR_sync | nr::__NR_syncfs => true,
        nr::__NR_sync_file_range | nr::__NR_truncate | nr::__NR_ftruncate => true,
        nr::__NR_chmod | nr::__NR_fchmod | nr::__NR_fchmodat | nr::__NR_fchmodat2 => true,
        nr::__NR_chown | nr::__NR_fchown | nr::__NR_lchown | nr::__NR_fchownat => true,
        nr::__NR_utime | nr::__NR_utimes | nr::__NR_futimesat | nr::__NR_utimensat => true,
        nr::__NR_setsockopt | nr::__NR_listen | nr::__NR_flock => true,
        nr::__NR_inotify_add_watch => true,
        _ => false,
    }
}

/// TCSETS, TCSETSW, TCSETSF, TIOCSWINSZ, FIONBIO.
fn sets_a_terminal(request: u32) -> bool {
    matches!(request, 0x5402..=0x5404 | 0x5414 | 0x5421)
}

/// The request that makes `call` through the ring, if it is one of those; and its operation.
pub(super) fn request_of(call: &Call) -> Option<Request> {
    let here = i64::from(AT_FDCWD).cast_unsigned();
    let [a, b, c, d, e, _] = [0, 1, 2, 3, 4, 5].map(|at| call.arg(at));
    let make = |operation: io_uring_op, fd, address, offset, len, flags| {
        let mut request = Request::new(operation as u32, fd);
        request.address = address;
        request.offset = offset;
        request.len = low32(len);
        request.op_flags = low32(flags);
        Some(request)
    };
    use io_uring_op::{
        IORING_OP_EPOLL_CTL as CTL, IORING_OP_LINKAT as LINK, IORING_OP_MKDIRAT as MKDIR,
        IORING_OP_RENAMEAT as RENAME, IORING_OP_SHUTDOWN as SHUTDOWN,
        IORING_OP_SYMLINKAT as SYMLINK, IORING_OP_UNLINKAT as UNLINK,
    };
    match u32::try_from(call.nr).unwrap_or(u32::MAX) {
        nr::__NR_rename => make(RENAME, here, a, b, here, 0),
        nr::__NR_renameat => make(RENAME, a, b, d, c, 0),
        nr::__NR_renameat2 => make(RENAME, a, b, d, c, e),
        nr::__NR_unlink => make(UNLINK, here, a, 0, 0, 0),
        nr::__NR_rmdir => make(UNLINK, here, a, 0, 0, u64::from(AT_REMOVEDIR)),
        nr::__NR_unlinkat => make(UNLINK, a, b, 0, 0, c),
        nr::__NR_mkdir => make(MKDIR, here, a, 0, b, 0),
        nr::__NR_mkdirat => make(MKDIR, a, b, 0, c, 0),
        nr::__NR_symlink => make(SYMLINK, here, a, b, 0, 0),
        nr::__NR_symlinkat => make(SYMLINK, b, a, c, 0, 0),
        nr::__NR_link => make(LINK, here, a, b, here, 0),
        nr::__NR_linkat => make(LINK, a, b, d, c, e),
        nr::__NR_epoll_ctl => make(CTL, a, d, c, b, 0),
        nr::__NR_shutdown => make(SHUTDOWN, a, 0, 0, b, 0),
        _ => None,
    }
}

/// The lowest free descriptors from `least` on. To find them makes none, which might be left over.
pub(super) fn free_descriptors(least: u64, count: u32) -> u64 {
    let first = kinds::first_free(low32(least));
    let second = if count > 1 {
        kinds::first_free(first + 1)
    } else {
        first
    };
    u64::from(second) << 32 | u64::from(first)
}

/// The descriptors that were free before the effect, as noted.
pub(super) fn noted_descriptors(note: u64) -> [u64; 2] {
    [note, note >> 32].map(|word| u64::from(low32(word)))
}

/// Is there such a descriptor?
pub(super) fn is_open(fd: u64) -> bool {
    sys::is_open(low32(fd).cast_signed())
}

/// What tells the working directory from another one.
pub(super) fn directory() -> u64 {
    let mut stat = MaybeUninit::<nr::stat>::zeroed();
    let path = c".".as_ptr() as u64;
    // SAFETY: a path, and the kernel's structure, valid for writing.
    let _ = unsafe { raw(nr::__NR_stat, [path, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    // SAFETY: integers only, for which zero is a value.
    let stat = unsafe { stat.assume_init() };
    stat.st_ino ^ stat.st_dev.rotate_left(32)
}

/// What tells the address of a socket, its own or its peer's, from another one. 0 if there is none.
pub(super) fn address(fd: u64, of_peer: bool) -> u64 {
    let (mut name, mut len) = ([0_u64; 16], 128_u32);
    let call = if of_peer {
        nr::__NR_getpeername
    } else {
        nr::__NR_getsockname
    };
    let args = [fd, name.as_mut_ptr() as u64, (&raw mut len) as u64, 0, 0, 0];
    // SAFETY: the buffer has room for `len` bytes.
    if unsafe { raw(call, args) } != 0 {
        return 0;
    }
    let mixed = name.iter().fold(u64::from(len), |sum, word| {
        (sum.rotate_left(11) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    mixed | 1
}

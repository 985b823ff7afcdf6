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

use linux_raw_sys::general::{AT_FDCWD, AT_REMOVEDIR};
use linux_raw_sys::io_uring::io_uring_op;
use rcoe_linux_syscalls::Takeover;

use crate::calls::Call;
use crate::convert::low32;
use crate::protocol::uring::Request;
use crate::recover::takeover::kinds;
use crate::sys;

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
    let arg = |index: u8| call.arg(usize::from(index));
    let again = |may_be: bool| if may_be { Kind::Again } else { Kind::None };
    match call.what.facts.takeover {
        Takeover::Again => Kind::Again,
        Takeover::AgainWithout(flags, bits) => again(arg(flags) & u64::from(bits) == 0),
        Takeover::AgainBut(first, this, second, that) => {
            again([arg(first), arg(second)] != [this, that].map(u64::from))
        }
        Takeover::AgainIfNull(pointer) => again(arg(pointer) == 0),
        Takeover::AgainUnlessSame(first, second) => again(arg(first) != arg(second)),
        Takeover::Descriptor => Kind::Descriptors { count: 1, least: 0 },
        Takeover::DescriptorFrom(least) => Kind::Descriptors {
            count: 1,
            least: arg(least),
        },
        Takeover::Pair(_) => Kind::Descriptors { count: 2, least: 0 },
        Takeover::Closed => Kind::Closed,
        Takeover::Directory => Kind::Directory,
        Takeover::Bound => Kind::Bound,
        Takeover::Connected => Kind::Connected,
        Takeover::Events => Kind::Events,
        // Signal 0 only asks whether there is somebody to be signalled.
        Takeover::Asked(signal) if arg(signal) == 0 => Kind::Again,
        Takeover::Asked(_) => Kind::Asked,
        _ => Kind::None,
    }
}

/// The request that makes `call` through the ring, if it is one of those; and its operation.
pub(super) fn request_of(call: &Call) -> Option<Request> {
    let here = i64::from(AT_FDCWD).cast_unsigned();
    let arg = |index: u8| call.arg(usize::from(index));
    let make = |operation: io_uring_op, fd, address, offset, len, flags| {
        let mut request = Request::new(operation as u32, fd);
        request.address = address;
        request.offset = offset;
        request.len = low32(len);
        request.op_flags = low32(flags);
        Some(request)
    };
    // Two names, each below a folder.
    let names = |operation, from: u64, old: u8, to: u64, new: u8, flags| {
        make(operation, from, arg(old), arg(new), to, flags)
    };
    use io_uring_op::{
        IORING_OP_EPOLL_CTL as CTL, IORING_OP_LINKAT as LINK, IORING_OP_MKDIRAT as MKDIR,
        IORING_OP_RENAMEAT as RENAME, IORING_OP_SHUTDOWN as SHUTDOWN,
        IORING_OP_SYMLINKAT as SYMLINK, IORING_OP_UNLINKAT as UNLINK,
    };
    match call.what.facts.takeover {
        Takeover::RingRename(old, new) => names(RENAME, here, old, here, new, 0),
        Takeover::RingRenameAt(from, old, to, new) => {
            names(RENAME, arg(from), old, arg(to), new, 0)
        }
        Takeover::RingRenameAtFlags(from, old, to, new, flags) => {
            names(RENAME, arg(from), old, arg(to), new, arg(flags))
        }
        Takeover::RingUnlink(name) => make(UNLINK, here, arg(name), 0, 0, 0),
        Takeover::RingRmdir(name) => make(UNLINK, here, arg(name), 0, 0, AT_REMOVEDIR.into()),
        Takeover::RingUnlinkAt(folder, name, flags) => {
            make(UNLINK, arg(folder), arg(name), 0, 0, arg(flags))
        }
        Takeover::RingMkdir(name, mode) => make(MKDIR, here, arg(name), 0, arg(mode), 0),
        Takeover::RingMkdirAt(folder, name, mode) => {
            make(MKDIR, arg(folder), arg(name), 0, arg(mode), 0)
        }
        Takeover::RingSymlink(target, name) => make(SYMLINK, here, arg(target), arg(name), 0, 0),
        Takeover::RingSymlinkAt(target, folder, name) => {
            make(SYMLINK, arg(folder), arg(target), arg(name), 0, 0)
        }
        Takeover::RingLink(old, new) => names(LINK, here, old, here, new, 0),
        Takeover::RingLinkAt(from, old, to, new, flags) => {
            names(LINK, arg(from), old, arg(to), new, arg(flags))
        }
        Takeover::RingEpollCtl(set, operation, fd, event) => {
            make(CTL, arg(set), arg(event), arg(fd), arg(operation), 0)
        }
        Takeover::RingShutdown(fd, how) => make(SHUTDOWN, arg(fd), 0, 0, arg(how), 0),
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
    let found = sys::file_at(AT_FDCWD, c".".as_ptr() as u64, 0);
    found.map_or(0, |[device, inode]| inode ^ device.rotate_left(32))
}

/// What tells the address of a socket, its own or its peer's, from another one. 0 if there is none.
pub(super) fn address(fd: u64, of_peer: bool) -> u64 {
    let mut name = [0_u64; 16];
    let Some(len) = sys::sockets::address(fd, of_peer, &mut name) else {
        return 0;
    };
    let mixed = name.iter().fold(u64::from(len), |sum, word| {
        (sum.rotate_left(11) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    mixed | 1
}

//! System V shared memory: `shmget`, `shmat`, `shmdt`, `shmctl`.
//!
//! The segments are those of this run; nobody outside sees them, and they end with it. They stand
//! in the books of the slice and live in its memory.
//!
//! Who may do what with one is decided by the kernel's rules and by the process's own credentials
//! ([`access`]). Limits of the host hold here, too.
//!
//! Not covered: segments of other programs of the machine, huge pages, identifiers by wish
//! (`shm_next_id`). Capabilities count as in the user namespace that rcoe was started in.

mod access;
mod control;

use linux_raw_sys::errno::{EACCES, EEXIST, EIDRM, EINVAL, ENOENT, ENOMEM, ENOSPC};
use linux_raw_sys::general::{MAP_FIXED, PROT_EXEC, PROT_READ, PROT_WRITE};
use rcoe_linux_abi::arena::{Books, Kind, Segment};

use crate::arch::tsc;
use crate::calls::shared::arena::{self, Wish};
use crate::calls::shared::{Backing, files};
use crate::calls::{Call, limits};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::memory::loader::{page_down, page_up};
use crate::memory::space;
use crate::protocol::transfer;
use crate::sched::turns;
use crate::sys::{self, SegmentLimits};

pub(crate) use control::control;

const IPC_CREAT: u32 = 0o1000;
const IPC_EXCL: u32 = 0o2000;
const SHM_HUGETLB: u32 = 0o4000;
const SHM_RDONLY: u32 = 0o10_000;
const SHM_RND: u32 = 0o20_000;
const SHM_REMAP: u32 = 0o40_000;
const SHM_EXEC: u32 = 0o100_000;
const PERMISSIONS: u32 = 0o777;

/// Seconds since 1970, the same to all.
fn now(kernel: &mut Kernel) -> u64 {
    transfer::agree(kernel, || {
        const REALTIME: i32 = 0;
        sys::clock(REALTIME).unwrap_or(0) / 1_000_000_000
    })
}

/// The host's limits, the same to all.
fn host_limits(kernel: &mut Kernel) -> SegmentLimits {
    SegmentLimits::from(transfer::agree_all(kernel, true, |_| {
        sys::segment_limits().into()
    }))
}

/// `shmget`.
pub(crate) fn get(kernel: &mut Kernel, call: &Call) -> i64 {
    let (key, size, flags) = (low32(call.arg(0)), call.arg(1), low32(call.arg(2)));
    let time = now(kernel);
    let most = host_limits(kernel);
    turns::with_books(kernel, |kernel, books| {
        if let Some(found) = books.segments.by_key(key) {
            return match flags {
                _ if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 => sys::error(EEXIST),
                _ if size > found.size => sys::error(EINVAL),
                _ if !access::allows(&found, flags) => sys::error(EACCES),
                _ => i64::from(found.id),
            };
        }
        if key != 0 && flags & IPC_CREAT == 0 {
            return sys::error(ENOENT);
        }
        if size == 0 || size > most.bytes {
            return sys::error(EINVAL);
        }
        let [used, pages] = books.segments.usage();
        let more = size.div_ceil(4096);
        if used >= most.segments || pages.saturating_add(more) > most.pages {
            return sys::error(ENOSPC);
        }
        if flags & SHM_HUGETLB != 0 {
            return sys::error(ENOMEM);
        }
        let owner = [sys::user_ids().effective, sys::group_ids().effective];
        create(
            kernel,
            books,
            Segment {
                size,
                key,
                mode: flags & PERMISSIONS,
                times: [0, 0, time],
                owners: [owner[0], owner[1], owner[0], owner[1]],
                pids: [kernel.processes.pid, 0],
                ..Segment::default()
            },
        )
    })
}

fn create(kernel: &Kernel, books: &mut Books, segment: Segment) -> i64 {
    if !books.segments.has_room() {
        return sys::error(ENOSPC);
    }
    let len = page_up(segment.size);
    let Some(piece) = arena::allocate(kernel, books, Kind::Segment, len, (0, 0)) else {
        return sys::error(ENOMEM);
    };
    books.pieces.hold(piece.start);
    let id = books.segments.add(Segment {
        piece: piece.start,
        ..segment
    });
    id.map_or(sys::error(ENOSPC), i64::from)
}

/// `shmat`.
pub(crate) fn attach(kernel: &mut Kernel, call: &Call) -> i64 {
    const BOUNDARY: u64 = rcoe_linux_abi::PAGE;
    let (id, mut address, flags) = (low32(call.arg(0)), call.arg(1), low32(call.arg(2)));
    if flags & SHM_RND != 0 {
        address = page_down(address);
    }
    if !address.is_multiple_of(BOUNDARY) || flags & SHM_REMAP != 0 && address == 0 {
        return sys::error(EINVAL);
    }
    let time = now(kernel);
    turns::with_books(kernel, |kernel, books| {
        let Some(segment) = books.segments.by_id(id).copied() else {
            return sys::error(EINVAL);
        };
        if !access::allows(&segment, wanted(flags)) {
            return sys::error(EACCES);
        }
        let len = page_up(segment.size);
        if guest::meets_reserved(address, len) || kernel.rewriter.owns(address, len) {
            return sys::error(EINVAL);
        }
        if !kernel.limits.allow(space::Kind::Common, len / 4096) {
            return limits::TOO_MUCH;
        }
        let fixed = if address == 0 { 0 } else { MAP_FIXED };
        if address != 0 {
            if flags & SHM_REMAP == 0 && !sys::is_unmapped(address, len) {
                return sys::error(EINVAL);
            }
            files::before_unmap(kernel, address, len);
            kernel.rewriter.give_up(address, len);
            files::after_unmap(kernel, address, len);
        }
        let write = if flags & SHM_RDONLY == 0 {
            PROT_WRITE
        } else {
            0
        };
        let execute = if flags & SHM_EXEC != 0 { PROT_EXEC } else { 0 };
        let wish = Wish {
            address,
            len,
            prot: PROT_READ | write | execute,
            flags: fixed,
        };
        let Some(piece) = books.pieces.at(segment.piece).copied() else {
            return sys::error(EIDRM);
        };
        if execute != 0 {
            tsc::distrust(kernel);
        }
        let result = arena::map(kernel, books, &wish, piece, 0, None);
        if result >= 0 && write == 0 {
            kernel.shared.forbid_writing(result.cast_unsigned(), len);
        }
        if result >= 0
            && let Some(segment) = books.segments.by_id(id)
        {
            segment.attached += 1;
            kernel.withheld.forget(result.cast_unsigned(), len);
            space::space().set(result.cast_unsigned(), len, space::Kind::Common);
            segment.times[0] = time;
            segment.pids[1] = kernel.processes.pid;
        }
        result
    })
}

/// What attaching with these flags asks of the permissions.
const fn wanted(flags: u32) -> u32 {
    const READ: u32 = 0o444;
    const WRITE: u32 = 0o222;
    const EXECUTE: u32 = 0o111;
    let write = if flags & SHM_RDONLY == 0 { WRITE } else { 0 };
    let execute = if flags & SHM_EXEC == 0 { 0 } else { EXECUTE };
    READ | write | execute
}

/// `shmdt`.
pub(crate) fn detach(kernel: &mut Kernel, call: &Call) -> i64 {
    let address = call.arg(0);
    let time = now(kernel);
    turns::with_books(kernel, |kernel, books| {
        let mut live = kernel.shared.live().iter();
        let piece = live.find_map(|it| match it.backing {
            Backing::Arena { at, piece } if it.start == address && at == piece => Some(piece),
            _ => None,
        });
        let segment = piece.and_then(|piece| books.segments.by_piece(piece));
        let Some(segment) = segment else {
            return sys::error(EINVAL);
        };
        segment.times[1] = time;
        segment.pids[1] = kernel.processes.pid;
        let len = page_up(segment.size);
        // SAFETY: the program gives up this mapping of its own.
        let _ = unsafe { sys::munmap(address, len) };
        arena::unmapped(kernel, address, address + len);
        kernel.withheld.forget(address, len);
        space::space().remove(address, len);
        0
    })
}

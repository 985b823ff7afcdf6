//! `shmctl`: what is told of segments, and what changes them.

use linux_raw_sys::errno::{EACCES, EINVAL, ENOMEM, EPERM};
use rcoe_linux_abi::arena::{Books, Segment};

use crate::calls::Call;
use crate::calls::shared::arena;
use crate::calls::shared::segments::{PERMISSIONS, access, host_limits, now};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::memory::loader::page_up;
use crate::sched::turns;
use crate::sys;

const IPC_RMID: u32 = 0;
const IPC_SET: u32 = 1;
const IPC_STAT: u32 = 2;
const IPC_INFO: u32 = 3;
const SHM_LOCK: u32 = 11;
const SHM_UNLOCK: u32 = 12;
const SHM_STAT: u32 = 13;
const SHM_INFO: u32 = 14;
const SHM_STAT_ANY: u32 = 15;

/// `shmctl`.
pub(crate) fn control(kernel: &mut Kernel, call: &Call) -> i64 {
    let (id, buffer) = (low32(call.arg(0)), call.arg(2));
    if id.cast_signed() < 0 {
        return sys::error(EINVAL);
    }
    match low32(call.arg(1)) {
        IPC_RMID => remove(kernel, id),
        IPC_SET => set(kernel, id, buffer),
        IPC_INFO => tell_limits(kernel, buffer),
        SHM_INFO => tell_usage(kernel, buffer),
        command @ (IPC_STAT | SHM_STAT | SHM_STAT_ANY) => tell(kernel, command, id, buffer),
        SHM_LOCK => lock(kernel, id),
        SHM_UNLOCK => unlock(kernel, id),
        _ => sys::error(EINVAL),
    }
}

/// What is known of one segment, which is named by its identifier or by its place in the list.
fn tell(kernel: &mut Kernel, command: u32, id: u32, buffer: u64) -> i64 {
    const READ: u32 = 0o444;
    turns::with_books(kernel, |_, books| {
        let found = match command {
            IPC_STAT => books.segments.by_id(id).copied(),
            _ => books.segments.at(id),
        };
        let Some(segment) = found else {
            return sys::error(EINVAL);
        };
        if command != SHM_STAT_ANY && !access::allows(&segment, READ) {
            return sys::error(EACCES);
        }
        match guest::write(buffer, &facts(&segment)) {
            Ok(()) if command == IPC_STAT => 0,
            Ok(()) => i64::from(segment.id),
            Err(Fault) => Fault::RESULT,
        }
    })
}

/// `struct shminfo64`, and the highest place of a segment in the list.
fn tell_limits(kernel: &mut Kernel, buffer: u64) -> i64 {
    const LEAST_BYTES: u64 = 1;
    let most = host_limits(kernel);
    let segments = most.segments;
    let facts: [u64; 9] = [
        most.bytes,
        LEAST_BYTES,
        segments,
        segments,
        most.pages,
        0,
        0,
        0,
        0,
    ];
    turns::with_books(kernel, |_, books| {
        let last = i64::from(books.segments.last_place());
        guest::write(buffer, &facts).map_or(Fault::RESULT, |()| last)
    })
}

/// `struct shm_info`, and the highest place of a segment in the list. Which pages are resident is
/// the host's to know, and not the same in all replicas: all count as if they were.
fn tell_usage(kernel: &mut Kernel, buffer: u64) -> i64 {
    turns::with_books(kernel, |_, books| {
        let [used, pages] = books.segments.usage();
        let facts: [u64; 6] = [used, pages, pages, 0, 0, 0];
        let last = i64::from(books.segments.last_place());
        guest::write(buffer, &facts).map_or(Fault::RESULT, |()| last)
    })
}

/// Does what only the owner may.
fn change(kernel: &mut Kernel, id: u32, make: impl FnOnce(&mut Kernel, &mut Books) -> i64) -> i64 {
    turns::with_books(kernel, |kernel, books| match books.segments.by_id(id) {
        None => sys::error(EINVAL),
        Some(segment) if !access::allows_change(segment) => sys::error(EPERM),
        Some(_) => make(kernel, books),
    })
}

fn remove(kernel: &mut Kernel, id: u32) -> i64 {
    change(kernel, id, |kernel, books| {
        let Some(segment) = books.segments.by_id(id).filter(|it| !it.is_removed()) else {
            return 0;
        };
        segment.mode |= Segment::REMOVED;
        let piece = segment.piece;
        if let Some(gone) = books.pieces.release(piece) {
            arena::forget(kernel, books, &gone);
        }
        0
    })
}

fn set(kernel: &mut Kernel, id: u32, buffer: u64) -> i64 {
    /// Where uid, gid and mode lie in `struct ipc_perm`, as words of four bytes.
    const UID: usize = 1;
    const GID: usize = 2;
    const MODE: usize = 5;
    /// Bytes of `struct shmid64_ds`, all of which the kernel reads.
    const WORDS: usize = 14;
    if guest::read::<[u64; WORDS]>(buffer).is_err() {
        return Fault::RESULT;
    }
    let Ok(words) = guest::read::<[u32; 6]>(buffer) else {
        return Fault::RESULT;
    };
    let time = now(kernel);
    change(kernel, id, |_, books| {
        let Some(segment) = books.segments.by_id(id) else {
            return sys::error(EINVAL);
        };
        if words[UID] == u32::MAX || words[GID] == u32::MAX {
            return sys::error(EINVAL);
        }
        segment.owners[0] = words[UID];
        segment.owners[1] = words[GID];
        segment.mode = segment.mode & !PERMISSIONS | words[MODE] & PERMISSIONS;
        segment.times[2] = time;
        0
    })
}

/// `SHM_LOCK`: nothing of a slice is locked by it, but who may not is told so, and the mark is set.
/// Whoever is under a limit may lock as much as that leaves of what anyone has locked.
fn lock(kernel: &mut Kernel, id: u32) -> i64 {
    turns::with_books(kernel, |_, books| {
        let locked = books.segments.locked();
        let Some(segment) = books.segments.by_id(id) else {
            return sys::error(EINVAL);
        };
        let limit = match access::allows_lock(segment) {
            None => u64::MAX,
            Some(true) => sys::locked_memory_limit(),
            Some(false) => 0,
        };
        if limit == 0 {
            return sys::error(EPERM);
        }
        if !segment.is_locked() && page_up(segment.size).saturating_add(locked) > limit {
            return sys::error(ENOMEM);
        }
        segment.mode |= Segment::LOCKED;
        0
    })
}

fn unlock(kernel: &mut Kernel, id: u32) -> i64 {
    turns::with_books(kernel, |_, books| {
        let Some(segment) = books.segments.by_id(id) else {
            return sys::error(EINVAL);
        };
        if access::allows_lock(segment) == Some(false) {
            return sys::error(EPERM);
        }
        segment.mode &= !Segment::LOCKED;
        0
    })
}

/// `struct shmid64_ds` as 64-bit words.
fn facts(segment: &Segment) -> [u64; 14] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let [uid, gid, cuid, cgid] = segment.owners;
    let key = match segment.is_removed() {
        true => 0,
        false => segment.key,
    };
    [
        pair(key, uid),
        pair(gid, cuid),
        pair(cgid, segment.mode),
        0,
        0,
        0,
        segment.size,
        segment.times[0],
        segment.times[1],
        segment.times[2],
        pair(segment.pids[0], segment.pids[1]),
        segment.attached.into(),
        0,
        0,
    ]
}

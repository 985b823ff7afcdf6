//! Shared writable mappings of files.
//!
//! A store into such a mapping leaves the program at once, without a call at which it could be
//! voted. So every replica maps the file privately, and what it has changed goes out at the points
//! where the program, or the kernel on its behalf, says so: `msync`, `munmap`, the end, the
//! execution of another program, a fork, and any call of the program's own that reads or writes the
//! same file. There the content is voted, the primary writes the pages that differ from the file,
//! and all drop their private copies, so that the mapping shows the file again (Romain's *private
//! copy* of shared memory).
//!
//! The mapping keeps a descriptor of its own, since the program may close the one it mapped from.
//!
//! Contract: the program is the only writer of the mapped part.
//!
//! Not covered: stores that other processes should see before one of those points, children of the
//! program among them; two mappings of one part of a file, which are refused; death by `SIGKILL`.

use linux_raw_sys::errno::{EACCES, EINVAL, ENOMEM};
use linux_raw_sys::general::{MAP_PRIVATE, MAP_TYPE, PROT_WRITE};
use rcoe_linux_abi::Note;

use super::memory::local;
use super::{Call, refuse_with, transfer};
use crate::convert::{low32, size};
use crate::guest;
use crate::kernel::{Kernel, kind};
use crate::loader::page_up;
use crate::sys::{self, FileFacts};

/// Most mappings at a time.
const MAPPINGS: usize = 64;
/// Descriptors of mappings are not below this number, out of the way of the program's.
const FIRST_FD: u64 = 768;
const PAGE: usize = 4096;

/// One mapping.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: u64,
    len: u64,
    /// Where in the file it begins.
    offset: u64,
    fd: i32,
    device: u64,
    inode: u64,
}

impl Mapping {
    const NONE: Self = Self {
        start: 0,
        len: 0,
        offset: 0,
        fd: -1,
        device: 0,
        inode: 0,
    };

    const fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.start + self.len
    }

    const fn is_of(&self, facts: &FileFacts) -> bool {
        self.device == facts.device && self.inode == facts.inode
    }
}

/// All such mappings. The same in all replicas.
pub(crate) struct Shared {
    list: [Mapping; MAPPINGS],
    count: usize,
    /// The program has memory that it would share with its children.
    anonymous: bool,
}

impl Shared {
    pub(crate) const fn new() -> Self {
        Self {
            list: [Mapping::NONE; MAPPINGS],
            count: 0,
            anonymous: false,
        }
    }

    fn live(&self) -> &[Mapping] {
        &self.list[..self.count]
    }

    fn add(&mut self, mapping: Mapping) {
        self.list[self.count] = mapping;
        self.count += 1;
    }

    /// Takes the range out of all mappings. Splitting needs a free place.
    fn cut(&mut self, start: u64, end: u64) {
        let mut index = 0;
        while index < self.count {
            let whole = self.list[index];
            if !whole.overlaps(start, end) {
                index += 1;
                continue;
            }
            self.count -= 1;
            self.list.swap(index, self.count);
            let whole_end = whole.start + whole.len;
            if whole.start < start {
                self.add(Mapping {
                    len: start - whole.start,
                    ..whole
                });
            }
            if end < whole_end && self.count < MAPPINGS {
                self.add(Mapping {
                    start: end,
                    len: whole_end - end,
                    offset: whole.offset + (end - whole.start),
                    ..whole
                });
            }
        }
    }
}

/// Memory was mapped that a child would share with its parent.
pub(super) fn note_anonymous(kernel: &mut Kernel) {
    kernel.shared.anonymous = true;
}

/// `mmap` with `MAP_SHARED` of a file. `None` if the file was opened for reading only: then nothing
/// can be written, and the mapping may be shared as it is.
pub(super) fn map(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let (len, prot, flags, fd, offset) = (
        page_up(call.arg(1)),
        call.arg(2),
        call.arg(3),
        call.arg(4),
        call.arg(5),
    );
    let writable = transfer::agree(kernel, || u64::from(sys::is_open_for_both(fd))) == 1;
    if !writable {
        let refused = prot & u64::from(PROT_WRITE) != 0;
        return refused.then(|| sys::error(EACCES));
    }
    let facts = agree_facts(kernel, fd)?;
    let end = offset.saturating_add(len);
    let twice = |other: &Mapping| {
        other.is_of(&facts) && other.offset < end && offset < other.offset + other.len
    };
    if kernel.shared.live().iter().any(twice) || kernel.shared.count + 1 >= MAPPINGS {
        return Some(refuse_with(kernel, Note::UnsupportedMmap, flags));
    }
    let own = transfer::agree(kernel, || sys::duplicate(fd, FIRST_FD).cast_unsigned());
    let Ok(own) = i32::try_from(own.cast_signed())
        .map_err(drop)
        .and_then(|fd| if fd < 0 { Err(()) } else { Ok(fd) })
    else {
        return Some(sys::error(ENOMEM));
    };
    let mut args = call.raw;
    args[3] = flags & !u64::from(MAP_TYPE) | u64::from(MAP_PRIVATE);
    let result = local(call.nr, args);
    match sys::check(result) {
        Ok(start) => kernel.shared.add(Mapping {
            start,
            len,
            offset,
            fd: own,
            device: facts.device,
            inode: facts.inode,
        }),
        Err(_) => close_if_unused(kernel, own),
    }
    Some(result)
}

/// What the host says of an open file, the same to all replicas; `None` if it is none.
fn agree_facts(kernel: &mut Kernel, fd: u64) -> Option<FileFacts> {
    let mut facts = None;
    let known = transfer::agree(kernel, || {
        facts = sys::file_facts(fd);
        u64::from(facts.is_some())
    });
    if known == 0 {
        return None;
    }
    let local = facts.unwrap_or_default();
    Some(FileFacts {
        device: transfer::agree(kernel, || fact(fd, local, |facts| facts.device)),
        inode: transfer::agree(kernel, || fact(fd, local, |facts| facts.inode)),
        size: transfer::agree(kernel, || fact(fd, local, |facts| facts.size)),
    })
}

/// The fact that the primary read before; one that has just taken over reads it itself.
fn fact(fd: u64, read: FileFacts, which: impl Fn(FileFacts) -> u64) -> u64 {
    if read == FileFacts::default() {
        which(sys::file_facts(fd).unwrap_or_default())
    } else {
        which(read)
    }
}

/// Brings the changed pages of all mappings in the range out. Returns 0 or an error.
pub(super) fn flush(kernel: &mut Kernel, start: u64, len: u64) -> i64 {
    let end = start.saturating_add(page_up(len));
    let mut outcome = 0;
    for index in 0..kernel.shared.count {
        let mapping = kernel.shared.list[index];
        if mapping.overlaps(start, end) {
            let result = bring_out(kernel, mapping);
            if outcome == 0 {
                outcome = result;
            }
        }
    }
    outcome
}

/// The same for all mappings.
pub(crate) fn flush_all(kernel: &mut Kernel) {
    if kernel.shared.count > 0 {
        let _ = flush(kernel, 0, u64::MAX - 4096);
    }
}

/// Before a call on an open file: its mappings and the file must say the same.
pub(super) fn before_call(kernel: &mut Kernel, call: &Call) {
    if kernel.shared.count == 0 || !touches_files(call.what.call.name) {
        return;
    }
    for place in [0, 1, 2] {
        if call.what.args[place] != rcoe_linux_syscalls::Arg::Fd {
            continue;
        }
        let Some(facts) = agree_facts(kernel, call.arg(place)) else {
            continue;
        };
        for index in 0..kernel.shared.count {
            let mapping = kernel.shared.list[index];
            if mapping.is_of(&facts) {
                bring_out(kernel, mapping);
            }
        }
    }
}

fn touches_files(name: &str) -> bool {
    matches!(
        name,
        "read"
            | "pread64"
            | "readv"
            | "preadv"
            | "preadv2"
            | "write"
            | "pwrite64"
            | "writev"
            | "pwritev"
            | "pwritev2"
            | "sendfile"
            | "copy_file_range"
            | "splice"
            | "ftruncate"
            | "fallocate"
            | "fsync"
            | "fdatasync"
            | "sync_file_range"
            | "flock"
    )
}

/// Votes on what a mapping holds, lets the primary write what differs from the file, and drops the
/// private copies.
fn bring_out(kernel: &mut Kernel, mapping: Mapping) -> i64 {
    let fd = u64::from(mapping.fd.unsigned_abs());
    let Some(facts) = agree_facts(kernel, fd) else {
        return sys::error(EINVAL);
    };
    let len = mapping.len.min(facts.size.saturating_sub(mapping.offset));
    let digest = guest::digest(mapping.start, len).unwrap_or(u64::MAX);
    kernel.event(kind::of(0, kind::CONTENT), digest);
    kernel.rendezvous();
    let result = transfer::agree(kernel, || write_back(&mapping, len).cast_unsigned());
    if result == 0 {
        sys::forget_changes(mapping.start, mapping.len);
    }
    result.cast_signed()
}

/// Writes the pages that differ from the file. Doing it twice is as good as once.
fn write_back(mapping: &Mapping, len: u64) -> i64 {
    let mut page = [0; PAGE];
    let mut done = 0;
    while done < len {
        let part = size((len - done).min(PAGE as u64));
        let (address, offset) = (mapping.start + done, mapping.offset + done);
        let read = sys::pread(mapping.fd, &mut page[..part], offset);
        if read != Ok(part) || !guest::equals(&page[..part], address) {
            let written = sys::pwrite_raw(mapping.fd, address, part, offset);
            if written < 0 {
                return written;
            }
        }
        done += part as u64;
    }
    0
}

/// The range is about to be unmapped or mapped over.
pub(super) fn before_unmap(kernel: &mut Kernel, start: u64, len: u64) {
    if kernel.shared.count > 0 {
        let _ = flush(kernel, start, len);
    }
}

/// The range was unmapped or mapped over.
pub(super) fn after_unmap(kernel: &mut Kernel, start: u64, len: u64) {
    let end = start.saturating_add(page_up(len));
    let mut gone = [-1; MAPPINGS];
    let cut = kernel
        .shared
        .live()
        .iter()
        .filter(|it| it.overlaps(start, end));
    for (slot, mapping) in gone.iter_mut().zip(cut) {
        *slot = mapping.fd;
    }
    kernel.shared.cut(start, end);
    for fd in gone.into_iter().filter(|fd| *fd >= 0) {
        close_if_unused(kernel, fd);
    }
}

fn close_if_unused(kernel: &mut Kernel, fd: i32) {
    if !kernel.shared.live().iter().any(|mapping| mapping.fd == fd) {
        transfer::agree(kernel, || {
            sys::close(fd);
            0
        });
    }
}

/// The mappings in the range cannot be moved or resized as they are.
pub(super) fn holds(kernel: &Kernel, start: u64, len: u64) -> bool {
    let end = start.saturating_add(page_up(len.max(1)));
    kernel
        .shared
        .live()
        .iter()
        .any(|it| it.overlaps(start, end))
}

/// The program is about to fork: what it has changed goes out, and if a child would share memory
/// with it, the user is told that it gets a copy.
pub(super) fn before_fork(kernel: &mut Kernel) {
    flush_all(kernel);
    if kernel.shared.anonymous || kernel.shared.count > 0 {
        let count = low32(kernel.shared.count as u64);
        refuse_with(kernel, Note::SharedWithChild, count.into());
    }
}

/// In a child: what it holds of the parent's mappings is a copy that nobody sees.
pub(super) fn in_child(kernel: &mut Kernel) {
    kernel.shared.count = 0;
}

/// The program was replaced: its mappings are gone, and their descriptors with them.
pub(crate) fn forget_all(kernel: &mut Kernel) {
    kernel.shared = Shared::new();
}

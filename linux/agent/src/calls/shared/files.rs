//! Files that are mapped shared and writable.
//!
//! A program without other processes has private copies ([`crate::calls::shared::copies`]). One
//! that has others maps this replica's slice of the memory that processes share: the first to map a
//! file loads it there, and all who map it see the same memory. In both cases the file itself gets
//! what was written at the points where the program, or the kernel on its behalf, says so: `msync`,
//! `munmap`, the end, the execution of another program, the first fork, and any call of the
//! program's own that reads or writes the same file. There the content is voted, and the primary
//! writes the pages that differ from the file.
//!
//! A mapping keeps a descriptor of its own, since the program may close the one it mapped from.
//!
//! Contract: the program's processes are the only writers of the mapped part.
//!
//! Not covered: stores that programs outside should see before one of those points; a file that
//! grows far beyond what it was when it was mapped first; what is written through a descriptor that
//! cannot be read, while another process has the file mapped.

use linux_raw_sys::errno::{EACCES, EBUSY, EINVAL, ENOMEM, EPERM};
use linux_raw_sys::general::F_SEAL_FUTURE_WRITE;
use linux_raw_sys::general::{F_SEAL_SEAL, F_SEAL_WRITE, PROT_WRITE};
use rcoe_linux_abi::arena::{Books, Kind, Piece};
use rcoe_linux_abi::{Note, PAGE_BYTES};
use rcoe_linux_syscalls::{Arg, Content};

use crate::calls::shared::arena::{Behind, Wish};
use crate::calls::shared::{Backing, Mapping, arena, copies};
use crate::calls::{Call, io, refuse_with};
use crate::convert::{low32, size};
use crate::kernel::{Kernel, kind};
use crate::memory::guest;
use crate::memory::loader::page_up;
use crate::protocol::transfer;
use crate::recover::reintegration::newcomer;
use crate::sched::turns;
use crate::sys::{self, FileFacts};

/// Which part of the file a call maps.
pub(super) fn part(call: &Call) -> (u64, u64) {
    let start = call.arg(5);
    (start, start.saturating_add(page_up(call.arg(1))))
}

/// What the host says of an open file, the same to all replicas.
#[derive(Clone, Copy)]
struct Opened {
    facts: FileFacts,
    /// For reading, without which nothing can be mapped.
    readable: bool,
    /// For both.
    writable: bool,
    /// It lies in memory (`/dev/shm`, `memfd_create`): meant for processes to share.
    in_memory: bool,
    /// What the program has forbidden for good (`F_ADD_SEALS`).
    seals: u32,
}

/// `None` if there is no such file.
fn look(kernel: &mut Kernel, fd: u64) -> Option<Opened> {
    let [known, device, inode, size, modes, in_memory, seals] =
        transfer::agree_all(kernel, true, |_| {
            let facts = sys::file_facts(fd);
            let known = u64::from(facts.is_some());
            let facts = facts.unwrap_or_default();
            let writable = u64::from(sys::is_open_for_both(fd));
            let readable = u64::from(sys::is_open_for_reading(fd));
            let in_memory = sys::is_in_memory(fd);
            let seals = if in_memory { sys::seals(fd) } else { 0 };
            let in_memory = u64::from(in_memory);
            [
                known,
                facts.device,
                facts.inode,
                facts.size,
                readable << 1 | writable,
                in_memory,
                seals,
            ]
        });
    (known != 0).then_some(Opened {
        facts: FileFacts {
            device,
            inode,
            size,
        },
        readable: modes & 2 != 0,
        writable: modes & 1 != 0,
        in_memory: in_memory != 0,
        seals: low32(seals),
    })
}

const SEALED: u32 = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

/// `fcntl` with `F_ADD_SEALS`. To the host nothing is mapped, so what depends on that is said here:
/// what is mapped for writing cannot be sealed against it. That mappings may still be written and
/// nothing else is refused, since what they hold goes out by writing the file.
pub(crate) fn add_seals(kernel: &mut Kernel, call: &Call) -> i64 {
    let wanted = low32(call.arg(2)) & SEALED;
    let opened = match wanted {
        0 => None,
        _ => look(kernel, call.arg(0)),
    };
    let open = |it: &Opened| it.in_memory && it.writable && it.seals & (F_SEAL_SEAL | wanted) == 0;
    if !opened.filter(open).is_some_and(|it| is_mapped(kernel, &it)) {
        return io::output(kernel, call);
    }
    if wanted & F_SEAL_WRITE != 0 {
        return sys::error(EBUSY);
    }
    refuse_with(kernel, Note::UnsupportedFcntl, call.arg(1));
    sys::error(EINVAL)
}

/// Has any process of the program mapped the file through a descriptor that can write it?
fn is_mapped(kernel: &mut Kernel, opened: &Opened) -> bool {
    let FileFacts { device, inode, .. } = opened.facts;
    for index in 0..kernel.shared.count {
        let mapping = kernel.shared.list[index];
        if mapping.fd >= 0 && mapping.is_of(&opened.facts) {
            let own = look(kernel, u64::from(mapping.fd.unsigned_abs()));
            if own.is_some_and(|own| own.writable) {
                return true;
            }
        }
    }
    kernel.turns.is_member()
        && turns::with_books(kernel, |kernel, books| {
            let piece = books.pieces.of_file(device, inode);
            piece.is_some_and(|piece| !kernel.shared.shows(piece.start))
        })
}

/// `mmap` with `MAP_SHARED` of a file. `None` if it may be mapped as it is: nobody writes to
/// it.
pub(crate) fn map(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let mut opened = look(kernel, call.arg(4))?;
    if page_up(call.arg(1)) == 0 || !call.arg(5).is_multiple_of(PAGE_BYTES as u64) {
        return Some(sys::error(EINVAL));
    }
    if !opened.readable {
        return Some(sys::error(EACCES));
    }
    if opened.writable && opened.seals & SEALED != 0 {
        if low32(call.arg(2)) & PROT_WRITE != 0 {
            return Some(sys::error(EPERM));
        }
        opened.writable = false;
    }
    if !opened.writable && low32(call.arg(2)) & PROT_WRITE != 0 {
        return Some(sys::error(EACCES));
    }
    let mut live = kernel.shared.live().iter();
    let known = live.any(|it| it.is_of(&opened.facts));
    if !opened.writable && !known && !is_shared(kernel, &opened) {
        return None;
    }
    if !kernel.shared.has_room(1) {
        return Some(sys::error(ENOMEM));
    }
    let alone = opened.writable && !kernel.shared.related;
    if alone && !copies::would_alias(kernel, call, &opened.facts) {
        return Some(copies::map(kernel, call, opened.facts));
    }
    adopt_copies(kernel);
    Some(map_in_arena(kernel, call, opened))
}

/// May another process of the program write to this file?
fn is_shared(kernel: &mut Kernel, opened: &Opened) -> bool {
    let FileFacts { device, inode, .. } = opened.facts;
    kernel.shared.related && opened.in_memory
        || kernel.turns.is_member()
            && turns::with_books(kernel, |_, books| {
                books.pieces.of_file(device, inode).is_some()
            })
}

fn map_in_arena(kernel: &mut Kernel, call: &Call, opened: Opened) -> i64 {
    let fd = match own_descriptor(kernel, call.arg(4)) {
        Ok(fd) => fd,
        Err(result) => return result,
    };
    let behind = Behind {
        fd,
        facts: opened.facts,
        offset: call.arg(5),
    };
    let wish = Wish::of(call);
    let result = turns::with_books(kernel, |kernel, books| {
        let end = part(call).1;
        match piece_of(kernel, books, &behind, end) {
            Some(piece) if end <= piece.len => {
                arena::map(kernel, books, &wish, piece, behind.offset, Some(behind))
            }
            Some(_) => refuse_with(kernel, Note::UnsupportedMmap, wish.flags.into()),
            None => sys::error(ENOMEM),
        }
    });
    match sys::check(result) {
        Err(_) => close_if_unused(kernel, fd),
        Ok(start) if !opened.writable => kernel.shared.forbid_writing(start, wish.len),
        Ok(_) => {}
    }
    result
}

/// In a turn: the memory that holds the file, loaded if it is the first time. `None` if there is no
/// room.
fn piece_of(kernel: &mut Kernel, books: &mut Books, behind: &Behind, end: u64) -> Option<Piece> {
    /// Room for a file to grow.
    const LEAST: u64 = 1 << 20;
    const MOST_MORE: u64 = 64 << 20;
    let FileFacts {
        device,
        inode,
        size,
    } = behind.facts;
    if let Some(piece) = books.pieces.of_file(device, inode) {
        return Some(piece);
    }
    let need = page_up(end.max(size));
    let len = need
        .saturating_mul(16)
        .max(LEAST)
        .min(need.saturating_add(MOST_MORE));
    let piece = arena::allocate(kernel, books, Kind::File, len, (device, inode))?;
    load(kernel, &piece, behind.fd, size);
    Some(piece)
}

/// In a turn: all replicas read the file into their slices, and vote that it is the same. They meet
/// before anyone goes on, so that nobody reads what a later turn has written.
fn load(kernel: &mut Kernel, piece: &Piece, fd: i32, size: u64) {
    let to = kernel.slice.memory() + piece.start;
    let len = size.min(piece.len);
    let rest = page_up(len);
    sys::give_back(to + rest, piece.len - rest);
    if !len.is_multiple_of(PAGE_BYTES as u64) {
        let _ = guest::fill_zero(to + len, rest - len);
    }
    let mut done = 0;
    while done < len {
        const PART: u64 = 1 << 20;
        let part = crate::convert::size((len - done).min(PART));
        sys::pread_raw(fd, to + done, part, done);
        done += part as u64;
    }
    let digest = guest::digest(to, len).unwrap_or(u64::MAX);
    kernel.event(kind::of(0, kind::CONTENT), digest);
    kernel.rendezvous();
    newcomer::wait_for(kernel);
}

/// Private copies become memory that other processes can share.
pub(super) fn adopt_copies(kernel: &mut Kernel) {
    let copy = |it: &&Mapping| it.backing == Backing::Copy;
    if kernel.shared.live().iter().any(|it| copy(&it)) {
        // All of them first: the memory of a file is loaded with the first of its mappings.
        flush_all(kernel);
    }
    while let Some(mapping) = kernel.shared.live().iter().find(copy).copied() {
        let now = look(kernel, u64::from(mapping.fd.unsigned_abs()));
        let behind = Behind {
            fd: mapping.fd,
            facts: now.map_or(mapping.facts, |opened| opened.facts),
            offset: mapping.offset,
        };
        kernel.shared.cut(mapping.start, mapping.end());
        let wish = Wish {
            address: mapping.start,
            len: mapping.len,
            prot: mapping.prot,
            flags: linux_raw_sys::general::MAP_FIXED,
        };
        let end = mapping.offset + mapping.len;
        let adopted = turns::with_books(kernel, |kernel, books| {
            let piece = piece_of(kernel, books, &behind, end)?;
            (end <= piece.len)
                .then(|| arena::map(kernel, books, &wish, piece, behind.offset, Some(behind)))
        });
        if adopted.is_none_or(|result| result < 0) {
            // What was written so far is in the file; the mapping stays, shared with nobody.
            refuse_with(kernel, Note::SharedWithChild, 1);
        }
    }
}

/// A descriptor of the mapping's own for the same file, or the error to return.
pub(super) fn own_descriptor(kernel: &mut Kernel, fd: u64) -> Result<i32, i64> {
    /// Where limits leave no such number.
    const LOWER: [u64; 3] = [sys::FIRST_OWN / 4, sys::FIRST_OWN / 16, 3];
    let own = transfer::agree(kernel, || {
        sys::with_most_descriptors(|| {
            let mut own = sys::duplicate(fd, sys::FIRST_OWN);
            for least in LOWER {
                if own < 0 {
                    own = sys::duplicate(fd, least);
                }
            }
            own.cast_unsigned()
        })
    });
    let own = i32::try_from(own.cast_signed())
        .ok()
        .filter(|own| *own >= 0);
    own.ok_or(sys::error(ENOMEM))
}

/// Closes a mapping's descriptor unless another part of the mapping still needs it.
pub(super) fn close_if_unused(kernel: &mut Kernel, fd: i32) {
    if !kernel.shared.live().iter().any(|mapping| mapping.fd == fd) {
        transfer::agree(kernel, || {
            sys::close(fd);
            0
        });
    }
}

/// Brings the changed pages of all mappings in the range out. Returns 0 or an error.
pub(crate) fn flush(kernel: &mut Kernel, start: u64, len: u64) -> i64 {
    let end = start.saturating_add(page_up(len));
    let mut outcome = 0;
    for index in 0..kernel.shared.count {
        let mapping = kernel.shared.list[index];
        if mapping.fd >= 0 && mapping.overlaps(start, end) {
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

/// The files that a call reads or writes and that are mapped, in all processes that share memory.
fn mapped_files(kernel: &mut Kernel, call: &Call, writes: bool) -> [Option<(u64, Opened)>; 3] {
    let mut found = [None; 3];
    let touches = match call.what.facts.content {
        Content::None => false,
        Content::Reads => !writes,
        Content::Writes => true,
    };
    let mapped = |kernel: &mut Kernel| {
        kernel.shared.has_files()
            || kernel.turns.is_member()
                && turns::with_books(kernel, |_, books| books.pieces.has_files())
    };
    if !touches || !mapped(kernel) {
        return found;
    }
    for (place, slot) in found.iter_mut().enumerate() {
        if call.what.args[place] == Arg::Fd {
            let fd = call.arg(place);
            *slot = look(kernel, fd).map(|opened| (fd, opened));
        }
    }
    found
}

/// Before a call on an open file: its mappings and the file must say the same.
pub(crate) fn before_call(kernel: &mut Kernel, call: &Call) {
    if kernel.shared.count == 0 {
        return;
    }
    for (_, opened) in mapped_files(kernel, call, false).into_iter().flatten() {
        for index in 0..kernel.shared.count {
            let mapping = kernel.shared.list[index];
            if mapping.fd >= 0 && mapping.is_of(&opened.facts) {
                bring_out(kernel, mapping);
            }
        }
    }
}

/// After a call that may have written to a file: memory that shows it is loaded again.
pub(crate) fn after_call(kernel: &mut Kernel, call: &Call, result: i64) {
    // A program that has always been alone has private copies, but of files that it has mapped
    // twice.
    let in_slice = kernel.shared.related || kernel.shared.shows_slice();
    let mapped = kernel.shared.count > 0 && in_slice || kernel.turns.is_member();
    if result < 0 || !mapped {
        return;
    }
    for (fd, opened) in mapped_files(kernel, call, true).into_iter().flatten() {
        let FileFacts { device, inode, .. } = opened.facts;
        turns::with_books(kernel, |kernel, books| {
            if let Some(piece) = books.pieces.of_file(device, inode) {
                let mine = kernel.shared.live().iter();
                let mine = mine.filter(|it| it.is_of(&opened.facts)).map(|it| it.fd);
                let fd = mine.max().unwrap_or(i32::try_from(fd).unwrap_or(-1));
                load(kernel, &piece, fd, opened.facts.size);
            }
        });
    }
}

/// Votes on what a mapping holds, lets the primary write what differs from the file, and drops
/// private copies.
fn bring_out(kernel: &mut Kernel, mapping: Mapping) -> i64 {
    let Some(opened) = look(kernel, u64::from(mapping.fd.unsigned_abs())) else {
        return sys::error(EINVAL);
    };
    let size = opened.facts.size;
    let len = mapping.len.min(size.saturating_sub(mapping.offset));
    let source = match mapping.backing {
        Backing::Copy => mapping.start,
        Backing::Arena { at, .. } => kernel.slice.memory() + at,
    };
    let digest = guest::digest(source, len).unwrap_or(u64::MAX);
    kernel.event(kind::of(0, kind::CONTENT), digest);
    kernel.rendezvous();
    if mapping.backing == Backing::Copy {
        // Where the program has written nothing, a copy shows the file, which may change next.
        newcomer::wait_for(kernel);
    }
    let result = transfer::agree(kernel, || {
        if !opened.writable {
            return 0;
        }
        write_back(&mapping, source, len).cast_unsigned()
    });
    if result == 0 && mapping.backing == Backing::Copy {
        sys::forget_changes(mapping.start, mapping.len);
    }
    result.cast_signed()
}

/// Writes the pages that differ from the file. Doing it twice is as good as once.
#[inline(never)]
fn write_back(mapping: &Mapping, source: u64, len: u64) -> i64 {
    let mut page = [0; PAGE_BYTES];
    let mut done = 0;
    while done < len {
        let part = size((len - done).min(PAGE_BYTES as u64));
        let (address, offset) = (source + done, mapping.offset + done);
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
pub(crate) fn before_unmap(kernel: &mut Kernel, start: u64, len: u64) {
    if kernel.shared.count > 0 {
        let _ = flush(kernel, start, len);
    }
}

/// The range was unmapped or mapped over.
pub(crate) fn after_unmap(kernel: &mut Kernel, start: u64, len: u64) {
    if kernel.shared.count > 0 {
        arena::unmapped(kernel, start, start.saturating_add(page_up(len)));
    }
}

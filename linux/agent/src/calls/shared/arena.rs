//! Mappings of the memory that processes share.
//!
//! A range of this replica's slice is mapped a second time, at the program's address: `mremap` of
//! nothing to a new place does that without a descriptor. What is used of a slice, and by how many
//! processes, stands in its books.

use linux_raw_sys::errno::{EINVAL, ENOMEM};
use linux_raw_sys::general::{
    MAP_32BIT, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_HUGETLB, MAP_NORESERVE,
    MAP_PRIVATE, PROT_NONE,
};
use rcoe_linux_abi::Note;
use rcoe_linux_abi::arena::{Books, Kind, Piece};

use crate::calls::Call;
use crate::calls::shared::{Backing, Mapping, files};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::loader::page_up;
use crate::sched::turns;
use crate::sys;

/// `mmap` of shared anonymous memory.
pub(crate) fn map_anonymous(kernel: &mut Kernel, call: &Call) -> i64 {
    let len = page_up(call.arg(1));
    if len == 0 {
        return sys::error(EINVAL);
    }
    if low32(call.arg(3)) & MAP_HUGETLB != 0 {
        return sys::error(ENOMEM);
    }
    let wish = Wish::of(call);
    turns::with_books(kernel, |kernel, books| {
        match allocate(kernel, books, Kind::Anonymous, len, (0, 0)) {
            Some(piece) => map(kernel, books, &wish, piece, 0, None),
            None => sys::error(ENOMEM),
        }
    })
}

/// Where and how the program wants a mapping.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) prot: u32,
    pub(super) flags: u32,
}

impl Wish {
    pub(super) fn of(call: &Call) -> Self {
        Self {
            address: call.arg(0),
            len: page_up(call.arg(1)),
            prot: low32(call.arg(2)),
            flags: low32(call.arg(3)),
        }
    }
}

/// The file behind a mapping: its descriptor, and where in it the mapping begins.
#[derive(Clone, Copy)]
pub(super) struct Behind {
    pub(super) fd: i32,
    pub(super) facts: sys::FileFacts,
    pub(super) offset: u64,
}

/// In a turn: takes room for a piece, and tells the user if there is none.
pub(super) fn allocate(
    kernel: &Kernel,
    books: &mut Books,
    kind: Kind,
    len: u64,
    name: (u64, u64),
) -> Option<Piece> {
    let room = kernel.turns.room();
    let piece = books.pieces.add(kind, len, name, room);
    if piece.is_none() {
        kernel.note(Note::NoSharedMemory, room >> 20);
    }
    piece
}

/// In a turn: maps a piece from `skip` on. A piece that nobody uses then is given back. From the
/// first mapping on, a program that has others to share with runs in turns.
pub(super) fn map(
    kernel: &mut Kernel,
    books: &mut Books,
    wish: &Wish,
    piece: Piece,
    skip: u64,
    behind: Option<Behind>,
) -> i64 {
    let at = piece.start + skip;
    let result = match kernel.shared.has_room(1) {
        true => place(kernel, wish, at),
        false => sys::error(ENOMEM),
    };
    let first = !kernel.shared.shows(piece.start);
    if first {
        books.pieces.hold(piece.start);
    }
    match sys::check(result) {
        Ok(start) => {
            let behind = behind.unwrap_or(Behind {
                fd: -1,
                facts: sys::FileFacts::default(),
                offset: 0,
            });
            kernel.shared.add(Mapping {
                start,
                len: wish.len,
                prot: wish.prot,
                read_only: false,
                backing: Backing::Arena {
                    at,
                    piece: piece.start,
                },
                fd: behind.fd,
                facts: behind.facts,
                offset: behind.offset,
            });
            // Where a lost replica can come back all slices must have had the same turns.
            if kernel.shared.related || kernel.masks {
                turns::join(kernel);
            }
        }
        Err(_) if first => give_up(kernel, books, piece.start),
        Err(_) => {}
    }
    result
}

/// Maps memory of the slice where the program wants it, or where the kernel would put it.
pub(super) fn place(kernel: &Kernel, wish: &Wish, at: u64) -> i64 {
    let kept = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT;
    let flags = wish.flags & kept | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the program's own call; that it is not the agent's memory was seen to by the caller.
    let mapped = unsafe { sys::mmap(wish.address, wish.len, PROT_NONE, flags, -1, 0) };
    let start = match mapped {
        Ok(start) => start,
        Err(errno) => return -i64::from(errno.0),
    };
    if show(kernel, start, wish.len, at, wish.prot).is_err() {
        // SAFETY: mapped just above.
        let _ = unsafe { sys::munmap(start, wish.len) };
        return sys::error(ENOMEM);
    }
    start.cast_signed()
}

/// Makes a range of the program's show memory of this replica's slice.
fn show(kernel: &Kernel, start: u64, len: u64, at: u64, prot: u32) -> Result<(), sys::Errno> {
    // SAFETY: the range is a mapping to be replaced; the source is a shared mapping of ours.
    unsafe {
        sys::map_again(kernel.slice.memory() + at, start, len)?;
        sys::mprotect(start, len, prot)
    }
}

/// In a turn: this process does not map the piece any more.
fn give_up(kernel: &Kernel, books: &mut Books, piece: u64) {
    if let Some(gone) = books.pieces.release(piece) {
        forget(kernel, books, &gone);
    }
}

/// In a turn: nobody uses the piece any more; who gets the memory next finds zeroes.
pub(super) fn forget(kernel: &Kernel, books: &mut Books, gone: &Piece) {
    sys::give_back(kernel.slice.memory() + gone.start, gone.len);
    if let Some(segment) = books.segments.by_piece(gone.start) {
        let id = segment.id;
        books.segments.remove(id);
    }
}

/// The range was unmapped or mapped over.
pub(super) fn unmapped(kernel: &mut Kernel, start: u64, end: u64) {
    while let Some(mapping) = kernel.shared.first_in(start, end) {
        let Backing::Arena { piece, .. } = mapping.backing else {
            kernel
                .shared
                .cut(mapping.start.max(start), mapping.end().min(end));
            files::close_if_unused(kernel, mapping.fd);
            continue;
        };
        turns::with_books(kernel, |kernel, books| {
            let before = kernel.shared.times_from_start(piece);
            kernel
                .shared
                .cut(mapping.start.max(start), mapping.end().min(end));
            let detached = before.saturating_sub(kernel.shared.times_from_start(piece));
            if let Some(segment) = books.segments.by_piece(piece) {
                segment.attached = segment.attached.saturating_sub(detached);
            }
            if !kernel.shared.shows(piece) {
                give_up(kernel, books, piece);
            }
        });
        if mapping.fd >= 0 {
            files::close_if_unused(kernel, mapping.fd);
        }
    }
}

/// The program is about to fork: from here on it shares what it has mapped.
pub(crate) fn before_fork(kernel: &mut Kernel) {
    kernel.shared.related = true;
    files::adopt_copies(kernel);
    if kernel.shared.shows_slice() {
        turns::join(kernel);
    }
}

/// A child exists: it uses all that its parent does.
pub(crate) fn after_fork(kernel: &mut Kernel) {
    if !kernel.turns.is_member() {
        return;
    }
    turns::with_books(kernel, |kernel, books| {
        let list = kernel.shared.live();
        for (at, mapping) in list.iter().enumerate() {
            let Backing::Arena { at: from, piece } = mapping.backing else {
                continue;
            };
            if !list[..at].iter().any(|it| it.piece() == Some(piece)) {
                books.pieces.hold(piece);
            }
            if let Some(segment) = books.segments.by_piece(piece).filter(|_| from == piece) {
                segment.attached += 1;
            }
        }
    });
}

/// In a child, which has another slice than the replica that made it: shows that one.
pub(crate) fn in_child(kernel: &mut Kernel) {
    if kernel.shared.shows_slice() {
        turns::announce(kernel);
    }
    show_all(kernel);
}

/// This replica has another slice than before: all mappings show that one.
pub(crate) fn show_all(kernel: &Kernel) {
    for mapping in kernel.shared.live() {
        if let Backing::Arena { at, .. } = mapping.backing {
            show(kernel, mapping.start, mapping.len, at, mapping.prot)
                .expect("what another replica could map");
        }
    }
}

/// In a child that shares memory: its first turn.
pub(crate) fn start_child(kernel: &mut Kernel) {
    if kernel.shared.shows_slice() {
        turns::join(kernel);
    }
}

/// The program ends or is replaced: nothing is mapped any more.
pub(crate) fn forget_all(kernel: &mut Kernel) {
    if kernel.shared.count > 0 {
        unmapped(kernel, 0, u64::MAX);
    }
    if kernel.shared.waiting {
        turns::with_books(kernel, |_, books| {
            let group = low32(crate::memory::regions::own_group() as u64);
            books.waiters.review(group, |_| false);
        });
        kernel.shared.waiting = false;
    }
}

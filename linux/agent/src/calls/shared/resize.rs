//! `mremap` of shared mappings: they grow, shrink and move.
//!
//! A private copy of a file is a mapping of the host's like any other, which the host resizes. A
//! mapping of this replica's slice shows a part of a piece; it can grow as far as the piece goes,
//! in place if nothing is behind it, else by being mapped anew elsewhere. Where it has shrunk it
//! was unmapped.
//!
//! Contract: the range is the program's own. Whatever was in the way of a wished place is unmapped
//! before, as the kernel does it.
//!
//! Not covered, and refused: a range that is not part of a single mapping, a second view (an old
//! length of 0, `MREMAP_DONTUNMAP`), and growth beyond the piece: anonymous memory would have
//! nothing to show there anyway.

use linux_raw_sys::errno::{EINVAL, ENOMEM};
use linux_raw_sys::general::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE,
};
use rcoe_linux_abi::{Note, REMAP};

use crate::calls::memory::local;
use crate::calls::shared::arena::{self, Wish};
use crate::calls::shared::{Backing, Mapping, files};
use crate::calls::{Call, refuse_with};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::loader::page_up;
use crate::sched::turns;
use crate::sys;

/// What a call asks for.
#[derive(Clone, Copy)]
struct Resizing {
    start: u64,
    old: u64,
    new: u64,
    may_move: bool,
    /// Where it is to be, whatever is there.
    target: Option<u64>,
}

impl Resizing {
    /// `Err` with what the kernel says of arguments that fit nothing.
    fn of(call: &Call) -> Result<Self, i64> {
        let flags = low32(call.arg(3));
        let fixed = flags & MREMAP_FIXED != 0;
        let this = Self {
            start: call.arg(0),
            old: page_up(call.arg(1)),
            new: page_up(call.arg(2)),
            may_move: flags & MREMAP_MAYMOVE != 0,
            target: fixed.then_some(call.arg(4)),
        };
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        let aligned = |address: u64| address.is_multiple_of(4096);
        let apart = this
            .target
            .is_none_or(|to| to.saturating_add(this.new) <= this.start || this.end() <= to);
        let placed = this.target.is_none_or(|to| this.may_move && aligned(to));
        let sized = this.new != 0 && aligned(this.start);
        if flags & !known == 0 && sized && placed && apart {
            Ok(this)
        } else {
            Err(sys::error(EINVAL))
        }
    }

    const fn end(&self) -> u64 {
        self.start.saturating_add(self.old)
    }
}

/// `mremap`, if a shared mapping is in the range or in the way of the wished place.
pub(crate) fn remap(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let fixed = low32(call.arg(3)) & MREMAP_FIXED != 0;
    let moves = kernel.shared.holds(call.arg(0), call.arg(1));
    let in_the_way = fixed && kernel.shared.holds(call.arg(4), call.arg(2));
    if !moves && !in_the_way {
        return None;
    }
    let wish = match Resizing::of(call) {
        Ok(wish) => wish,
        Err(error) => return Some(error),
    };
    let whole = kernel
        .shared
        .first_in(wish.start, wish.end().max(wish.start.saturating_add(1)));
    let inside = whole.is_none_or(|it| it.start <= wish.start && wish.end() <= it.end());
    let second = wish.old == 0 || low32(call.arg(3)) & MREMAP_DONTUNMAP != 0;
    if moves && (!inside || second) {
        return Some(refuse_with(kernel, Note::UnsupportedMmap, REMAP));
    }
    if let Some(target) = wish.target {
        unmap(kernel, target, wish.new);
    }
    // One that was only in the way is gone, and the rest is the host's to do.
    let whole = whole.filter(|_| moves)?;
    Some(resize(kernel, call, wish, &whole))
}

/// The program does without this range.
fn unmap(kernel: &mut Kernel, start: u64, len: u64) {
    files::before_unmap(kernel, start, len);
    kernel.rewriter.give_up(start, len);
    // SAFETY: the caller has seen to it that it is not the agent's memory.
    let _ = unsafe { sys::munmap(start, len) };
    files::after_unmap(kernel, start, len);
}

fn resize(kernel: &mut Kernel, call: &Call, mut wish: Resizing, whole: &Mapping) -> i64 {
    if wish.new < wish.old {
        unmap(kernel, wish.start + wish.new, wish.old - wish.new);
        wish.old = wish.new;
    }
    if wish.new == wish.old && wish.target.is_none() {
        return wish.start.cast_signed();
    }
    let mut part = whole.part(wish.start, wish.end());
    if part.backing == Backing::Copy {
        if !grows_into_another(kernel, &part, wish.new) {
            return resize_copy(kernel, call, wish, &part);
        }
        // Two copies of one part of a file would not show the same.
        files::adopt_copies(kernel);
        let adopted = kernel.shared.first_in(wish.start, wish.end());
        match adopted.filter(|it| it.backing != Backing::Copy) {
            Some(adopted) => part = adopted.part(wish.start, wish.end()),
            None => return sys::error(ENOMEM),
        }
    }
    resize_view(kernel, wish, &part)
}

/// Would the mapping, when it has grown, show a part of its file that another mapping shows?
fn grows_into_another(kernel: &Kernel, part: &Mapping, new: u64) -> bool {
    let (from, to) = (part.offset + part.len, part.offset.saturating_add(new));
    let mut live = kernel.shared.live().iter();
    live.any(|it| it.is_of(&part.facts) && it.offset < to && from < it.offset + it.len)
}

/// A private copy: the host does it.
fn resize_copy(kernel: &mut Kernel, call: &Call, wish: Resizing, part: &Mapping) -> i64 {
    let mut args = call.raw;
    (args[1], args[2]) = (wish.old, wish.new);
    let result = local(call.nr, args);
    if let Ok(start) = sys::check(result) {
        replace(kernel, part, start, wish.new);
    }
    result
}

/// The part is another mapping from here on.
fn replace(kernel: &mut Kernel, part: &Mapping, start: u64, len: u64) {
    kernel.shared.cut(part.start, part.end());
    let moved = Mapping {
        start,
        len,
        ..*part
    };
    kernel.shared.add(moved);
}

/// A mapping of the slice.
fn resize_view(kernel: &mut Kernel, wish: Resizing, part: &Mapping) -> i64 {
    let Backing::Arena { at, piece } = part.backing else {
        return sys::error(ENOMEM);
    };
    turns::with_books(kernel, |kernel, books| {
        let room = books
            .pieces
            .at(piece)
            .map_or(0, |it| it.start + it.len - at);
        if wish.new > room {
            let hemmed_in = wish.target.is_none() && !wish.may_move;
            if hemmed_in && !sys::is_unmapped(wish.end(), wish.new - wish.old) {
                return sys::error(ENOMEM);
            }
            return refuse_with(kernel, Note::UnsupportedMmap, REMAP);
        }
        // The part that is left of the old one, and the new one.
        if !kernel.shared.has_room(2) {
            return sys::error(ENOMEM);
        }
        if wish.target.is_none() && extend(kernel, wish, part.prot, at) {
            replace(kernel, part, wish.start, wish.new);
            return wish.start.cast_signed();
        }
        if !wish.may_move {
            return sys::error(ENOMEM);
        }
        let elsewhere = Wish {
            address: wish.target.unwrap_or(0),
            len: wish.new,
            prot: part.prot,
            flags: wish.target.map_or(0, |_| MAP_FIXED),
        };
        let result = arena::place(kernel, &elsewhere, at);
        if let Ok(start) = sys::check(result) {
            // SAFETY: the program's own range, which it has asked to be moved.
            let _ = unsafe { sys::munmap(wish.start, wish.old) };
            replace(kernel, part, start, wish.new);
        }
        result
    })
}

/// Maps what is behind the range to it, if nothing is there.
fn extend(kernel: &Kernel, wish: Resizing, prot: u32, at: u64) -> bool {
    let more = Wish {
        address: wish.end(),
        len: wish.new - wish.old,
        prot,
        flags: MAP_FIXED_NOREPLACE,
    };
    sys::check(arena::place(kernel, &more, at + wish.old)).is_ok()
}

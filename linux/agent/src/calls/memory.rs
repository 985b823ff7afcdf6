//! The program's address space.
//!
//! Every replica maps for itself; the kernel places alike where mappings are alike, and the result
//! joins the signature, so a difference is found at once. The agent's own window is out of reach.
//!
//! Shared mappings are the matter of [`super::shared`].

use linux_raw_sys::errno::{EINVAL, ENOMEM};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MAP_SHARED, MAP_TYPE,
    MREMAP_DONTUNMAP, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use rcoe_linux_abi::Note;

use super::Call;
use super::shared::{arena, files, resize};
use crate::convert;
use crate::guest;
use crate::kernel::Kernel;
use crate::loader::{page_down, page_up};
use crate::reintegration::newcomer;
use crate::sys;

/// The heap that `brk` moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brk {
    start: u64,
    end: u64,
}

impl Brk {
    /// An empty heap from `start` on.
    pub(crate) const fn new(start: u64) -> Self {
        Self { start, end: start }
    }
}

/// `brk`: moves the end of the heap; returns the new end, or the old one if that is impossible.
pub(super) fn brk(kernel: &mut Kernel, call: &Call) -> i64 {
    let wanted = call.arg(0);
    let heap = &mut kernel.brk;
    let (old, new) = (page_up(heap.end), page_up(wanted));
    if wanted >= heap.start && move_end(old, new) {
        heap.end = wanted;
        kernel.withheld.forget(old.min(new), old.abs_diff(new));
    }
    heap.end.cast_signed()
}

fn move_end(old: u64, new: u64) -> bool {
    /// The heap stays below where libraries are mapped.
    const LIMIT: u64 = 0x7fff_0000_0000;
    if new > LIMIT {
        return false;
    }
    if new > old {
        let prot = PROT_READ | PROT_WRITE;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping; it replaces nothing.
        return unsafe { sys::mmap(old, new - old, prot, flags, -1, 0) } == Ok(old);
    }
    // SAFETY: the program gives up this part of its own heap.
    new == old || unsafe { sys::munmap(new, old - new) }.is_ok()
}

/// `mmap` in all forms but shared writable files.
pub(super) fn mmap(kernel: &mut Kernel, call: &Call) -> i64 {
    let (addr, len, prot) = (call.arg(0), call.arg(1), call.arg(2));
    let flags = convert::low32(call.arg(3));
    let mut call = *call;
    if guest::is_agent(addr, len) {
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            return agent_memory(kernel, addr);
        }
        // A mere wish, or a length that fits nowhere.
        call.raw[0] = 0;
    }
    let replaces = flags & MAP_FIXED != 0;
    if replaces {
        files::before_unmap(kernel, addr, len);
    }
    let result = map(kernel, &call, flags);
    if flags & MAP_ANONYMOUS == 0 {
        // The program may close the descriptor next.
        newcomer::wait_for(kernel);
    }
    if let Ok(start) = sys::check(result) {
        kernel.withheld.forget(start, len);
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            kernel.rewriter.forget_code(start, page_up(len));
        }
        if is_fixed_code(prot) {
            adopt_code(kernel, start, page_up(len));
        }
    }
    result
}

/// The mapping itself.
fn map(kernel: &mut Kernel, call: &Call, flags: u32) -> i64 {
    let file = flags & MAP_ANONYMOUS == 0;
    if flags & MAP_FIXED != 0 {
        files::after_unmap(kernel, call.arg(0), call.arg(1));
    }
    if flags & MAP_TYPE != MAP_PRIVATE {
        if !file {
            return arena::map_anonymous(kernel, call);
        }
        if let Some(result) = files::map(kernel, call) {
            return result;
        }
    }
    local(call.nr, call.raw)
}

/// Code was mapped: its untrappable instructions are rewritten, its call sites may be.
pub(crate) fn adopt_code(kernel: &mut Kernel, start: u64, len: u64) {
    kernel.rewriter.add_code(start, len);
    crate::instructions::rewrite(kernel, start, len);
}

/// `munmap`.
pub(super) fn munmap(kernel: &mut Kernel, call: &Call) -> i64 {
    let (addr, len) = (call.arg(0), call.arg(1));
    if guest::is_agent(addr, len) {
        return agent_memory(kernel, addr);
    }
    files::before_unmap(kernel, addr, len);
    let result = local(call.nr, call.raw);
    if result == 0 {
        kernel.rewriter.forget_code(addr, page_up(len));
        kernel.withheld.forget(addr, len);
        files::after_unmap(kernel, addr, len);
    }
    result
}

/// `mprotect` and `pkey_mprotect`.
pub(super) fn mprotect(kernel: &mut Kernel, call: &Call) -> i64 {
    let (addr, len, prot) = (call.arg(0), call.arg(1), call.arg(2));
    if guest::is_agent(addr, len) {
        return agent_memory(kernel, addr);
    }
    let result = local(call.nr, call.raw);
    if result == 0 {
        kernel
            .shared
            .protect(page_down(addr), len, convert::low32(prot));
    }
    if result == 0 && is_fixed_code(prot) {
        adopt_code(kernel, page_down(addr), page_up(len));
    } else if result == 0 {
        kernel.rewriter.forget_code(page_down(addr), page_up(len));
    }
    result
}

/// Executable and not writable: code that is generated in place may change at any time, so its
/// sites stay as they are.
fn is_fixed_code(prot: u64) -> bool {
    prot & u64::from(PROT_EXEC) != 0 && prot & u64::from(PROT_WRITE) == 0
}

/// `mremap`.
pub(super) fn mremap(kernel: &mut Kernel, call: &Call) -> i64 {
    const MREMAP_FIXED: u64 = 2;
    let (addr, old_len, new_len, flags, target) = (
        call.arg(0),
        call.arg(1),
        call.arg(2),
        call.arg(3),
        call.arg(4),
    );
    let onto_agent = flags & MREMAP_FIXED != 0 && guest::is_agent(target, new_len);
    if guest::is_agent(addr, old_len.max(1)) || onto_agent {
        return agent_memory(kernel, addr);
    }
    let shared = resize::remap(kernel, call);
    let result = shared.unwrap_or_else(|| local(call.nr, call.raw));
    if let Ok(start) = sys::check(result) {
        let stays = old_len == 0 || flags & u64::from(MREMAP_DONTUNMAP) != 0;
        let (old, new) = ((addr, old_len), (start, new_len));
        kernel.withheld.moved(old, new, stays);
        if shared.is_none() {
            kernel.rewriter.forget_code(addr, page_up(old_len));
        }
    }
    result
}

/// `madvise`, `mlock` and others that name a range.
pub(super) fn on_range(kernel: &mut Kernel, call: &Call) -> i64 {
    if guest::is_agent(call.arg(0), call.arg(1)) {
        return agent_memory(kernel, call.arg(0));
    }
    let result = local(call.nr, call.raw);
    // Where there is a hole in the range, the rest of it follows the advice.
    let followed = result == 0 || result == sys::error(ENOMEM);
    if followed && call.what.call.name == "madvise" {
        let advice = convert::low32(call.arg(2));
        kernel.withheld.advised(call.arg(0), call.arg(1), advice);
    }
    result
}

/// `mincore`: what is resident differs between replicas, so all of it is said to be.
pub(super) fn mincore(call: &Call) -> i64 {
    let pages = page_up(call.arg(1)) / 4096;
    for i in 0..pages {
        if guest::write(call.arg(2).wrapping_add(i), &1_u8).is_err() {
            return guest::Fault::RESULT;
        }
    }
    0
}

/// `msync`: what the program has changed in shared mappings of files goes out.
pub(super) fn msync(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(0).is_multiple_of(4096) {
        files::flush(kernel, call.arg(0), call.arg(1))
    } else {
        sys::error(EINVAL)
    }
}

/// The agent's memory is not the program's.
fn agent_memory(kernel: &Kernel, address: u64) -> i64 {
    kernel.note(Note::AgentMemory, address >> 32);
    sys::error(ENOMEM)
}

/// The same call on this replica's own memory.
pub(super) fn local(nr: u64, args: [u64; 6]) -> i64 {
    // SAFETY: the program's own call, which concerns only its own memory and attributes; ranges
    // that touch the agent's were refused by the caller.
    unsafe { rcoe_linux_sys::syscall6(nr, args) }
}

const _: () = assert!(MAP_SHARED != MAP_PRIVATE);

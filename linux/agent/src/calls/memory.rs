//! The program's address space.
//!
//! Every replica maps for itself; the kernel places alike where mappings are alike, and the result
//! joins the signature, so a difference is found at once. The agent's own window is out of reach.
//!
//! Shared mappings are the matter of [`crate::calls::shared`].

use linux_raw_sys::errno::{EACCES, EBADF, EBUSY, EINVAL, ENOMEM, EOPNOTSUPP};
use linux_raw_sys::general::{
    MADV_DONTNEED, MADV_FREE, MADV_HWPOISON, MADV_SOFT_OFFLINE, MAP_32BIT, MAP_ABOVE4G,
    MAP_ANONYMOUS, MAP_DENYWRITE, MAP_EXECUTABLE, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN,
    MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED,
    MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, MAP_UNINITIALIZED, MREMAP_DONTUNMAP, MS_ASYNC,
    MS_INVALIDATE, MS_SYNC, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use rcoe_linux_abi::{Note, PAGE};

pub(super) mod locking;

use crate::arch::known::{File, Part};
use crate::arch::tsc;
use crate::calls::shared::{arena, files, resize};
use crate::calls::{Call, limits};
use crate::convert;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::memory::loader::{Code, page_down, page_up};
use crate::memory::space::{Kind, space};
use crate::protocol::transfer;
use crate::recover::reintegration::newcomer;
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
    let more = new.saturating_sub(old) / 4096;
    let allowed = more == 0 || kernel.limits.allow(Kind::Data, more);
    if wanted >= heap.start && allowed && move_end(old, new) {
        heap.end = wanted;
        if new > old {
            space().set(old, new - old, Kind::Data);
        } else {
            space().remove(new, old - new);
        }
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
    let file = match mapped_file(kernel, call, flags) {
        Ok(file) => file,
        Err(error) => return error,
    };
    let mut call = readable_code(call);
    if guest::meets_reserved(addr, len) {
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            return agent_memory(kernel, addr);
        }
        // A mere wish, or a length that fits nowhere.
        call.raw[0] = 0;
    }
    let replaces = flags & MAP_FIXED != 0;
    if replaces && kernel.rewriter.owns(addr, len) {
        return agent_memory(kernel, addr);
    }
    let kind = kind_of(prot, flags);
    let replaced = if replaces {
        space().mapped(addr, len)
    } else {
        0
    };
    let more = (page_up(len) / 4096).saturating_sub(replaced);
    if more > 0 && !kernel.limits.allow(kind, more) {
        return refusal(&call, flags).unwrap_or(limits::TOO_MUCH);
    }
    if replaces {
        files::before_unmap(kernel, addr, len);
        kernel.rewriter.give_up(addr, page_up(len));
    }
    tsc::before_mapping(kernel, prot);
    let result = map(kernel, &call, flags);
    if flags & MAP_ANONYMOUS == 0 {
        // The program may close the descriptor next.
        newcomer::wait_for(kernel);
    }
    if let Ok(start) = sys::check(result) {
        kernel.withheld.forget(start, len);
        let is_common = kind == Kind::Shared && kernel.shared.holds(start, len);
        space().set(start, len, if is_common { Kind::Common } else { kind });
        if is_fixed_code(prot) && kind == Kind::Shared {
            tsc::distrust(kernel);
        } else if is_fixed_code(prot) {
            let len = page_up(len);
            let part = file.part(call.arg(5), len);
            adopt_code(kernel, &Code::new(start, len, part));
        }
    }
    result
}

/// What the kernel looks at before all else. Whether a descriptor is open, and which file's it is,
/// is the primary's word: a replica that comes later would find what the program has opened since.
fn mapped_file(kernel: &mut Kernel, call: &Call, flags: u32) -> Result<File, i64> {
    if !call.arg(5).is_multiple_of(PAGE) {
        return Err(sys::error(EINVAL));
    }
    if let Some(errno) = is_not_valid(flags) {
        return Err(sys::error(errno));
    }
    if flags & MAP_ANONYMOUS != 0 {
        return Ok(File::FLEETING);
    }
    let fd = convert::low32(call.arg(4)).cast_signed();
    let code = is_fixed_code(call.arg(2)) && flags & MAP_TYPE == MAP_PRIVATE;
    let file = transfer::agree(kernel, || {
        let file = match code {
            true => File::of(fd),
            false if sys::is_open(fd) => File::FLEETING,
            false => File::CLOSED,
        };
        file.word()
    });
    match File::from_word(file) {
        File::CLOSED => Err(sys::error(EBADF)),
        file => Ok(file),
    }
}

/// What is wrong with the kind of a mapping, or with flags that it asks to have looked at: it has a
/// file then, and none of those that few files have.
const fn is_not_valid(flags: u32) -> Option<u32> {
    /// Of 2 MiB and of 1 GiB, which mappings may ask for.
    const HUGE_SIZES: u32 = (21 << 26) | (30 << 26);
    const KNOWN: u32 = MAP_TYPE
        | MAP_FIXED
        | MAP_ANONYMOUS
        | MAP_DENYWRITE
        | MAP_EXECUTABLE
        | MAP_GROWSDOWN
        | MAP_LOCKED
        | MAP_NORESERVE
        | MAP_POPULATE
        | MAP_NONBLOCK
        | MAP_STACK
        | MAP_HUGETLB
        | MAP_32BIT
        | MAP_ABOVE4G
        | MAP_UNINITIALIZED
        | HUGE_SIZES;
    match flags & MAP_TYPE {
        MAP_SHARED_VALIDATE if flags & MAP_ANONYMOUS != 0 => Some(EINVAL),
        MAP_SHARED_VALIDATE if flags & !KNOWN != 0 => Some(EOPNOTSUPP),
        MAP_SHARED | MAP_PRIVATE | MAP_SHARED_VALIDATE => None,
        // Memory that the host may drop would not be dropped alike.
        _ => Some(EINVAL),
    }
}

/// Why the host would refuse a mapping that is too much for the program's limits: the kernel asks
/// for these last. It is made elsewhere, where it replaces nothing, and given back at once.
fn refusal(call: &Call, flags: u32) -> Option<i64> {
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if fixed && !call.arg(0).is_multiple_of(PAGE) {
        return Some(sys::error(EINVAL));
    }
    let mut args = call.raw;
    if flags & MAP_FIXED != 0 {
        args[0] = 0;
    }
    args[3] = (flags & !(MAP_FIXED | MAP_POPULATE | MAP_LOCKED)).into();
    let result = local(call.nr, args);
    match sys::check(result) {
        Ok(start) => {
            // SAFETY: it was mapped just now, and nobody knows of it.
            let gone = unsafe { sys::munmap(start, page_up(call.arg(1))) };
            gone.expect("what was mapped can be unmapped");
            None
        }
        Err(_) => Some(result),
    }
}

/// What the kernel counts such a mapping as.
fn kind_of(prot: u64, flags: u32) -> Kind {
    if flags & MAP_TYPE != MAP_PRIVATE {
        Kind::Shared
    } else if flags & MAP_GROWSDOWN != 0 {
        Kind::Stack
    } else {
        Kind::private(prot & u64::from(PROT_WRITE) != 0)
    }
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

/// Code was mapped: its untrappable instructions are rewritten, its call sites may be. Never code
/// that is shared: the file would change.
pub(crate) fn adopt_code(kernel: &mut Kernel, code: &Code) {
    tsc::add_code(kernel, code);
    kernel.rewriter.add_code(code.start, code.len);
    crate::arch::instructions::rewrite(kernel, code);
}

/// `munmap`.
pub(super) fn munmap(kernel: &mut Kernel, call: &Call) -> i64 {
    let (addr, len) = (call.arg(0), call.arg(1));
    if is_agents(kernel, addr, len) {
        return agent_memory(kernel, addr);
    }
    files::before_unmap(kernel, addr, len);
    kernel.rewriter.give_up(addr, page_up(len));
    let result = local(call.nr, call.raw);
    if result == 0 {
        kernel.withheld.forget(addr, len);
        space().remove(addr, len);
        files::after_unmap(kernel, addr, len);
    }
    result
}

/// `mprotect` and `pkey_mprotect`.
pub(super) fn mprotect(kernel: &mut Kernel, call: &Call) -> i64 {
    let call = readable_code(call);
    let (addr, len, prot) = (call.arg(0), call.arg(1), call.arg(2));
    if is_agents(kernel, addr, len) {
        return agent_memory(kernel, addr);
    }
    let writable = prot & u64::from(PROT_WRITE) != 0;
    if writable
        && addr.is_multiple_of(PAGE)
        && let Some(end) = kernel.shared.first_read_only(addr, len)
    {
        return mprotect_before(kernel, &call, end);
    }
    if writable
        && addr.is_multiple_of(PAGE)
        && !kernel.limits.allow_writing(space().growing_data(addr, len))
    {
        return limits::TOO_MUCH;
    }
    tsc::before_mapping(kernel, prot);
    kernel.rewriter.give_up(page_down(addr), page_up(len));
    let result = local(call.nr, call.raw);
    // Where there is a hole in the range, what comes before it has changed.
    if result == 0 || result == sys::error(ENOMEM) {
        space().protect(addr, len, writable);
    }
    if result == 0 {
        kernel
            .shared
            .protect(page_down(addr), len, convert::low32(prot));
    }
    if result == 0 && is_fixed_code(prot) && space().has_shared(addr, len) {
        tsc::distrust(kernel);
    } else if result == 0 && is_fixed_code(prot) {
        let (start, len, part) = (page_down(addr), page_up(len), Part::FLEETING);
        adopt_code(kernel, &Code::new(start, len, part));
    }
    result
}

/// `mprotect` that comes to a mapping which cannot be made writable: as the kernel, it changes what
/// is before that.
fn mprotect_before(kernel: &mut Kernel, call: &Call, end: u64) -> i64 {
    let mut before = *call;
    before.raw[1] = end - call.arg(0);
    let result = match before.raw[1] {
        0 => 0,
        _ => mprotect(kernel, &before),
    };
    if result == 0 {
        sys::error(EACCES)
    } else {
        result
    }
}

/// The call with code readable that the program wants to execute only: the agent looks through it,
/// compares and copies it, and where the processor has protection keys the kernel would refuse.
fn readable_code(call: &Call) -> Call {
    let mut call = *call;
    if call.arg(2) == u64::from(PROT_EXEC) {
        call.raw[2] |= u64::from(PROT_READ);
    }
    call
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
    let fixed = flags & MREMAP_FIXED != 0;
    let meets = |start, len| guest::meets_reserved(start, len) || kernel.rewriter.owns(start, len);
    if guest::meets_reserved(addr, old_len.max(new_len).max(1))
        || kernel.rewriter.owns(addr, old_len)
        || fixed && meets(target, new_len)
    {
        return agent_memory(kernel, addr);
    }
    let stays = old_len == 0 || flags & u64::from(MREMAP_DONTUNMAP) != 0;
    let kept = if stays { 0 } else { page_up(old_len) };
    let more = page_up(new_len).saturating_sub(kept) / 4096;
    if let Some(kind) = space().kind_at(addr)
        && more > 0
        && can_be_moved(call)
        && !kernel.limits.allow(kind, more)
    {
        return limits::TOO_MUCH;
    }
    tsc::before_change(kernel, addr, old_len);
    kernel.rewriter.give_up(addr, page_up(old_len));
    if fixed {
        kernel.rewriter.give_up(target, page_up(new_len));
    }
    let shared = resize::remap(kernel, call);
    let result = shared.unwrap_or_else(|| local(call.nr, call.raw));
    if let Ok(start) = sys::check(result) {
        let (old, new) = ((addr, old_len), (start, new_len));
        kernel.withheld.moved(old, new, stays);
        space().moved(old, new, stays);
        if shared.is_none() {
            tsc::moved(kernel, old, new, stays);
        }
    }
    result
}

/// Are the arguments of an `mremap` such that the kernel comes to ask for limits?
fn can_be_moved(call: &Call) -> bool {
    const MAYMOVE: u64 = 1;
    const KNOWN: u64 = 7;
    let (old_len, new_len, flags) = (call.arg(1), call.arg(2), call.arg(3));
    let elsewhere = flags & !MAYMOVE != 0;
    let keeps = flags & u64::from(MREMAP_DONTUNMAP) != 0;
    call.arg(0).is_multiple_of(PAGE)
        && flags & !KNOWN == 0
        && page_up(new_len) != 0
        && (!elsewhere || flags & MAYMOVE != 0)
        && (!keeps || old_len == new_len)
}

/// `madvise`.
pub(super) fn madvise(kernel: &mut Kernel, call: &Call) -> i64 {
    if is_agents(kernel, call.arg(0), call.arg(1)) {
        return agent_memory(kernel, call.arg(0));
    }
    let advice = convert::low32(call.arg(2));
    if is_refused(advice) {
        return sys::error(EINVAL);
    }
    if is_let_go(advice) {
        tsc::before_change(kernel, call.arg(0), call.arg(1));
        kernel.rewriter.give_up(call.arg(0), page_up(call.arg(1)));
    }
    let result = local(call.nr, call.raw);
    // Where there is a hole in the range, the rest of it follows the advice.
    let followed = result == 0 || result == sys::error(ENOMEM);
    if followed {
        kernel.withheld.advised(call.arg(0), call.arg(1), advice);
    }
    if followed && advice == MADV_FREE {
        // The host would take the pages away at a moment of its own in each replica.
        let now = [call.arg(0), call.arg(1), MADV_DONTNEED.into(), 0, 0, 0];
        let result = local(call.nr, now);
        tsc::restored(kernel, call.arg(0), call.arg(1));
        return result;
    }
    if followed && is_let_go(advice) {
        tsc::restored(kernel, call.arg(0), call.arg(1));
    }
    result
}

/// Advice after which a private mapping of a file is read anew.
const fn is_let_go(advice: u32) -> bool {
    const MADV_DONTNEED_LOCKED: u32 = 24;
    matches!(advice, MADV_DONTNEED | MADV_FREE | MADV_DONTNEED_LOCKED)
}

/// Advice as of a kernel that does not know it: guards, which nobody can read and which the host
/// does not list, so that replicas could not be compared; and damage to the machine's memory.
const fn is_refused(advice: u32) -> bool {
    const MADV_GUARD_INSTALL: u32 = 102;
    const MADV_GUARD_REMOVE: u32 = 103;
    matches!(
        advice,
        MADV_GUARD_INSTALL | MADV_GUARD_REMOVE | MADV_HWPOISON | MADV_SOFT_OFFLINE
    )
}

/// `personality`: what the process is run as.
pub(super) fn personality(kernel: &mut Kernel, call: &Call) -> i64 {
    const READ_IMPLIES_EXEC: u32 = 0x040_0000;
    const ASK: u32 = u32::MAX;
    let persona = convert::low32(call.arg(0));
    if persona != ASK && persona & READ_IMPLIES_EXEC != 0 {
        tsc::distrust(kernel);
    }
    local(call.nr, call.raw)
}

/// `msync`: what the program has changed in shared mappings of files goes out.
pub(super) fn msync(kernel: &mut Kernel, call: &Call) -> i64 {
    let (start, flags) = (call.arg(0), convert::low32(call.arg(2)));
    let both = MS_ASYNC | MS_SYNC;
    let known = both | MS_INVALIDATE;
    if !start.is_multiple_of(PAGE) || flags & !known != 0 || flags & both == both {
        return sys::error(EINVAL);
    }
    let Some(end) = locking::end_of(start, call.arg(1)) else {
        return sys::error(ENOMEM);
    };
    if end == start {
        return 0;
    }
    if flags & MS_INVALIDATE != 0 && locking::is_locked(kernel, start, end - start) {
        return sys::error(EBUSY);
    }
    let flushed = files::flush(kernel, start, end - start);
    if flushed != 0 {
        return flushed;
    }
    if guest::is_agent(start, end - start) {
        return sys::error(ENOMEM);
    }
    // Of a copy nothing goes out that way; but holes are told.
    local(call.nr, [start, end - start, MS_ASYNC.into(), 0, 0, 0])
}

/// Is any of this the agent's: its window, or stubs near the program's code?
fn is_agents(kernel: &Kernel, start: u64, len: u64) -> bool {
    guest::is_agent(start, len) || kernel.rewriter.owns(start, len)
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

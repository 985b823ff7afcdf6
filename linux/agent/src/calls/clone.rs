//! The life of a thread: `clone` and `clone3` with shared memory, `exit`, and what the kernel keeps
//! for each.
//!
//! A thread ends as on Linux: the futexes on its robust list are marked, the word it was told to
//! clear is cleared, and whoever joins it is woken. The program ends with its last thread.
//!
//! Not covered: children, that is `clone` without the three flags that make a thread.

use linux_raw_sys::errno::{EAGAIN, EINVAL, EPERM, ESRCH};
use linux_raw_sys::general::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_DETACHED, CLONE_FILES, CLONE_FS,
    CLONE_PARENT_SETTID, CLONE_SETTLS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM,
    FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS,
};
use rcoe_linux_abi::Ending;
use rcoe_linux_syscalls::Special;

use crate::arch::context;
use crate::arch::entry::TrapFrame;
use crate::calls::emulated::exit_status;
use crate::calls::targets::{self, Own};
use crate::calls::{Call, PARKED, futex, io, limits, processes};
use crate::convert::{low32, size};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sched::schedule;
use crate::sched::threads::LEADER;
use crate::sys;

/// What makes a thread rather than a process.
const THREAD: u32 = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
/// What else a thread may be made with; without the first two it would part with its siblings'
/// descriptors and directories, which the replicas share.
const SHARED: u32 = CLONE_FILES | CLONE_FS;
const OPTIONS: u32 = CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_DETACHED;
/// End of the address space that programs have.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;

/// What a new thread is to be.
struct Request {
    flags: u32,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

/// Makes a thread; `None` if the call is not about one.
pub(super) fn thread(kernel: &mut Kernel, frame: &TrapFrame, call: &Call) -> Option<i64> {
    let request = match call.what.special {
        Special::Clone => Request {
            flags: low32(call.arg(0)),
            stack: call.arg(1),
            parent_tid: call.arg(2),
            child_tid: call.arg(3),
            tls: call.arg(4),
        },
        Special::Clone3 => match read_request(call) {
            Ok(request) => request?,
            Err(Fault) => return Some(Fault::RESULT),
        },
        _ => return None,
    };
    let flags = request.flags;
    if flags & THREAD != THREAD || flags & SHARED != SHARED {
        return None;
    }
    if flags & !(THREAD | SHARED | OPTIONS) != 0 {
        return Some(sys::error(EINVAL));
    }
    Some(make(kernel, frame, call, &request))
}

/// The structure of `clone3`; `None` if it asks for what only processes have.
fn read_request(call: &Call) -> Result<Option<Request>, Fault> {
    /// Words of the first version: flags, pidfd, child_tid, parent_tid, exit_signal, stack,
    /// stack_size, tls.
    const WORDS: usize = 8;
    if call.arg(1) < 8 * WORDS as u64 {
        return Ok(None);
    }
    let words = guest::read::<[u64; WORDS]>(call.arg(0))?;
    let [
        flags,
        _,
        child_tid,
        parent_tid,
        exit_signal,
        stack,
        stack_size,
        tls,
    ] = words;
    let later = (8 * WORDS as u64..call.arg(1).min(4096)).step_by(8);
    let mut plain = flags >> 32 == 0 && exit_signal == 0;
    for offset in later {
        plain &= guest::read::<u64>(call.arg(0) + offset)? == 0;
    }
    Ok(plain.then_some(Request {
        flags: low32(flags),
        stack: stack.wrapping_add(stack_size),
        parent_tid,
        child_tid,
        tls,
    }))
}

fn make(kernel: &mut Kernel, frame: &TrapFrame, call: &Call, request: &Request) -> i64 {
    let wants = |flag| request.flags & flag != 0;
    if wants(CLONE_SETTLS) && request.tls >= TASK_SIZE {
        return sys::error(EPERM);
    }
    if let Some(refused) = limits::refuse_task(kernel) {
        return refused;
    }
    let own = Own::inherit(kernel.signals.own.mask);
    let name = match kernel.threads.current_slot() {
        LEADER => sys::name(),
        _ => kernel.threads.current().name,
    };
    let Some(thread) = kernel.threads.spawn() else {
        return sys::error(EAGAIN);
    };
    thread.frame = *frame;
    thread.frame.cpu.regs.rax = 0;
    if request.stack != 0 {
        thread.frame.cpu.rsp = request.stack;
    }
    thread.bases = context::bases();
    if wants(CLONE_SETTLS) {
        thread.bases[0] = request.tls;
    }
    thread.full = true;
    thread.call = (call.nr, call.raw);
    thread.signals = own;
    thread.name = name;
    if wants(CLONE_CHILD_CLEARTID) {
        thread.clear_tid = request.child_tid;
    }
    let tid = thread.tid;
    context::inherit(kernel.threads.newest());
    schedule::tell_held_up(kernel);
    limits::publish_tasks(kernel);
    // As on Linux, an address that cannot be written is no error.
    if wants(CLONE_CHILD_SETTID) {
        let _ = guest::write(request.child_tid, &tid);
    }
    if wants(CLONE_PARENT_SETTID) {
        let _ = guest::write(request.parent_tid, &tid);
    }
    i64::from(tid)
}

/// `exit`: ends one thread.
pub(super) fn exit(kernel: &mut Kernel, call: &Call) -> i64 {
    let status = exit_status(call);
    if !kernel.threads.many() {
        let leaders = kernel.threads.leader_status.map(Ending::Exit);
        kernel.end(leaders.unwrap_or(status));
    }
    if kernel.threads.current_slot() == LEADER
        && let Ending::Exit(status) = status
    {
        kernel.threads.leader_status = Some(status);
    }
    give_up_robust(kernel, kernel.threads.current_slot());
    let word = kernel.threads.current().clear_tid;
    if word != 0 && guest::write(word, &0_u32).is_ok() {
        kernel.threads.wake_futex(word, 1, u32::MAX);
    }
    kernel.signals.forget_thread(kernel.threads.current_slot());
    kernel.threads.vacate();
    limits::publish_tasks(kernel);
    targets::publish(kernel);
    // A signal that the ended thread would have taken falls to another.
    targets::rouse(kernel);
    PARKED
}

/// The process ends or is replaced: the same for all its threads, if anyone else can mind.
pub(crate) fn give_up_all_robust(kernel: &mut Kernel) {
    if !kernel.turns.is_member() {
        return;
    }
    for slot in 0..kernel.threads.used() {
        if kernel.threads.at(slot).is_live() {
            give_up_robust(kernel, slot);
        }
    }
}

/// Marks the futexes that the thread still holds, in the order of its list.
fn give_up_robust(kernel: &mut Kernel, slot: usize) {
    /// As many as Linux looks at.
    const MOST: usize = 2048;
    let thread = kernel.threads.at(slot);
    let (head, tid) = (thread.robust, thread.tid);
    if head == 0 {
        return;
    }
    let Ok([first, offset, pending]) = guest::read::<[u64; 3]>(head) else {
        return;
    };
    let mut entry = first;
    for _ in 0..MOST {
        // The low bit marks a lock with priority inheritance.
        if entry & !1 == head || entry & !1 == 0 {
            break;
        }
        let next = guest::read::<u64>(entry & !1);
        if entry != pending {
            mark_dead(kernel, tid, entry, offset);
        }
        match next {
            Ok(next) => entry = next,
            Err(Fault) => break,
        }
    }
    if pending & !1 != 0 {
        mark_dead(kernel, tid, pending, offset);
    }
}

/// The owner of this futex is dead: the next one learns it.
fn mark_dead(kernel: &mut Kernel, tid: u32, entry: u64, offset: u64) {
    let address = (entry & !1).wrapping_add(offset);
    let Ok(word) = guest::read::<u32>(address) else {
        return;
    };
    if word & FUTEX_TID_MASK != tid {
        return;
    }
    if entry & 1 != 0 {
        let place = futex::Place::at(kernel, address);
        futex::hand_over(kernel, place, address, FUTEX_OWNER_DIED);
    } else if guest::write(address, &(word & FUTEX_WAITERS | FUTEX_OWNER_DIED)).is_ok()
        && word & FUTEX_WAITERS != 0
    {
        let place = futex::Place::at(kernel, address);
        futex::wake(kernel, place, 1, u32::MAX);
    }
}

/// `set_tid_address`.
pub(super) fn set_tid_address(kernel: &mut Kernel, call: &Call) -> i64 {
    let thread = kernel.threads.current_mut();
    thread.clear_tid = call.arg(0);
    i64::from(thread.tid)
}

/// Bytes of the head of a robust list.
const ROBUST_HEAD: u64 = 24;

/// `set_robust_list`.
pub(super) fn set_robust_list(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(1) != ROBUST_HEAD {
        return sys::error(EINVAL);
    }
    kernel.threads.current_mut().robust = call.arg(0);
    0
}

/// `get_robust_list`.
pub(super) fn get_robust_list(kernel: &mut Kernel, call: &Call) -> i64 {
    let slot = match call.arg(0) {
        0 => Some(kernel.threads.current_slot()),
        tid => kernel.threads.find(low32(tid)),
    };
    let Some(slot) = slot else {
        return io::input(kernel, call);
    };
    let head = kernel.threads.at(slot).robust;
    let written =
        guest::write(call.arg(1), &head).and_then(|()| guest::write(call.arg(2), &ROBUST_HEAD));
    written.map_or(Fault::RESULT, |()| 0)
}

/// Primary: the list of another process; `None` if the host tells it. That of one of the program's
/// is not told where it might be, as what the host knows of that process is the agent's list.
pub(super) fn robust_list_of_other(call: &Call) -> Option<i64> {
    let replica = processes::replica_of(low32(call.arg(0)))?;
    let mut told = [0_u64; 2];
    let [head, len] = told.each_mut().map(|word| core::ptr::from_mut(word) as u64);
    // SAFETY: both are words of the agent's own.
    let result = unsafe { rcoe_linux_sys::syscall3(call.nr, replica.into(), head, len) };
    Some(match result {
        0 => sys::error(ESRCH),
        error => error,
    })
}

const _: () = assert!(size(ROBUST_HEAD) == 3 * size_of::<u64>());

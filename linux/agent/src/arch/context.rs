//! Registers of threads: who has the processor, and what the others left behind.
//!
//! A switch exchanges the frame on the agent's stack, the two segment bases, and the extended
//! state, of which the frame holds nothing. Registers are saved when another thread
//! takes over, not when one begins to wait: mostly it is the same one that goes on.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};

use crate::arch::delivery::{extended_bytes, load_extended, save_extended};
use crate::arch::entry::TrapFrame;
use crate::kernel::Kernel;
use crate::one_thread::OneThread;
use crate::sched::threads::{MAX_THREADS, NOBODY, Thread};
use crate::sys;

/// Where the extended states of threads lie.
const AREAS: u64 = 0x6f30_0000_0000;

/// The area behind those of the threads: what a child starts with.
const FORKING: usize = MAX_THREADS;

static TABLE: OneThread<[Thread; MAX_THREADS]> =
    OneThread::new([const { Thread::VACANT }; MAX_THREADS]);

/// May the program's segment bases be read and written without a system call?
static DIRECT_BASES: AtomicBool = AtomicBool::new(false);
/// Are the areas mapped?
static MAPPED: AtomicBool = AtomicBool::new(false);

/// The table of this replica; asked for once.
pub(crate) fn table() -> &'static mut [Thread; MAX_THREADS] {
    // SAFETY: called once per replica, when its kernel state is made; one kernel thread.
    unsafe { &mut *TABLE.get() }
}

/// The kernel's word (`AT_HWCAP2`) on what programs may do.
pub(crate) fn set_capabilities(hwcap2: u64) {
    const FSGSBASE: u64 = 2;
    DIRECT_BASES.store(hwcap2 & FSGSBASE != 0, Ordering::Relaxed);
}

/// Extended state of a thread. Fresh memory is zero, as the header has to be.
fn area(slot: usize) -> *mut u8 {
    (AREAS + slot as u64 * extended_bytes().next_multiple_of(64)) as *mut u8
}

fn map_areas() {
    if MAPPED.swap(true, Ordering::Relaxed) {
        return;
    }
    let len = area(FORKING + 1) as u64 - AREAS;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    // SAFETY: a place in the agent's own window that nothing else uses.
    let mapped = unsafe { sys::mmap(AREAS, len, PROT_READ | PROT_WRITE, flags, -1, 0) };
    assert_eq!(mapped, Ok(AREAS), "room for the registers of threads");
}

/// A new thread starts with the extended state of the one that makes it.
pub(crate) fn inherit(slot: usize) {
    map_areas();
    // SAFETY: mapped, aligned, of the CPU's size; its header is zero or an earlier image's.
    unsafe { save_extended(area(slot)) };
}

/// Keeps the extended state for a child that is about to be made.
pub(crate) fn keep_for_child() {
    inherit(FORKING);
}

/// A child: loads what was kept for it.
pub(crate) fn load_kept(bases: [u64; 2]) {
    set_bases(bases);
    // SAFETY: saved just before the fork, by this replica's own replica of the parent.
    unsafe { load_extended(area(FORKING)) };
}

/// Gives the processor to the thread whose turn it is.
pub(crate) fn switch(kernel: &mut Kernel, frame: &mut TrapFrame) {
    let threads = &mut kernel.threads;
    let (old, new) = (threads.loaded, threads.current_slot());
    if old == new {
        return;
    }
    if old != NOBODY {
        inherit(old);
        let thread = threads.get(old);
        thread.frame = *frame;
        thread.bases = bases();
        thread.signals = kernel.signals.own;
    }
    let thread = threads.get(new);
    *frame = thread.frame;
    // The site of its call may have been rewritten since it was made.
    frame.cpu.rip = kernel.rewriter.translate(frame.cpu.rip);
    kernel.signals.own = thread.signals;
    set_bases(thread.bases);
    threads.loaded = new;
    // SAFETY: every thread that is not loaded was saved there, by itself or by its maker.
    unsafe { load_extended(area(new)) };
}

/// The bases of fs and gs.
pub(crate) fn bases() -> [u64; 2] {
    if !DIRECT_BASES.load(Ordering::Relaxed) {
        return sys::segment_bases();
    }
    let (fs, gs): (u64, u64);
    // SAFETY: the kernel allows these instructions; they change nothing else.
    unsafe {
        asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack, preserves_flags));
        asm!("rdgsbase {}", out(reg) gs, options(nomem, nostack, preserves_flags));
    }
    [fs, gs]
}

fn set_bases([fs, gs]: [u64; 2]) {
    if DIRECT_BASES.load(Ordering::Relaxed) {
        // SAFETY: as in `bases`; the agent itself uses neither segment.
        unsafe {
            asm!("wrfsbase {}", in(reg) fs, options(nomem, nostack, preserves_flags));
            asm!("wrgsbase {}", in(reg) gs, options(nomem, nostack, preserves_flags));
        }
    } else {
        sys::set_segment_bases([fs, gs]);
    }
}

//! From `exec` to the program's first instruction.
//!
//! The starter maps the shared objects, loads the program, and clones the other replicas: separate
//! memory, one table of file descriptors, so that any of them can take over the outside effects.
//! Then every replica, the starter being replica 0, arms its own traps, meets the others, and
//! enters the program.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use linux_raw_sys::auxvec::{AT_HWCAP2, AT_SYSINFO_EHDR};
use linux_raw_sys::general::{MAP_FIXED_NOREPLACE, MAP_SHARED, PROT_READ, PROT_WRITE};
use rcoe_core::{MAX_REPLICAS, Outbox, Port, Replica, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{
    AGENT_BASE, CONTROL_ADDR, CONTROL_BYTES, Control, LAYOUT_VERSION, OUTBOX_OFFSET, Phase,
    REGION_BYTES, RING_OFFSET, RING_WORDS, Report, region_addr,
};

use crate::entry::{Cpu, TrapFrame, enter_program};
use crate::env::{LinuxEnv, Sibling};
use crate::kernel::{self, Compare, Kernel, kind};
use crate::loader::{self, Image};
use crate::startup::InitialStack;
use crate::{faults, sys};

/// Exit status if the program cannot be loaded; only the supervisor sees it.
const LOAD_FAILED: u8 = 126;
/// Exit status if the supervisor and this agent do not fit; only the supervisor sees it.
const UNFIT: u8 = 125;

/// This replica's number plus one; 0 until the shared objects are mapped.
static OWN_NUMBER: AtomicUsize = AtomicUsize::new(0);

/// This replica's report, once it is mapped.
pub(crate) fn own_report() -> Option<&'static Report> {
    let number = OWN_NUMBER.load(Ordering::Relaxed).checked_sub(1)?;
    Some(report(number))
}

/// The supervisor's object.
pub(crate) fn control() -> &'static Control {
    // SAFETY: mapped at this address before anything else runs; all its fields are atomic.
    unsafe { &*(CONTROL_ADDR as *const Control) }
}

fn report(index: usize) -> &'static Report {
    // SAFETY: replica regions are mapped at these addresses for good; all fields are atomic.
    unsafe { &*(region_addr(index) as *const Report) }
}

fn outbox(index: usize) -> &'static Outbox {
    // SAFETY: as for `report`; all-zero memory is a fresh outbox.
    unsafe { &*((region_addr(index) + OUTBOX_OFFSET) as *const Outbox) }
}

fn port(index: usize) -> Port<'static> {
    let ring = (region_addr(index) + RING_OFFSET) as *const AtomicU64;
    // SAFETY: as for `report`; the ring is that many atomic words.
    let ring = unsafe { core::slice::from_raw_parts(ring, RING_WORDS) };
    Port {
        outbox: outbox(index),
        ring,
    }
}

/// Starts the replicas and the program in them.
///
/// # Safety
/// `initial_stack` must be the stack pointer at the process's entry point, and nothing else may
/// have run in this process.
pub unsafe fn boot(initial_stack: *const u64) -> ! {
    assert_eq!(
        crate::entry::text_range().start,
        AGENT_BASE as u64,
        "the agent is linked at its place"
    );
    // SAFETY: forwarded from the caller.
    let stack = unsafe { InitialStack::new(initial_stack) };
    map_shared(stack.descriptors());
    drop_vdso(&stack);
    crate::threads::context::set_capabilities(stack.aux_value(AT_HWCAP2).unwrap_or(0));
    let count = control().replicas.load(Ordering::Relaxed) as usize;
    assert!(
        (1..=MAX_REPLICAS).contains(&count),
        "between one and eight replicas"
    );
    report(0)
        .phase
        .store(Phase::Loading as u32, Ordering::Relaxed);
    let (image, rsp) = load_program(&stack);
    faults::install_handlers();
    let index = clone_replicas(count);
    start_replica(index, count, &image, rsp)
}

/// Maps control object and replica regions from the descriptors and closes these.
fn map_shared(list: &[u8]) {
    for (position, text) in list.split(|byte| *byte == b',').enumerate() {
        let fd = parse_number(text);
        let (addr, len, prot) = match position.checked_sub(1) {
            None => (CONTROL_ADDR, CONTROL_BYTES, PROT_READ),
            // Writable until the replicas part; each then keeps its own.
            Some(index) => (region_addr(index), REGION_BYTES, PROT_READ | PROT_WRITE),
        };
        let flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
        // SAFETY: an address of the agent's window that nothing uses yet.
        let mapped = unsafe { sys::mmap(addr as u64, len as u64, prot, flags, fd, 0) };
        if mapped != Ok(addr as u64) {
            sys::exit_group(UNFIT);
        }
        sys::close(fd);
    }
    if control().version.load(Ordering::Relaxed) != LAYOUT_VERSION {
        sys::exit_group(UNFIT);
    }
    OWN_NUMBER.store(1, Ordering::Relaxed);
}

fn parse_number(text: &[u8]) -> i32 {
    text.iter()
        .fold(0, |number, digit| number * 10 + i32::from(digit - b'0'))
}

/// Unmaps the vDSO and its data pages, so that no clock is read behind the agent's back.
fn drop_vdso(stack: &InitialStack) {
    /// Room for the data pages before and the code pages behind the ELF header.
    const AROUND: u64 = 16 * 4096;
    if let Some(vdso) = stack.aux_value(AT_SYSINFO_EHDR) {
        // SAFETY: besides the vDSO and its data nothing is mapped there: the agent lies elsewhere
        // and the program is not loaded yet. Unmapping holes is no error.
        let _ = unsafe { sys::munmap(vdso - AROUND, 2 * AROUND) };
    }
}

/// Bytes of the program's path with its terminating NUL, kept for `/proc/self/exe`.
pub(crate) fn exe_path() -> &'static [u8] {
    let control = control();
    path(&control.exe, &control.exe_len)
}

/// The path as `execve` would have got it, with its terminating NUL.
fn execfn() -> &'static [u8] {
    let control = control();
    path(&control.execfn, &control.execfn_len)
}

fn path(words: &'static [AtomicU64], len: &AtomicU32) -> &'static [u8] {
    let len = len.load(Ordering::Relaxed) as usize;
    assert!(len < size_of_val(words), "the path and its NUL fit");
    // SAFETY: the words are written before the first replica starts and never after.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), len + 1) }
}

fn load_program(stack: &InitialStack) -> (Image, u64) {
    match loader::load(exe_path()) {
        Ok(image) => {
            let rsp = stack.build(&image, execfn().as_ptr() as u64);
            name_process(stack);
            (image, rsp)
        }
        Err(errno) => {
            report(0)
                .load_error
                .store(errno.0.cast_unsigned(), Ordering::Relaxed);
            report(0)
                .phase
                .store(Phase::Failed as u32, Ordering::Release);
            sys::exit_group(LOAD_FAILED)
        }
    }
}

/// Makes `/proc/self/comm` and `/proc/self/cmdline` read as the program's.
fn name_process(stack: &InitialStack) {
    let path = exe_path();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let (start, end) = stack.argument_strings();
    sys::set_name(name);
    sys::set_argument_range(start, end);
}

/// Clones replicas 1 to `count - 1`; returns this replica's number.
fn clone_replicas(count: usize) -> usize {
    for index in 1..count {
        if sys::clone_replica() == 0 {
            return index;
        }
    }
    0
}

/// The part every replica does for itself.
fn start_replica(index: usize, count: usize, image: &Image, rsp: u64) -> ! {
    OWN_NUMBER.store(index + 1, Ordering::Relaxed);
    let control = control();
    let own = report(index);
    own.pid.store(sys::getpid(), Ordering::Release);
    sys::die_with_supervisor(control.pid.load(Ordering::Relaxed));
    for other in (0..count).filter(|other| *other != index) {
        // SAFETY: only its owner writes a region from here on.
        unsafe { sys::mprotect(region_addr(other) as u64, REGION_BYTES as u64, PROT_READ) }
            .expect("a mapping of ours");
    }
    let core = control.cores[index].load(Ordering::Relaxed);
    if core != u32::MAX {
        sys::pin(core);
    }
    crate::delivery::measure();
    install_kernel(index, count, image);
    faults::arm();
    own.phase.store(Phase::Running as u32, Ordering::Release);
    first_meeting(image, rsp);
    let frame = TrapFrame {
        xmm: [[0; 2]; 16],
        cpu: Cpu::at(image.entry, rsp),
    };
    enter_program(&frame)
}

fn install_kernel(index: usize, count: usize, image: &Image) {
    let control = control();
    let mut ports = [None; MAX_REPLICAS];
    let mut siblings = [None; MAX_REPLICAS];
    for i in 0..count {
        ports[i] = Some(port(i));
        siblings[i] = Some(Sibling {
            report: report(i),
            outbox: outbox(i),
        });
    }
    let env = LinuxEnv::new(control, report(index), siblings);
    let id = ReplicaId::new(u8::try_from(index).expect("at most eight"));
    let members = ReplicaSet::all(count);
    kernel::install(Kernel {
        replica: Replica::new(id, members, ports, env),
        control,
        report: report(index),
        compare: Compare::from_word(control.compare.load(Ordering::Relaxed)),
        alone: count == 1,
        strict: control.strict.load(Ordering::Relaxed) != 0,
        masks: count > 2 && control.mask.load(Ordering::Relaxed) != 0,
        inherited: 0,
        brk: crate::calls::memory::Brk::new(image.brk_start),
        signals: crate::calls::signals::Signals::new(control),
        threads: crate::threads::Threads::of_replica(control),
        traps: crate::instructions::Traps::new(),
        rewriter: crate::rewrite::Rewriter::new(),
        content: 0,
        segments: crate::calls::segments::Segments::new(),
        buffer: crate::calls::transfer::Buffer::new(),
        last_read: crate::calls::publish::LastRead::default(),
    });
}

/// All replicas are up and lie alike before the program's first instruction.
fn first_meeting(image: &Image, rsp: u64) {
    let kernel = kernel::kernel();
    crate::calls::signals::publish(kernel);
    for range in image.code() {
        crate::calls::memory::adopt_code(kernel, range.start, range.end - range.start);
    }
    for value in [
        image.entry,
        image.phdr,
        image.interpreter_base,
        image.brk_start,
        rsp,
    ] {
        kernel.event(kind::of(0, kind::LAYOUT), value);
    }
    kernel.rendezvous();
}

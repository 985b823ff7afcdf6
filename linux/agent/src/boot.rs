//! From `exec` to the program's first instruction.
//!
//! The starter maps the shared objects, loads the program, and clones the other replicas: separate
//! memory, one table of file descriptors, so that any of them can take over the outside effects.
//! Then every replica, the starter being replica 0, arms its own traps, meets the others, and
//! enters the program.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::auxvec::{AT_HWCAP2, AT_SYSINFO_EHDR};
use rcoe_core::{MAX_REPLICAS, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{AGENT_BOOTSTRAP, AGENT_TEXT, Control, GATE_CLOSED, PAGE, Phase};

use crate::arch::cpuid;
use crate::arch::entry::{Cpu, TrapFrame, enter_program};
use crate::arch::faults;
use crate::arch::rseq;
use crate::arch::vdso::host::{self, Reader};
use crate::calls::acting::Acting;
use crate::calls::processes;
use crate::kernel::{self, Start, kind};
use crate::lifetime::Program;
use crate::memory::loader::{self, Image};
use crate::memory::regions::{self, control, report};
use crate::memory::space::space;
use crate::startup::InitialStack;
use crate::sys;
use crate::sys::Errno;

/// Exit status if the program cannot be loaded; only the supervisor sees it.
const LOAD_FAILED: u8 = 126;

/// Starts the replicas and the program in them.
///
/// # Safety
/// `initial_stack` must be the stack pointer at the process's entry point, and nothing else may
/// have run in this process.
pub unsafe fn boot(initial_stack: *const u64) -> ! {
    assert_eq!(
        crate::arch::entry::text_range().start,
        AGENT_TEXT as u64,
        "the agent is linked at its place"
    );
    // SAFETY: what has mapped this image is executed no more.
    unsafe { sys::munmap(AGENT_BOOTSTRAP as u64, PAGE) }.expect("it was executed just now");
    // SAFETY: forwarded from the caller.
    let stack = unsafe { InitialStack::new(initial_stack) };
    regions::map(stack.descriptors());
    let vdso = stack.aux_value(AT_SYSINFO_EHDR);
    let reader = vdso.map_or(Reader::CALLS, host::adopt);
    crate::arch::context::set_capabilities(stack.aux_value(AT_HWCAP2).unwrap_or(0));
    let count = control(0).replicas.load(Ordering::Relaxed) as usize;
    assert!(
        (1..=MAX_REPLICAS).contains(&count),
        "between one and eight replicas"
    );
    report(0, 0)
        .phase
        .store(Phase::Loading as u32, Ordering::Relaxed);
    if count > 1 {
        rseq::register();
    }
    // While nobody shares the descriptors.
    let acting = Acting::inherited();
    let (image, rsp) = load_program(&stack);
    faults::install_handlers();
    let id = clone_replicas(ReplicaId::new(0), ReplicaSet::all(count)).unwrap_or_else(|errno| {
        crate::fail(&format_args!(
            "the host has no room for {count} processes of this user (error {}): see `ulimit -u`",
            errno.0
        ))
    });
    start_replica(id, count, (&image, rsp), Start { reader, acting })
}

/// The absolute path of the first program, with its terminating NUL.
fn exe_path() -> &'static [u8] {
    let control = control(0);
    path(&control.exe, &control.exe_len)
}

/// The path as `execve` would have got it, with its terminating NUL.
fn execfn() -> &'static [u8] {
    let control = control(0);
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
            space().begin_stacks(stack.top());
            space().add_new_stack();
            name_process(stack);
            processes::save_start(exe_path(), stack.program_aux(&image));
            (image, rsp)
        }
        Err(errno) => {
            report(0, 0)
                .load_error
                .store(errno.0.cast_unsigned(), Ordering::Relaxed);
            report(0, 0)
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
    sys::set_string_ranges(start, end, stack.end_of_environment());
}

/// In the first of these replicas: clones the others; returns this one's number.
///
/// # Errors
/// The host has no room for another process.
pub(crate) fn clone_replicas(first: ReplicaId, all: ReplicaSet) -> Result<ReplicaId, Errno> {
    for id in all.iter().filter(|id| *id != first) {
        if sys::clone_replica()? == 0 {
            return Ok(id);
        }
    }
    Ok(first)
}

/// What every replica does first, in whatever group: says who it is and takes what is its own.
pub(crate) fn become_replica(group: usize, index: usize) {
    regions::set_own(group, index);
    regions::protect(group, index);
    let control = control(group);
    let own = report(group, index);
    let pid = sys::getpid();
    own.will.write(pid);
    sys::set_robust_list(&own.will);
    own.pid.store(pid, Ordering::Release);
    sys::die_with_supervisor(control.supervisor.load(Ordering::Relaxed));
    sys::pin(core(control, index).into_iter());
    sys::prefer_short_turns();
}

/// The CPU of a replica, if it is to have one.
fn core(control: &Control, index: usize) -> Option<u32> {
    let core = control.cores[index].load(Ordering::Relaxed);
    (core != u32::MAX).then_some(core)
}

/// In one that is about to clone the replicas of a group: these begin where they will stay, if the
/// host finds room there. Else each is moved once it runs, which costs as much as the clone.
pub(crate) fn allow_cores(group: usize, all: ReplicaSet) {
    if all.len() == 1 {
        return;
    }
    let control = control(group);
    sys::pin(all.iter().filter_map(|id| core(control, id.index())));
}

/// The part every replica of the first group does for itself.
fn start_replica(id: ReplicaId, count: usize, (image, rsp): (&Image, u64), start: Start) -> ! {
    become_replica(0, id.index());
    let own = report(0, id.index());
    // Answers are kept: some are asked for several times, and by the program again.
    crate::arch::delivery::measure(cpuid::answer);
    crate::arch::digest::measure();
    crate::coupling::state::measure(cpuid::answer);
    crate::arch::saved::measure(cpuid::answer);
    install_kernel(id, count, image, start);
    crate::sched::turns::take_slice(kernel::kernel());
    kernel::kernel().limits.hand_to_host();
    faults::arm();
    crate::protocol::meeting::arm(kernel::kernel());
    own.phase.store(Phase::Running as u32, Ordering::Release);
    first_meeting(image, rsp);
    wait_at_gate(image.entry);
    let frame = TrapFrame {
        cpu: Cpu::at(image.entry, rsp),
    };
    enter_program(&frame)
}

/// Waits until a debugger has come that is to see the program's first instruction.
fn wait_at_gate(entry: u64) {
    /// For how long the word is trusted to be woken on, in nanoseconds.
    const LOOK_NS: u64 = 100_000_000;
    let gate = &control(0).gate;
    while gate.load(Ordering::Acquire) == GATE_CLOSED {
        kernel::kernel()
            .report
            .at_gate
            .store(entry, Ordering::Release);
        sys::futex_wait(gate.as_ptr(), GATE_CLOSED, LOOK_NS);
    }
}

fn install_kernel(id: ReplicaId, count: usize, image: &Image, start: Start) {
    let control = control(0);
    let pid = control.supervisor.load(Ordering::Relaxed);
    let who = regions::who(0, id, ReplicaSet::all(count), pid);
    let program = Program {
        pid,
        brk_start: image.brk_start,
    };
    kernel::install(start, &who, &program);
}

/// All replicas are up and lie alike before the program's first instruction.
fn first_meeting(image: &Image, rsp: u64) {
    let kernel = kernel::kernel();
    crate::calls::outgoing::begin(kernel);
    crate::calls::targets::publish(kernel);
    crate::calls::limits::publish(kernel);
    processes::publish_file(kernel.report);
    for code in image.code() {
        crate::calls::memory::adopt_code(kernel, code);
    }
    crate::arch::tsc::settle(kernel);
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
    crate::calls::limits::check_new_program(kernel);
}

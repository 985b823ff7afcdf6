//! The agent's signal handlers: dispatched system calls, synchronous faults, kicks.
//!
//! All other signals are blocked in a replica; the supervisor collects them. Handlers run on their
//! own stack. The SIGSYS handler only redirects to the common entry; a fault of the program is
//! handled right in its handler, since its registers are all taken.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as nr;
use rcoe_linux_abi::{AGENT_BASE, JobState, SIG_KICK};

use crate::arch::entry::{self, Cpu, RCOE_INTERRUPT, SIGNAL_STACK, SIGNAL_STACK_BYTES};
use crate::arch::frames::{SigContext, SigInfo, UContext};
use crate::arch::leaf;
use crate::calls::points::counter;
use crate::kernel::{self, count};
use crate::memory::{deferred, guest};
use crate::sys;

/// Faults of an instruction.
pub(crate) const SYNCHRONOUS: [u32; 5] =
    [nr::SIGSEGV, nr::SIGBUS, nr::SIGILL, nr::SIGFPE, nr::SIGTRAP];
/// How long a stopped program sleeps at most before it looks whether it goes on.
const LOOK_NS: u64 = 100_000_000;
/// Signals of the host's timers that call the primary when one of the program's is due.
pub(crate) const TIMERS: [u32; 3] = [nr::SIGALRM, nr::SIGVTALRM, nr::SIGPROF];
/// Signal by which the host reminds the primary of effects that wait.
pub(crate) const SIG_TICK: u32 = nr::SIGPWR;

/// A way into one of the handlers below.
type Handler = unsafe extern "C" fn();

unsafe extern "C" {
    fn rcoe_on_dispatch();
    fn rcoe_on_fault();
    fn rcoe_on_timer();
    fn rcoe_on_kick();
    fn rcoe_on_tick();
}

/// Installs all handlers; the clones inherit them.
pub(crate) fn install_handlers() {
    install(nr::SIGSYS, rcoe_on_dispatch, bit(SIG_TICK));
    // Ticks come at intervals, and what is done at one may take longer.
    for signal in SYNCHRONOUS {
        install(signal, rcoe_on_fault, bit(SIG_TICK));
    }
    for signal in TIMERS {
        install(signal, rcoe_on_timer, asynchronous());
    }
    install(SIG_KICK, rcoe_on_kick, asynchronous());
    install(SIG_TICK, rcoe_on_tick, bit(SIG_TICK));
    // The agent reports these from the failed call's result instead, in all replicas alike.
    for signal in [nr::SIGPIPE, nr::SIGXFSZ] {
        sys::ignore_signal(signal);
    }
}

fn install(signal: u32, handler: Handler, mask: u64) {
    let handler = handler as *const () as u64;
    sys::install_handler(signal, handler, entry::restorer_address(), mask);
}

/// The signals that others send, as fast as they like. Where one has interrupted the agent the next
/// waits until that is seen to: else each could interrupt the one before, as deep as the stack is.
const fn asynchronous() -> u64 {
    let [first, second, third] = TIMERS;
    bit(first) | bit(second) | bit(third) | bit(SIG_KICK) | bit(SIG_TICK)
}

/// Signals that the agent takes.
fn taken() -> u64 {
    let faults = SYNCHRONOUS.into_iter().fold(0, |all, it| all | bit(it));
    faults | asynchronous() | bit(nr::SIGSYS)
}

/// It was the program that was interrupted, and what is done now may take long: then others
/// interrupt it, which are nested no deeper than that.
fn admit_signals(context: &UContext) {
    if !guest::is_agent(context.machine.rip, 1) {
        sys::set_signal_mask(!taken() | bit(SIG_TICK));
    }
}

/// Arms what a clone does not inherit: signal stack, mask, trapped instructions, dispatch.
pub(crate) fn arm() {
    sys::set_signal_stack(SIGNAL_STACK.base(), SIGNAL_STACK_BYTES as u64);
    sys::set_signal_mask(!taken());
    crate::arch::instructions::arm();
    // The host's vDSO lies right below the agent's text, and its calls are the agent's.
    let (start, end) = (AGENT_BASE as u64, entry::text_range().end);
    sys::dispatch_outside(start, end - start);
}

/// A signal's bit in a mask.
pub(crate) const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Syscall User Dispatch caught a call: go on at the entry as if the site had been rewritten.
#[unsafe(export_name = "rcoe_handle_dispatch")]
extern "C" fn on_dispatch(_signal: u32, info: *const SigInfo, context: *mut UContext) {
    counter::end();
    // SAFETY: the kernel's frame on the handler's own stack.
    let (info, context) = unsafe { (&*info, &mut *context) };
    let kernel = kernel::kernel();
    crate::calls::points::uncover(kernel);
    count(&kernel.report.dispatched, 1);
    if info.architecture() != SigInfo::X86_64 {
        kernel.alert();
        // `int $0x80`: the numbers of 32-bit programs mean other calls.
        context.machine.rax = crate::calls::refuse_foreign(kernel).cast_unsigned();
        return;
    }
    crate::calls::points::enter(kernel, context);
    let machine = &mut context.machine;
    machine.rcx = kernel.rewriter.hit(machine.rip, &kernel.report.sites);
    machine.rip = entry::entry_address();
}

/// A fault of an instruction, in the program or in the agent.
#[unsafe(export_name = "rcoe_handle_fault")]
extern "C" fn on_fault(signal: u32, info: *const SigInfo, context: *mut UContext) {
    let interruption = counter::enter();
    // SAFETY: the kernel's frame on the handler's own stack.
    let (info, context) = unsafe { (&*info, &mut *context) };
    fault(signal, info, context);
    counter::leave(interruption);
}

fn fault(signal: u32, info: &SigInfo, context: &mut UContext) {
    let rip = context.machine.rip;
    if signal == nr::SIGTRAP && crate::calls::points::is_trap(info, context) {
        return;
    }
    if info.code <= 0 {
        // Sent by a process to this replica alone: its siblings know nothing of it.
        return;
    }
    if signal == nr::SIGSEGV && deferred::is_active() && deferred::on_fault(info.first) {
        return;
    }
    if entry::is_return(rip) && guest::is_agent(context.machine.rsp, FRAME) {
        arrive(&mut context.machine);
        if is_canonical(context.machine.rip) {
            // It was the flag NT, or a selector that was hit: neither has a part in this return.
            return;
        }
        // The program goes where no address is. The processor finds that out before it has left.
    } else if let Some(landing) = leaf::landing(rip) {
        context.machine.rip = landing;
        return;
    } else if guest::is_agent(rip, 1) {
        match entry::guard_landing() {
            Some((stack, landing)) => {
                context.machine.rsp = stack;
                context.machine.rip = landing;
            }
            None => crate::fail(&format_args!(
                "signal {signal} in the agent at {rip:#x}, address {:#x}",
                info.first
            )),
        }
        return;
    }
    let kernel = kernel::kernel();
    if kernel.processes.is_being_born() {
        crate::fail(&format_args!("signal {signal} at {rip:#x} before birth"));
    }
    if crate::calls::points::is_reading(info, context) {
        return;
    }
    kernel.alert();
    if !crate::calls::points::is_own_fault(kernel, context) {
        return;
    }
    if !crate::arch::instructions::emulate(kernel, signal, &mut context.machine) {
        crate::calls::signals::fault(kernel, signal, info, context);
    }
}

/// Bytes that the processor takes from the stack as it returns.
const FRAME: u64 = 5 * 8;

/// Whether there can be such an address: all bits from the 47th on are alike.
fn is_canonical(address: u64) -> bool {
    matches!(address.cast_signed() >> 47, 0 | -1)
}

/// Does what the agent's return to the program would have done.
fn arrive(machine: &mut SigContext) {
    let frame = machine.rsp as *const [u64; 5];
    // SAFETY: within the agent's own stack; the processor has just read it, and nobody has used
    // that stack since.
    let [rip, _, rflags, rsp, _] = unsafe { frame.read() };
    let loaded = machine.cpu();
    machine.set_cpu(&Cpu {
        rip,
        rflags,
        rsp,
        ..loaded
    });
}

/// The host says that a timer of the program is due; the primary says so with its next record.
#[unsafe(export_name = "rcoe_handle_timer")]
extern "C" fn on_timer(_signal: u32, _info: *const SigInfo, context: *mut UContext) {
    let interruption = counter::enter();
    leave_call(context);
    // SAFETY: the kernel's context on the handler's own stack.
    let context = unsafe { &mut *context };
    admit_signals(context);
    if !guest::is_agent(context.machine.rip, 1) {
        crate::calls::timers::end_if_fatal(kernel::kernel());
    }
    crate::calls::points::called(context);
    counter::leave(interruption);
}

/// Effects wait: if the program computes, those that all have come to go out here. Inside the agent
/// that is done on the way.
#[unsafe(export_name = "rcoe_handle_tick")]
extern "C" fn on_tick(_signal: u32, _info: *const SigInfo, context: *mut UContext) {
    let interruption = counter::enter();
    // SAFETY: the kernel's context on the handler's own stack.
    let context = unsafe { &mut *context };
    if !guest::is_agent(context.machine.rip, 1) {
        crate::calls::outgoing::tick(kernel::kernel());
        crate::calls::points::look(context);
    }
    counter::leave(interruption);
}

/// Something asynchronous waits for the program: leave a blocking call.
#[unsafe(export_name = "rcoe_handle_kick")]
extern "C" fn on_kick(_signal: u32, _info: *const SigInfo, context: *mut UContext) {
    let interruption = counter::enter();
    leave_call(context);
    // SAFETY: the kernel's context on the handler's own stack.
    let context = unsafe { &mut *context };
    admit_signals(context);
    crate::calls::points::called(context);
    counter::leave(interruption);
}

fn leave_call(context: *mut UContext) {
    stay_stopped();
    RCOE_INTERRUPT.store(1, Ordering::Relaxed);
    // SAFETY: the kernel's context on the handler's own stack.
    let machine = unsafe { &mut (*context).machine };
    if let Some(landing) = entry::interrupted_landing(machine.rip) {
        machine.rip = landing;
    }
}

/// Waits while the program is stopped: whoever continues rcoe's process group wakes its replicas as
/// well, and the program goes on when the supervisor says so, with the signal that continues it.
fn stay_stopped() {
    let Some(control) = kernel::told() else {
        return;
    };
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        let state = JobState::unpack(control.job.state.load(Ordering::Acquire));
        if state.and_then(|it| it.stopped_by).is_none() {
            return;
        }
        sys::futex_wait(control.bell.as_ptr(), bell, LOOK_NS);
    }
}

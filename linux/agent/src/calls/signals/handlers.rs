//! Running the program's handlers, and the default actions in their stead.
//!
//! A handler is entered on the way out of a call, or of a fault, and left by `rt_sigreturn`.

use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SI_KERNEL, SIGSEGV,
};
use rcoe_linux_syscalls::{Class, Special, Waits};

use crate::arch::delivery::{self, ExtendedState};
use crate::arch::entry::{NOT_BEGUN, TrapFrame};
use crate::arch::faults::bit;
use crate::arch::frames::{SigInfo, UContext};
use crate::calls::Call;
use crate::calls::io::GIVEN_UP;
use crate::calls::processes::jobs;
use crate::calls::signals::targets::{next_pending, publish};
use crate::calls::signals::{Effect, FLAGS, HANDLER, Info, MASK, SIG_DFL, SS_DISABLE, UNSTOPPABLE};
use crate::kernel::{Kernel, kind};
use crate::memory::guest::Fault;
use crate::sys;

/// On the way out of `call`: runs handlers and default actions. Returns whether all registers
/// changed.
pub(crate) fn deliver(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call) -> bool {
    let signals = &kernel.signals;
    if signals.open(&signals.own) == 0 && signals.own.saved.get().is_none() {
        restart_if_undisturbed(kernel, frame, call);
        return false;
    }
    let [mut entered, mut stopped] = [false; 2];
    while let Some(info) = next_pending(kernel) {
        let signal = info.signal;
        match kernel.signals.effect(signal) {
            Effect::Nothing => {}
            Effect::Stop => {
                jobs::stop(kernel, signal);
                stopped = true;
            }
            Effect::End => kernel.end_by(signal),
            Effect::Handler => {
                if !entered {
                    restart_if_due(kernel, frame, call, signal);
                }
                entered = true;
                enter_handler(kernel, frame, signal, &info.raw());
            }
        }
    }
    if !entered && stopped && call.what.blocking && is_interrupted(frame) {
        restart(kernel, frame, call);
    } else if !entered {
        restart_if_undisturbed(kernel, frame, call);
    }
    if let Some(mask) = kernel.signals.own.saved.take() {
        kernel.signals.own.mask = mask;
        publish(kernel);
    }
    entered
}

/// Between calls: runs handlers and default actions. The program's registers are all its own, and
/// none is the result of a call.
pub(crate) fn deliver_at_point(kernel: &mut Kernel, frame: &mut TrapFrame) {
    while let Some(info) = next_pending(kernel) {
        let signal = info.signal;
        match kernel.signals.effect(signal) {
            Effect::Nothing => {}
            Effect::Stop => jobs::stop(kernel, signal),
            Effect::End => kernel.end_by(signal),
            Effect::Handler => enter_handler(kernel, frame, signal, &info.raw()),
        }
    }
}

/// An interrupted call is made again after the handler, if the handler or its never having begun
/// says so.
fn restart_if_due(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call, signal: u32) {
    let result = frame.cpu.regs.rax.cast_signed();
    let wanted = kernel.signals.actions[signal as usize][FLAGS] & u64::from(SA_RESTART) != 0;
    let restartable = call.what.blocking
        && match call.what.class {
            Class::Input | Class::Output => !call.what.repeatable && !is_never_restarted(call),
            // A wait for a child.
            Class::Process => true,
            // A wait without a timeout.
            _ => call.what.special == Special::Futex && call.arg(3) == 0,
        };
    let again = match result {
        NOT_BEGUN => true,
        GIVEN_UP => wanted,
        _ => result == sys::error(EINTR) && wanted && restartable,
    };
    if again {
        restart(kernel, frame, call);
    } else if result == GIVEN_UP {
        frame.cpu.regs.rax = sys::error(EINTR).cast_unsigned();
    }
}

/// Calls that the kernel ends with EINTR whatever the handler says.
fn is_never_restarted(call: &Call) -> bool {
    matches!(
        call.what.facts.waits,
        Waits::Epoll | Waits::Semaphores | Waits::Queue(_)
    )
}

/// A call that a signal has come in the way of which is not this thread's business, but perhaps
/// another's: it is made again, as the kernel would.
fn restart_if_undisturbed(kernel: &Kernel, frame: &mut TrapFrame, call: &Call) {
    let result = frame.cpu.regs.rax.cast_signed();
    let waited = call.what.blocking && kernel.signals.own.saved.get().is_none();
    let not_made = result == NOT_BEGUN || result == GIVEN_UP;
    if not_made || (result == sys::error(EINTR) && waited) {
        restart(kernel, frame, call);
    }
}

fn is_interrupted(frame: &TrapFrame) -> bool {
    frame.cpu.regs.rax.cast_signed() == sys::error(EINTR)
}

fn restart(kernel: &Kernel, frame: &mut TrapFrame, call: &Call) {
    frame.cpu.rip = kernel.rewriter.restart_address(frame.cpu.rip);
    frame.cpu.regs.rax = call.nr;
}

fn enter_handler(kernel: &mut Kernel, frame: &mut TrapFrame, signal: u32, info: &SigInfo) {
    let mut cpu = frame.cpu;
    let state = ExtendedState::Live;
    let entry = prepare_handler(kernel, signal);
    match delivery::push_frame(&mut cpu, &entry, info, &state) {
        Ok(()) => frame.cpu = cpu,
        Err(Fault) => without_frame(kernel, frame, signal, &entry),
    }
}

/// There is no room for the frame: as of the kernel, the program gets SIGSEGV instead, by which it
/// ends if it has no handler for it, or none that can be entered.
fn without_frame(kernel: &mut Kernel, frame: &mut TrapFrame, signal: u32, entry: &delivery::Entry) {
    let own = &mut kernel.signals.own;
    own.mask = entry.mask;
    own.stack = entry.stack;
    let blocked = entry.mask & bit(SIGSEGV) != 0;
    if signal == SIGSEGV || blocked || kernel.signals.effect(SIGSEGV) != Effect::Handler {
        kernel.end_by(SIGSEGV);
    }
    let info = Info::sent(SIGSEGV, SI_KERNEL.cast_signed(), 0, 0, 0);
    enter_handler(kernel, frame, SIGSEGV, &info.raw());
}

/// Applies what entering a handler changes; returns what its frame needs.
fn prepare_handler(kernel: &mut Kernel, signal: u32) -> delivery::Entry {
    const SS_AUTODISARM: u64 = 1 << 31;
    let signals = &mut kernel.signals;
    let action = signals.actions[signal as usize];
    let return_mask = signals.own.saved.take().unwrap_or(signals.own.mask);
    let own = if action[FLAGS] & u64::from(SA_NODEFER) == 0 {
        bit(signal)
    } else {
        0
    };
    signals.own.mask = (signals.own.mask | action[MASK] | own) & !UNSTOPPABLE;
    if action[FLAGS] & u64::from(SA_RESETHAND) != 0 {
        signals.actions[signal as usize][HANDLER] = SIG_DFL;
    }
    let stack = signals.own.stack;
    if stack[1] & SS_AUTODISARM != 0 {
        signals.own.stack = [0, SS_DISABLE, 0];
    }
    publish(kernel);
    let wants_stack = action[FLAGS] & u64::from(SA_ONSTACK) != 0;
    delivery::Entry {
        signal,
        handler: action[HANDLER],
        restorer: action[2],
        mask: return_mask,
        stack,
        on_stack: wants_stack && stack[1] & SS_DISABLE == 0,
    }
}

/// A synchronous fault of the program: an event with a rendezvous of its own, since either all
/// replicas fault alike or one of them is faulty (the papers' exception-handler barrier).
pub(crate) fn fault(kernel: &mut Kernel, signal: u32, info: &SigInfo, context: &mut UContext) {
    let what = kind::of(u64::from(signal), kind::FAULT);
    let mut cpu = context.machine.cpu();
    cpu.rip = kernel.rewriter.translate(cpu.rip);
    for value in [cpu.rip, info.first, info.code.cast_unsigned().into()] {
        kernel.event(what, value);
    }
    kernel.rendezvous();
    let blocked = kernel.signals.own.mask & bit(signal) != 0;
    if blocked || kernel.signals.effect(signal) != Effect::Handler {
        kernel.end_by(signal);
    }
    let state = ExtendedState::Saved(&context.machine);
    let entry = prepare_handler(kernel, signal);
    match delivery::push_frame(&mut cpu, &entry, info, &state) {
        Ok(()) => context.machine.set_cpu(&cpu),
        Err(Fault) => kernel.end_by(SIGSEGV),
    }
}

/// `rt_sigreturn`: back to where the handler interrupted the program.
pub(crate) fn sigreturn(kernel: &mut Kernel, frame: &mut TrapFrame) {
    match delivery::pop_frame(frame) {
        Ok(context) => {
            frame.cpu.rip = kernel.rewriter.translate(frame.cpu.rip);
            kernel.signals.own.mask = context.mask & !UNSTOPPABLE;
            kernel.signals.own.stack = context.stack;
            publish(kernel);
        }
        Err(Fault) => kernel.end_by(SIGSEGV),
    }
}

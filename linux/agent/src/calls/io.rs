//! Calls that reach the outside: the primary makes them, everyone gets the result.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EFBIG, EINTR, EPIPE};
use linux_raw_sys::general::{SIGPIPE, SIGXFSZ};

use super::transfer::{self, Outcome};
use super::{Call, paths, signals};
use crate::entry::interruptible_call;
use crate::guest::Fault;
use crate::kernel::Kernel;
use crate::sys;

/// Result of a call that was not begun because a signal came first: the program makes it again
/// after its handler. The kernel's own ERESTARTNOINTR, which no program ever sees.
pub(crate) const NOT_BEGUN: i64 = -513;

/// An input call: no barrier, the followers check and consume.
pub(crate) fn input(kernel: &mut Kernel, call: &Call) -> i64 {
    through_primary(kernel, call, call.what.repeatable)
}

/// An output call: voted first.
pub(crate) fn output(kernel: &mut Kernel, call: &Call) -> i64 {
    kernel.rendezvous();
    let result = through_primary(kernel, call, false);
    if result == sys::error(EPIPE) && !silent(call) {
        kernel.signals.raise(SIGPIPE, 0);
    } else if result == sys::error(EFBIG) {
        kernel.signals.raise(SIGXFSZ, 0);
    }
    result
}

/// Does the call ask for EPIPE without SIGPIPE?
fn silent(call: &Call) -> bool {
    const MSG_NOSIGNAL: u64 = 0x4000;
    match call.what.call.name {
        "sendto" => call.arg(3) & MSG_NOSIGNAL != 0,
        "sendmsg" => call.arg(2) & MSG_NOSIGNAL != 0,
        "sendmmsg" => call.arg(3) & MSG_NOSIGNAL != 0,
        "write" | "writev" | "sendfile" | "splice" | "pwritev2" => false,
        _ => true,
    }
}

fn through_primary(kernel: &mut Kernel, call: &Call, repeatable: bool) -> i64 {
    if let Err(Fault) = kernel.segments.prepare(call) {
        return Fault::RESULT;
    }
    let outcome = if kernel.replica.is_primary() {
        as_primary(kernel, call, repeatable)
    } else {
        match transfer::receive(kernel) {
            Some(outcome) => outcome,
            None => as_primary(kernel, call, repeatable),
        }
    };
    signals::take(kernel, outcome);
    outcome.result
}

fn as_primary(kernel: &mut Kernel, call: &Call, repeatable: bool) -> Outcome {
    if !kernel.alone {
        kernel.replica.begin_effect(repeatable);
    }
    kernel.report.in_call.store(call.nr + 1, Ordering::Relaxed);
    let result = execute(kernel, call);
    let signals = kernel.signals.collect(kernel.control);
    let outcome = Outcome {
        result,
        signals,
        taken: kernel.signals.taken(),
    };
    if !kernel.alone {
        transfer::publish(kernel, outcome);
    }
    kernel.report.in_call.store(0, Ordering::Relaxed);
    outcome
}

/// Makes the call on the host.
fn execute(kernel: &mut Kernel, call: &Call) -> i64 {
    let mut args = host_arguments(call);
    paths::substitute(kernel.control, call, &mut args);
    if !call.what.blocking {
        // SAFETY: the program's own call. Its buffers are its own memory, and the table lets no
        // call through that changes mappings, signal handling or the agent's own state.
        return unsafe { rcoe_linux_sys::syscall6(call.nr, args) };
    }
    loop {
        if signals::must_interrupt(kernel) {
            return NOT_BEGUN;
        }
        // SAFETY: as above.
        let result = unsafe { interruptible_call(call.nr, &args) };
        if result != sys::error(EINTR) || signals::must_interrupt(kernel) {
            return result;
        }
    }
}

/// Arguments as the host must see them: in their true width, without the virtual signal mask.
fn host_arguments(call: &Call) -> [u64; 6] {
    use rcoe_linux_syscalls::Special;
    let mut args = call.raw;
    match call.what.special {
        Special::Ppoll => args[3] = 0,
        Special::Pselect6 => args[5] = 0,
        Special::EpollPwait => args[4] = 0,
        _ => {}
    }
    args
}

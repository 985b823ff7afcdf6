//! Signals of the host that reach the agent: handlers, their stack, and the mask.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall2, syscall4};

use crate::sys::check;
use crate::sys::numbers::SIG_SETMASK;

/// The call that waits for nothing but a signal.
pub(crate) const PAUSE: u64 = nr::__NR_pause as u64;

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

fn set_action(signal: u32, action: &Action) {
    // SAFETY: a handler of the agent (or SIG_IGN) with the kernel's layout.
    let ret = unsafe {
        syscall4(
            u64::from(nr::__NR_rt_sigaction),
            u64::from(signal),
            (&raw const *action) as u64,
            0,
            8,
        )
    };
    check(ret).expect("only SIGKILL and SIGSTOP refuse a handler");
}

/// Installs a handler of the agent, on its signal stack, which only the signals of `mask` do not
/// interrupt.
pub(crate) fn install_handler(signal: u32, handler: u64, restorer: u64, mask: u64) {
    let flags = nr::SA_SIGINFO | nr::SA_ONSTACK | nr::SA_NODEFER | nr::SA_RESTORER;
    set_action(
        signal,
        &Action {
            handler,
            flags: u64::from(flags),
            restorer,
            mask,
        },
    );
}

/// Ignores a signal in this process.
pub(crate) fn ignore_signal(signal: u32) {
    set_action(
        signal,
        &Action {
            handler: 1,
            flags: 0,
            restorer: 0,
            mask: 0,
        },
    );
}

/// Gives the agent's handlers their stack.
pub(crate) fn set_signal_stack(base: u64, len: u64) {
    let stack = [base, 0, len];
    // SAFETY: memory of the agent's own, used for nothing else.
    let ret = unsafe { syscall2(u64::from(nr::__NR_sigaltstack), stack.as_ptr() as u64, 0) };
    check(ret).expect("the stack is large enough");
}

/// Sets which signals are blocked; returns which were.
pub(crate) fn exchange_signal_mask(blocked: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: both masks are eight bytes.
    let ret = unsafe {
        syscall4(
            u64::from(nr::__NR_rt_sigprocmask),
            SIG_SETMASK,
            (&raw const blocked) as u64,
            (&raw mut before) as u64,
            8,
        )
    };
    check(ret).expect("a valid mask");
    before
}

/// Sets which signals are blocked for this process.
pub(crate) fn set_signal_mask(blocked: u64) {
    exchange_signal_mask(blocked);
}

//! The program's signals, all virtual: actions, masks, pending sets, delivery.
//!
//! A signal reaches the program only on its way out of a call, at the same point of the trace in
//! every replica. Signals from outside are taken by the primary with the result of a call and
//! travel to the siblings in the same record. Signals the program sends to itself, and those that
//! follow from a result (SIGPIPE), need no word from anyone.
//!
//! Which thread gets a signal is decided in [`super::targets`].
//!
//! Not covered: stopping (SIGTSTP and kin are ignored), queued real-time signals with values.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::errno::{EINTR, EINVAL, ENOMEM, ESRCH};
use linux_raw_sys::general::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SIGCHLD, SIGCONT, SIGKILL, SIGSEGV, SIGSTOP,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use rcoe_linux_abi::{Control, SIGNAL_SLOTS};
use rcoe_linux_syscalls::{Class, Special};

use super::emulated::own_pid;
use super::io::{self, NOT_BEGUN};
use super::targets::{self, Own, next_pending, open_for, own_of_mut, publish, rouse};
use super::transfer::Outcome;
use super::{Call, PARKED, refuse};
use crate::convert::{self, low32};
use crate::delivery::{self, ExtendedState};
use crate::entry::{RCOE_INTERRUPT, TrapFrame};
use crate::faults::bit;
use crate::frames::{SigInfo, UContext};
use crate::guest::{self, Fault};
use crate::kernel::{Kernel, kind};
use crate::sys;
use crate::threads::{Cause, NEVER};

/// Timer signals that arrived at this replica and were not taken yet.
pub(crate) static ARRIVED: AtomicU64 = AtomicU64::new(0);

/// Highest signal number.
pub(super) const LAST: u32 = 64;
/// Length of tables indexed by signal number.
const SLOTS: usize = LAST as usize + 1;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
pub(super) const SS_DISABLE: u64 = 2;
/// Signals that can be neither caught nor blocked.
pub(super) const UNSTOPPABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);
/// Signals whose default action is nothing.
const HARMLESS: u64 = bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH);
/// Signals whose default action is to stop.
const STOPPING: u64 = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// The kernel's `struct sigaction`.
pub(crate) type Action = [u64; 4];
const HANDLER: usize = 0;
const FLAGS: usize = 1;
const MASK: usize = 3;

/// The program's signal state.
pub(crate) struct Signals {
    actions: [Action; SLOTS],
    /// `si_code` to deliver each pending signal with.
    codes: [i8; SLOTS],
    /// Sent to the program, for whichever thread takes them.
    pub(super) shared: u64,
    /// The running thread's.
    pub(crate) own: Own,
    /// Primary: arrived from outside, not published yet.
    pub(super) inbox: u64,
    /// Entries of the supervisor's queue taken so far.
    taken: u64,
}

impl Signals {
    /// As inherited from whoever started rcoe.
    pub(crate) fn new(control: &Control) -> Self {
        let ignored = control.ignored.load(Ordering::Relaxed);
        let mut actions = [[SIG_DFL, 0, 0, 0]; SLOTS];
        for (action, signal) in actions.iter_mut().skip(1).zip(1..) {
            if ignored & bit(signal) != 0 {
                action[HANDLER] = SIG_IGN;
            }
        }
        Self {
            actions,
            codes: [0; SLOTS],
            shared: 0,
            own: Own::inherit(control.blocked.load(Ordering::Relaxed) & !UNSTOPPABLE),
            inbox: 0,
            taken: 0,
        }
    }

    /// As `fork` leaves them to a child: nothing is pending.
    pub(crate) fn forget_pending(&mut self) {
        self.shared = 0;
        self.own.pending = 0;
        self.own.saved = None;
        self.inbox = 0;
        self.taken = 0;
        ARRIVED.store(0, Ordering::Relaxed);
        RCOE_INTERRUPT.store(0, Ordering::Relaxed);
    }

    /// As `execve` leaves them: what was handled is default again, what was ignored stays so.
    pub(crate) fn reset_handlers(&mut self) {
        for action in &mut self.actions {
            let ignored = action[HANDLER] == SIG_IGN;
            *action = [if ignored { SIG_IGN } else { SIG_DFL }, 0, 0, 0];
        }
    }

    /// The signals that are ignored, and those that have a handler.
    pub(super) fn dispositions(&self) -> [u64; 2] {
        let mut sets = [0; 2];
        for (action, signal) in self.actions.iter().zip(0..).skip(1) {
            match action[HANDLER] {
                SIG_DFL => {}
                SIG_IGN => sets[0] |= bit(signal),
                _ => sets[1] |= bit(signal),
            }
        }
        sets
    }

    /// There is no alternate stack any more.
    pub(crate) fn drop_stack(&mut self) {
        self.own.stack = [0, SS_DISABLE, 0];
        self.own.saved = None;
    }

    /// Makes a signal pending for the running thread.
    pub(crate) fn raise(&mut self, signal: u32) {
        self.own.pending |= self.accept(signal, 0, self.own.mask);
    }

    /// The signal's bit, unless it does nothing and cannot be waited for either, not being blocked
    /// by all; keeps the `si_code` to deliver it with.
    fn accept(&mut self, signal: u32, code: i8, blocked: u64) -> u64 {
        if self.effect(signal) == Effect::Nothing && blocked & bit(signal) == 0 {
            return 0;
        }
        self.codes[signal as usize] = code;
        bit(signal)
    }

    /// Entries of the supervisor's queue taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Primary: what has arrived from outside since the last published record.
    pub(crate) fn collect(&mut self, control: &Control) -> u64 {
        self.look(control);
        core::mem::take(&mut self.inbox)
    }

    pub(super) fn look(&mut self, control: &Control) {
        let head = control.signal_head.load(Ordering::Acquire);
        let quiet = ARRIVED.load(Ordering::Relaxed) == 0
            && RCOE_INTERRUPT.load(Ordering::Relaxed) == 0
            && head == self.taken;
        if quiet {
            return;
        }
        // First the flag, then the words: a later arrival sets the flag again.
        RCOE_INTERRUPT.store(0, Ordering::SeqCst);
        self.inbox |= ARRIVED.swap(0, Ordering::SeqCst);
        let head = control.signal_head.load(Ordering::Acquire);
        while self.taken < head {
            let slot = convert::size(self.taken) % SIGNAL_SLOTS;
            let signal = low32(control.signals[slot].load(Ordering::Relaxed));
            if (1..=LAST).contains(&signal) {
                self.inbox |= bit(signal);
            }
            self.taken += 1;
        }
    }

    pub(super) fn effect(&self, signal: u32) -> Effect {
        match self.actions[signal as usize][HANDLER] {
            SIG_IGN => Effect::Nothing,
            SIG_DFL if bit(signal) & (HARMLESS | STOPPING) != 0 => Effect::Nothing,
            SIG_DFL => Effect::End,
            _ => Effect::Handler,
        }
    }

    /// Signals whose default action would end the program.
    pub(super) fn ending(&self) -> u64 {
        (1..=LAST)
            .filter(|signal| self.effect(*signal) == Effect::End)
            .fold(0, |set, signal| set | bit(signal))
    }

    /// Signals that a thread with this mask would act upon, of those pending for all and for it.
    pub(super) fn open(&self, own: &Own) -> u64 {
        (self.shared | own.pending) & !own.mask
    }
}

/// What a signal does to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    End,
    Handler,
}

/// Primary, before or after a call that may block: has something arrived that the program acts on?
pub(crate) fn must_interrupt(kernel: &mut Kernel) -> bool {
    let control = kernel.control;
    let signals = &mut kernel.signals;
    signals.look(control);
    let open = signals.inbox & !signals.own.mask | signals.open(&signals.own);
    (1..=LAST).any(|signal| open & bit(signal) != 0 && signals.effect(signal) != Effect::Nothing)
}

/// Result of a call that a signal keeps from being begun. If it brought a mask of its own, the
/// signal counts as coming while it waits: the program has let it in for just that.
pub(super) fn before_begun(kernel: &Kernel) -> i64 {
    match kernel.signals.own.saved {
        Some(_) => sys::error(EINTR),
        None => NOT_BEGUN,
    }
}

/// All replicas, with the result of a call: these signals are pending now.
pub(crate) fn take(kernel: &mut Kernel, outcome: Outcome) {
    kernel.signals.taken = outcome.taken;
    if outcome.signals != 0 {
        kernel.event(kind::of(0, kind::SIGNALS), outcome.signals);
        let blocked = targets::blocked_by_all(kernel);
        for signal in 1..=LAST {
            if outcome.signals & bit(signal) != 0 {
                kernel.signals.shared |= kernel.signals.accept(signal, 0, blocked);
            }
        }
        rouse(kernel);
    }
}

/// On the way out of `call`: runs handlers and default actions. Returns whether all registers
/// changed.
pub(crate) fn deliver(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call) -> bool {
    let signals = &kernel.signals;
    if signals.open(&signals.own) == 0 && signals.own.saved.is_none() {
        restart_if_undisturbed(kernel, frame, call);
        return false;
    }
    let mut entered = false;
    while let Some(signal) = next_pending(kernel) {
        match kernel.signals.effect(signal) {
            Effect::Nothing => {}
            Effect::End => kernel.end_by(signal),
            Effect::Handler => {
                if !entered {
                    restart_if_due(kernel, frame, call, signal);
                }
                entered = true;
                let info = sent_info(kernel, signal);
                enter_handler(kernel, frame, signal, &info);
            }
        }
    }
    if !entered {
        restart_if_undisturbed(kernel, frame, call);
    }
    if let Some(mask) = kernel.signals.own.saved.take() {
        kernel.signals.own.mask = mask;
        publish(kernel);
    }
    entered
}

pub(super) fn sent_info(kernel: &Kernel, signal: u32) -> SigInfo {
    let code = i32::from(kernel.signals.codes[signal as usize]);
    SigInfo::new(signal, code, u64::from(own_pid(kernel)))
}

/// An interrupted call is made again after the handler, if the handler or its never having begun
/// says so.
fn restart_if_due(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call, signal: u32) {
    let result = frame.cpu.regs.rax.cast_signed();
    let wanted = kernel.signals.actions[signal as usize][FLAGS] & u64::from(SA_RESTART) != 0;
    let restartable = call.what.blocking
        && match call.what.class {
            Class::Input | Class::Output => !call.what.repeatable,
            // A wait for a child.
            Class::Process => true,
            // A wait without a timeout.
            _ => call.what.special == Special::Futex && call.arg(3) == 0,
        };
    if result == NOT_BEGUN || (result == sys::error(EINTR) && wanted && restartable) {
        restart(kernel, frame, call);
    }
}

/// A call that a signal has come in the way of which is not this thread's business, but perhaps
/// another's: it is made again, as the kernel would.
fn restart_if_undisturbed(kernel: &Kernel, frame: &mut TrapFrame, call: &Call) {
    let result = frame.cpu.regs.rax.cast_signed();
    let waited = call.what.blocking && kernel.signals.own.saved.is_none();
    if result == NOT_BEGUN || (result == sys::error(EINTR) && waited) {
        restart(kernel, frame, call);
    }
}

fn restart(kernel: &Kernel, frame: &mut TrapFrame, call: &Call) {
    frame.cpu.rip = kernel.rewriter.restart_address(frame.cpu.rip);
    frame.cpu.regs.rax = call.nr;
}

fn enter_handler(kernel: &mut Kernel, frame: &mut TrapFrame, signal: u32, info: &SigInfo) {
    let mut cpu = frame.cpu;
    let state = ExtendedState::Live(frame);
    let entered = prepare_handler(kernel, signal)
        .and_then(|entry| delivery::push_frame(&mut cpu, &entry, info, &state));
    match entered {
        Ok(()) => frame.cpu = cpu,
        // No room for the frame: the kernel, too, then ends the program.
        Err(Fault) => kernel.end_by(SIGSEGV),
    }
}

/// Applies what entering a handler changes; returns what its frame needs.
fn prepare_handler(kernel: &mut Kernel, signal: u32) -> Result<delivery::Entry, Fault> {
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
    publish(kernel);
    let wants_stack = action[FLAGS] & u64::from(SA_ONSTACK) != 0;
    Ok(delivery::Entry {
        signal,
        handler: action[HANDLER],
        restorer: action[2],
        mask: return_mask,
        stack,
        on_stack: wants_stack && stack[1] & SS_DISABLE == 0,
    })
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
    let entered = prepare_handler(kernel, signal)
        .and_then(|entry| delivery::push_frame(&mut cpu, &entry, info, &state));
    match entered {
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

fn valid_signal(number: u64) -> Option<u32> {
    u32::try_from(number)
        .ok()
        .filter(|signal| (1..=LAST).contains(signal))
}

/// `rt_sigaction`.
pub(super) fn sigaction(kernel: &mut Kernel, call: &Call) -> i64 {
    let Some(signal) = valid_signal(call.arg(0)) else {
        return sys::error(EINVAL);
    };
    if call.arg(3) != 8 || (call.arg(1) != 0 && bit(signal) & UNSTOPPABLE != 0) {
        return sys::error(EINVAL);
    }
    let new = if call.arg(1) == 0 {
        None
    } else {
        Some(guest::read::<Action>(call.arg(1)))
    };
    let old = kernel.signals.actions[signal as usize];
    if call.arg(2) != 0 && guest::write(call.arg(2), &old).is_err() {
        return Fault::RESULT;
    }
    match new {
        Some(Ok(action)) => {
            kernel.signals.actions[signal as usize] = action;
            if kernel.signals.effect(signal) == Effect::Nothing {
                discard(kernel, bit(signal));
            }
            publish(kernel);
            0
        }
        Some(Err(Fault)) => Fault::RESULT,
        None => 0,
    }
}

/// Nobody acts on these any more.
fn discard(kernel: &mut Kernel, set: u64) {
    kernel.signals.shared &= !set;
    for slot in 0..kernel.threads.used() {
        own_of_mut(kernel, slot).pending &= !set;
    }
}

/// `rt_sigprocmask`.
pub(super) fn sigprocmask(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(3) != 8 {
        return sys::error(EINVAL);
    }
    let old = kernel.signals.own.mask;
    if call.arg(1) != 0 {
        let Ok(set) = guest::read::<u64>(call.arg(1)) else {
            return Fault::RESULT;
        };
        let new = match call.arg(0) {
            0 => old | set,
            1 => old & !set,
            2 => set,
            _ => return sys::error(EINVAL),
        };
        kernel.signals.own.mask = new & !UNSTOPPABLE;
        publish(kernel);
        if kernel.signals.shared != 0 {
            rouse(kernel);
        }
    }
    if call.arg(2) != 0 && guest::write(call.arg(2), &old).is_err() {
        return Fault::RESULT;
    }
    0
}

/// `rt_sigpending`.
pub(super) fn sigpending(kernel: &Kernel, call: &Call) -> i64 {
    let signals = &kernel.signals;
    let set = (signals.shared | signals.own.pending) & signals.own.mask;
    match guest::write(call.arg(0), &set) {
        Ok(()) => 0,
        Err(Fault) => Fault::RESULT,
    }
}

/// `sigaltstack`.
pub(super) fn sigaltstack(kernel: &mut Kernel, call: &Call) -> i64 {
    /// The smallest stack the kernel accepts.
    const MINSIGSTKSZ: u64 = 2048;
    let old = kernel.signals.own.stack;
    if call.arg(0) != 0 {
        let Ok(new) = guest::read::<[u64; 3]>(call.arg(0)) else {
            return Fault::RESULT;
        };
        let flags = new[1] & 0xffff_ffff;
        if flags & SS_DISABLE == 0 && new[2] < MINSIGSTKSZ {
            return sys::error(ENOMEM);
        }
        kernel.signals.own.stack = if flags & SS_DISABLE != 0 {
            [0, SS_DISABLE, 0]
        } else {
            [new[0], flags, new[2]]
        };
    }
    if call.arg(1) != 0 && guest::write(call.arg(1), &old).is_err() {
        return Fault::RESULT;
    }
    0
}

/// `pause` and `rt_sigsuspend`: wait until a signal is acted upon.
pub(super) fn wait(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.what.special == Special::RtSigsuspend {
        let Ok(mask) = guest::read::<u64>(call.arg(0)) else {
            return Fault::RESULT;
        };
        suspend(kernel, mask);
    }
    if kernel.threads.must_not_block() {
        if open_for(kernel, kernel.threads.current_slot()) == 0 {
            kernel.threads.park(Cause::Signal, NEVER);
            return PARKED;
        }
        return sys::error(EINTR);
    }
    // A poll of nothing without a timeout ends by a signal only.
    let nr = u64::from(linux_raw_sys::general::__NR_poll);
    let raw = [0, 0, u64::from(u32::MAX), 0, 0, 0];
    let entry = rcoe_linux_syscalls::entry(nr).expect("poll is in the table");
    let poll = Call {
        nr,
        raw,
        what: entry.resolve(&raw),
    };
    io::input(kernel, &poll);
    sys::error(EINTR)
}

fn suspend(kernel: &mut Kernel, mask: u64) {
    if kernel.signals.own.saved.is_some() {
        // The call was parked and is made again.
        return;
    }
    kernel.signals.own.saved = Some(kernel.signals.own.mask);
    kernel.signals.own.mask = mask & !UNSTOPPABLE;
    publish(kernel);
}

/// Calls that bring a mask of their own for as long as they last.
pub(super) fn suspend_for(kernel: &mut Kernel, call: &Call) {
    let pointer = match call.what.special {
        Special::Ppoll => call.arg(3),
        Special::EpollPwait => call.arg(4),
        Special::Pselect6 if call.arg(5) != 0 => guest::read(call.arg(5)).unwrap_or(0),
        _ => 0,
    };
    if pointer != 0
        && let Ok(mask) = guest::read::<u64>(pointer)
    {
        suspend(kernel, mask);
    }
}

/// `kill` and its kin, if they concern the program itself; `None` if the host has to send.
pub(super) fn send(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    const SI_TKILL: i8 = -6;
    let own = u64::from(own_pid(kernel));
    let (thread, number) = match call.what.special {
        Special::Kill if call.arg(0) == own => (None, call.arg(1)),
        Special::Tkill => (Some(call.arg(0)), call.arg(1)),
        Special::Tgkill if call.arg(0) == own => (Some(call.arg(1)), call.arg(2)),
        Special::Kill => return elsewhere(kernel, call.arg(1)),
        Special::Tgkill => return elsewhere(kernel, call.arg(2)),
        // The value that comes with these is not kept.
        _ => return Some(refuse(kernel, call)),
    };
    let slot = match thread {
        None => None,
        Some(tid) => match kernel.threads.find(low32(tid)) {
            None if call.what.special == Special::Tkill => return elsewhere(kernel, number),
            None => return Some(sys::error(ESRCH)),
            found => found,
        },
    };
    match (number, valid_signal(number)) {
        (0, _) => Some(0),
        (_, Some(signal)) => {
            if bit(signal) == bit(SIGKILL) {
                kernel.end_by(SIGKILL);
            }
            let code = if thread.is_some() { SI_TKILL } else { 0 };
            let blocked = match slot {
                None => targets::blocked_by_all(kernel),
                Some(slot) => own_of_mut(kernel, slot).mask,
            };
            let set = kernel.signals.accept(signal, code, blocked);
            match slot {
                None => kernel.signals.shared |= set,
                Some(slot) => own_of_mut(kernel, slot).pending |= set,
            }
            rouse(kernel);
            Some(0)
        }
        _ => Some(sys::error(EINVAL)),
    }
}

/// A signal for another process, which the primary sends; or what the call returns instead.
fn elsewhere(kernel: &mut Kernel, number: u64) -> Option<i64> {
    if number > u64::from(LAST) {
        return Some(sys::error(EINVAL));
    }
    kernel.processes.number_request();
    None
}

//! The program's signals, all virtual: actions, masks, pending sets, delivery.
//!
//! A signal reaches the program only on its way out of a call, at the same point of the trace in
//! every replica. What has arrived from outside lies in the supervisor's queue, where all replicas
//! read it; how much of it counts at a point of the trace is the primary's word, which travels with
//! the result of a call. So does the word that a timer is due. Calls that each replica answers by
//! itself bring no word; after [`QUIET_CALLS`] of them the replicas ask for one. Signals the
//! program sends to itself, and those that follow from a result (SIGPIPE), need no word from
//! anyone.
//!
//! By concept: what waits ([`pending`]), which thread gets it ([`targets`]), what the program asked
//! for ([`actions`]), how it is run ([`handlers`]), calls that send ([`sending`]) and calls that
//! wait ([`waiting`]), and descriptors that signals are read from ([`signalfd`]).
//!
//! Stopping is mostly the supervisor's part, see [`crate::calls::processes::jobs`]. What comes here
//! is a stop signal that was blocked or handled when it was sent, or of a process that shares
//! memory.

mod actions;
mod handlers;
pub(crate) mod pending;
mod sending;
pub(super) mod signalfd;
pub(crate) mod targets;
mod waiting;

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general::{
    CLD_CONTINUED, CLD_DUMPED, CLD_EXITED, CLD_STOPPED, SA_NOCLDSTOP, SA_NOCLDWAIT, SIGCHLD,
    SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use rcoe_linux_abi::{Control, Queued, SIGNAL_SLOTS};

pub(super) use actions::{sigaction, sigaltstack, sigpending, sigprocmask};
pub(crate) use handlers::{deliver, deliver_at_point, fault, sigreturn};
pub(crate) use pending::{Info, Pending, Target};
pub(super) use sending::send;
pub(super) use waiting::{suspend_for, wait, wait_for};

use crate::arch::entry::RCOE_INTERRUPT;
use crate::arch::faults::bit;
use crate::calls::io::GIVEN_UP;
use crate::calls::limits::Limits;
use crate::calls::{limits, processes, timers};
use crate::convert::{self, Maybe, low32};
use crate::kernel::{Kernel, kind};
use crate::lifetime::{PerProcess, PerProgram, Program, Who};
use crate::protocol::transfer::{self, Outcome};
use crate::sys;
use pending::{FIRST_QUEUED, SI_USER};
use signalfd::SignalFiles;
use targets::{Own, blocked_by_all, own_of_mut, rouse};

/// Highest signal number.
pub(super) const LAST: u32 = 64;
/// Length of tables indexed by signal number.
const SLOTS: usize = LAST as usize + 1;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SS_DISABLE: u64 = 2;
/// Signals that can be neither caught nor blocked.
const UNSTOPPABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);
/// Signals whose default action is nothing.
const HARMLESS: u64 = bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH);
/// Signals whose default action is to stop.
const STOPPING: u64 = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// Calls without a word from the primary until the replicas ask for one. They take some ten
/// microseconds, so the word costs a small part of that, and a signal does not wait long.
const QUIET_CALLS: u32 = 128;

/// The `si_code`s of SIGCHLD for a child that has ended.
const ENDS: core::ops::RangeInclusive<i32> = CLD_EXITED.cast_signed()..=CLD_DUMPED.cast_signed();

/// The kernel's `struct sigaction`.
pub(crate) type Action = [u64; 4];
const HANDLER: usize = 0;
const FLAGS: usize = 1;
const MASK: usize = 3;

/// The program's signal state.
pub(crate) struct Signals {
    actions: [Action; SLOTS],
    pub(super) pending: Pending,
    files: SignalFiles,
    /// Sent to the program, for whichever thread takes them.
    pub(super) shared: u64,
    /// The running thread's.
    pub(crate) own: Own,
    /// Entries of the supervisor's queue taken so far.
    taken: u64,
    /// Calls since the primary's last word.
    quiet: u32,
}

/// What only the primary has seen.
#[derive(Clone, Copy, Default)]
pub(crate) struct Inbox {
    /// Signals that have come, or would come from the timers that are due.
    set: u64,
    /// Entries of the supervisor's queue looked at.
    head: u64,
    /// A timer is due.
    due: bool,
}

impl Signals {
    /// As inherited from whoever started rcoe.
    ///
    /// It was zeroes: default actions, and nothing that waits.
    pub(crate) fn begin(&mut self, control: &Control) {
        let ignored = control.ignored.load(Ordering::Relaxed);
        for (action, signal) in self.actions.iter_mut().skip(1).zip(1..) {
            if ignored & bit(signal) != 0 {
                action[HANDLER] = SIG_IGN;
            }
        }
        self.own = Own::inherit(control.blocked.load(Ordering::Relaxed) & !UNSTOPPABLE);
    }

    /// A primary will tell again which of the descriptors for signals are readable.
    pub(crate) fn forget_told(&mut self) {
        self.files.forget_told();
    }

    /// What was handled is default again, what was ignored stays so.
    pub(crate) fn reset_handlers(&mut self) {
        for action in &mut self.actions {
            let ignored = action[HANDLER] == SIG_IGN;
            *action = [if ignored { SIG_IGN } else { SIG_DFL }, 0, 0, 0];
        }
    }

    /// Is there any handler?
    pub(crate) fn has_handlers(&self) -> bool {
        let [_, handled] = self.dispositions();
        handled != 0
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

    /// Signals that wait, with what comes with each.
    pub(crate) const fn count_waiting(&self) -> usize {
        self.pending.count()
    }

    /// The thread in this slot has ended.
    pub(crate) fn forget_thread(&mut self, slot: usize) {
        self.pending
            .forget_thread(u16::try_from(slot).expect("slots are few"));
    }

    /// Children are not awaited: they are forgotten when they end.
    pub(super) fn awaits_no_children(&self) -> bool {
        let action = &self.actions[SIGCHLD as usize];
        action[HANDLER] == SIG_IGN || action[FLAGS] & u64::from(SA_NOCLDWAIT) != 0
    }

    fn effect(&self, signal: u32) -> Effect {
        match self.actions[signal as usize][HANDLER] {
            SIG_IGN => Effect::Nothing,
            SIG_DFL if bit(signal) & HARMLESS != 0 => Effect::Nothing,
            SIG_DFL if bit(signal) & STOPPING != 0 => Effect::Stop,
            SIG_DFL => Effect::End,
            _ => Effect::Handler,
        }
    }

    /// Signals that would do this to the program.
    fn that(&self, effect: Effect) -> u64 {
        (1..=LAST)
            .filter(|signal| self.effect(*signal) == effect)
            .fold(0, |set, signal| set | bit(signal))
    }

    /// Does the program not want to hear of children that stop or go on, and is this such news?
    fn is_unwanted(&self, code: i32) -> bool {
        let flags = self.actions[SIGCHLD as usize][FLAGS];
        [CLD_STOPPED, CLD_CONTINUED].contains(&code.cast_unsigned())
            && flags & u64::from(SA_NOCLDSTOP) != 0
    }

    /// Is there nothing to deliver, and no mask to be put back?
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.open(&self.own) == 0 && self.own.saved.get().is_none()
    }

    /// Is nothing of the program's signals under way, of which common calls would have to know?
    pub(crate) fn are_calm(&self) -> bool {
        self.is_idle() && self.files.is_empty()
    }

    /// The primary's word has come, and nothing with it.
    #[inline]
    pub(crate) const fn hear_nothing(&mut self) {
        self.quiet = 0;
    }

    /// A result with which nothing comes.
    #[inline]
    pub(crate) const fn nothing_new(&self, result: i64) -> Outcome {
        Outcome {
            result,
            due: 0,
            taken: self.taken,
            order: 0,
        }
    }

    /// Has nothing come with the result of a call?
    #[inline]
    pub(crate) const fn is_nothing_new(&self, outcome: &Outcome) -> bool {
        outcome.due == 0 && outcome.order == 0 && outcome.taken == self.taken
    }

    /// Signals that a thread with this mask would act upon, of those pending for all and for it.
    fn open(&self, own: &Own) -> u64 {
        (self.shared | own.pending) & !own.mask
    }
}

impl PerProcess for Signals {
    /// As `fork` leaves them: nothing is pending.
    fn in_child(&mut self, _: &Who) {
        let Self {
            actions: _,
            pending,
            files,
            shared,
            own,
            taken,
            quiet,
        } = self;
        pending.clear();
        files.forget_told();
        (own.pending, own.saved) = (0, Maybe::NONE);
        (*shared, *taken, *quiet) = (0, 0, 0);
    }
}

impl PerProgram for Signals {
    /// As `execve` leaves them: no handlers, no stack for them, and what is pending still is.
    fn in_program(&mut self, _: &Program) {
        self.reset_handlers();
        let Self {
            actions: _,
            pending: _,
            files: _,
            shared: _,
            own,
            taken: _,
            quiet: _,
        } = self;
        (own.stack, own.saved) = ([0, SS_DISABLE, 0], Maybe::NONE);
    }
}

/// What a signal does to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    Stop,
    End,
    Handler,
}

/// Primary: has the host call at the deadlines of timers.
pub(crate) fn arm_timers(kernel: &mut Kernel) {
    timers::arm(kernel);
}

/// Primary: looks at what has arrived from outside.
fn look(kernel: &mut Kernel) {
    timers::arm(kernel);
    let (control, signals) = (kernel.control, &kernel.signals);
    let head = control.signal_head.load(Ordering::Acquire);
    let inbox = &mut kernel.inbox;
    if RCOE_INTERRUPT.load(Ordering::Relaxed) == 0 && head == inbox.head {
        return;
    }
    // First the flag, then the words: a later arrival sets the flag again.
    RCOE_INTERRUPT.store(0, Ordering::SeqCst);
    let head = control.signal_head.load(Ordering::Acquire);
    for at in inbox.head.max(signals.taken)..head {
        inbox.set |= entry(control, at).map_or(0, |info| bit(info.signal));
    }
    inbox.head = head;
    let due = timers::due(kernel);
    let inbox = &mut kernel.inbox;
    inbox.due |= due.is_some();
    inbox.set |= due.unwrap_or(0);
}

/// An entry of the supervisor's queue; `None` if it is no signal.
fn entry(control: &Control, at: u64) -> Option<Info> {
    let slot = &control.signals[convert::size(at) % SIGNAL_SLOTS];
    let queued = Queued::unpack(slot.each_ref().map(|cell| cell.load(Ordering::Relaxed)));
    let Queued {
        signal,
        code,
        pid,
        uid,
        value,
    } = queued;
    let valid = (1..=LAST).contains(&signal);
    valid.then(|| Info::sent(signal, code, pid, uid, value))
}

/// Primary: is there anything from outside that comes with the result of a system call, or may be?
#[inline(always)]
pub(crate) fn is_anything_due(kernel: &Kernel) -> bool {
    has_come(kernel) || kernel.inbox.due || !kernel.timers.is_armed()
}

/// Primary: the same, if nothing was due before a call, and it has not looked since.
#[inline(always)]
pub(crate) fn has_come(kernel: &Kernel) -> bool {
    // As [`has_been_sent`], with one look at where that stands: two instructions of each call.
    let control = kernel.control;
    RCOE_INTERRUPT.load(Ordering::Relaxed) != 0
        || control.signal_head.load(Ordering::Acquire) != kernel.signals.taken
        || kernel.orders.is_anything_new(control)
}

/// Primary: has the program been sent a signal that it has not heard of?
#[inline(always)]
pub(crate) fn has_been_sent(kernel: &Kernel) -> bool {
    kernel.control.signal_head.load(Ordering::Acquire) != kernel.signals.taken
}

/// Primary: is there a signal that the program has not heard of, one of its timers' included?
pub(crate) fn is_one_there(kernel: &Kernel) -> bool {
    has_been_sent(kernel) || kernel.inbox.due || timers::due(kernel).is_some()
}

/// Primary: was it called away since it last looked at what has arrived?
#[inline]
pub(super) fn is_called() -> bool {
    RCOE_INTERRUPT.load(Ordering::Relaxed) != 0
}

/// Primary: has anything arrived that is not published yet?
pub(crate) fn has_arrived(kernel: &mut Kernel) -> bool {
    look(kernel);
    let signals = &kernel.signals;
    kernel.inbox.due || kernel.inbox.head != signals.taken
}

/// Is this signal neither ignored nor blocked by the running thread?
pub(super) fn is_heeded(kernel: &Kernel, signal: u32) -> bool {
    let signals = &kernel.signals;
    signals.actions[signal as usize][HANDLER] != SIG_IGN && signals.own.mask & bit(signal) == 0
}

/// Primary: what has arrived from outside since the last published record, for [`Outcome`].
pub(crate) fn collect(kernel: &mut Kernel) -> [u64; 2] {
    look(kernel);
    let inbox = &kernel.inbox;
    [u64::from(inbox.due), inbox.head.max(kernel.signals.taken)]
}

/// Primary, before or after a call that may block: has something arrived that the program acts on?
pub(crate) fn must_interrupt(kernel: &mut Kernel) -> bool {
    look(kernel);
    let signals = &kernel.signals;
    let open = kernel.inbox.set & !signals.own.mask | signals.open(&signals.own);
    targets::acted_upon(kernel, open) != 0
}

/// Result of a call that a signal keeps from being begun. The signal may have come at any time
/// since the call before: without replicas its handler would have run then, and the program might
/// not have come to wait. So it must not wait now, unless the handler says that calls go on. If the
/// call brought a mask of its own, the program has let the signal in for just that.
pub(super) fn before_begun(kernel: &Kernel) -> i64 {
    match kernel.signals.own.saved.get() {
        Some(_) => sys::error(EINTR),
        None => GIVEN_UP,
    }
}

/// All replicas, with the result of a call: what has arrived counts from here on.
pub(crate) fn take(kernel: &mut Kernel, outcome: Outcome) {
    kernel.signals.quiet = 0;
    kernel.orders.take(outcome.order);
    let news = kernel.signals.taken..outcome.taken;
    if news.is_empty() && outcome.due == 0 {
        return;
    }
    assert!(
        outcome.taken - news.start <= SIGNAL_SLOTS as u64,
        "the supervisor keeps what was not taken"
    );
    kernel.signals.taken = outcome.taken;
    kernel.inbox = Inbox {
        head: kernel.inbox.head.max(outcome.taken),
        ..Inbox::default()
    };
    for at in news {
        let Some(info) = entry(kernel.control, at) else {
            continue;
        };
        kernel.event(kind::of(0, kind::SIGNALS), bit(info.signal));
        Limits::hear(kernel, &info);
        if info.signal == SIGCHLD && ENDS.contains(&info.code) {
            processes::ended(kernel, low32(info.words[0]));
        }
        arrive(kernel, info, Target::Program);
    }
    kernel.report.taken.store(outcome.taken, Ordering::Release);
    if outcome.due != 0 {
        timers::expire(kernel);
    }
    rouse(kernel);
    signalfd::refresh(kernel);
}

/// Counts a call, which may or may not bring a word from the primary.
#[inline]
pub(super) const fn count_call(kernel: &mut Kernel) {
    kernel.signals.quiet += 1;
}

/// Has the program made only calls for long that bring no word from the primary? All replicas say
/// the same.
#[inline]
pub(crate) const fn is_due(kernel: &Kernel) -> bool {
    kernel.signals.quiet >= QUIET_CALLS
}

/// Takes what has arrived, in a call that has no other word from the primary.
#[cold]
pub(crate) fn look_outside(kernel: &mut Kernel) {
    let [due, taken, order] = transfer::agree_all(kernel, true, |kernel| {
        let [due, taken] = collect(kernel);
        [due, taken, kernel.orders.next(kernel.control)]
    });
    let result = 0;
    take(
        kernel,
        Outcome {
            result,
            due,
            taken,
            order,
        },
    );
}

/// A signal for the program or one thread becomes pending, unless it does nothing and cannot be
/// waited for either, not being blocked. Returns false if there was no room for it.
pub(crate) fn arrive(kernel: &mut Kernel, info: Info, to: Target) -> bool {
    let signal = bit(info.signal);
    if signal == bit(SIGCONT) {
        actions::discard(kernel, STOPPING);
    } else if signal & STOPPING != 0 {
        actions::discard(kernel, bit(SIGCONT));
    }
    if signal == bit(SIGCHLD) && kernel.signals.is_unwanted(info.code) {
        return true;
    }
    let blocked = match to {
        Target::Program => blocked_by_all(kernel),
        Target::Thread(slot) => own_of_mut(kernel, usize::from(slot)).mask,
    };
    if kernel.signals.effect(info.signal) == Effect::Nothing && blocked & signal == 0 {
        return true;
    }
    let roomy =
        !kernel.signals.pending.is_full() && limits::allow_signal(kernel, info.signal, info.code);
    let set = match to {
        Target::Program => &mut kernel.signals.shared,
        Target::Thread(slot) => &mut own_of_mut(kernel, usize::from(slot)).pending,
    };
    let waits = *set & signal != 0;
    let queued = !waits || info.signal >= FIRST_QUEUED;
    if queued && !roomy {
        // Without room one of the old kind, or a plain one, still comes, and without its sender.
        let comes = info.signal < FIRST_QUEUED || info.code == SI_USER;
        if comes {
            *set |= signal;
        }
        return comes;
    }
    *set |= signal;
    kernel.signals.pending.push(info, to, waits);
    true
}

/// Makes a signal pending for the running thread, as the kernel does on a failed call.
pub(crate) fn raise(kernel: &mut Kernel, signal: u32) {
    let slot = u16::try_from(kernel.threads.current_slot()).expect("slots are few");
    let info = Info::sent(signal, SI_USER, kernel.processes.pid, sys::getuid(), 0);
    arrive(kernel, info, Target::Thread(slot));
}

fn valid_signal(number: u64) -> Option<u32> {
    u32::try_from(number)
        .ok()
        .filter(|signal| (1..=LAST).contains(signal))
}

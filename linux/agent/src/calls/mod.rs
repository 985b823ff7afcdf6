//! What each system call of the program becomes.
//!
//! The table decides the class; this module folds the arguments into the trace, hands the call to
//! the code of its class, folds the result, and delivers signals on the way out.

pub(crate) mod acting;
pub(crate) mod agreed;
pub(crate) mod barriers;
pub(crate) mod clone;
mod credentials;
pub(crate) mod descriptors;
mod emulated;
mod futex;
pub(crate) mod io;
mod ipc;
pub(crate) mod limits;
pub(crate) mod made;
pub(crate) mod memory;
mod order;
pub(crate) mod outgoing;
mod paths;
pub(crate) mod points;
pub(crate) mod processes;
pub(crate) mod scheduling;
pub(crate) mod shared;
pub(crate) mod signals;
pub(crate) mod status;
mod straight;
pub(crate) mod timers;

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::ENOSYS;
use rcoe_core::Compare;
use rcoe_linux_abi::{Note, StatClass};
use rcoe_linux_syscalls::{Class, Resolved, Table};

use crate::protocol::arguments;
use crate::recover::takeover;
use crate::sched::schedule;

pub(crate) use signals::targets;
use straight::Way;

pub(crate) use self::straight::ways::Calm;
use crate::arch::entry::{Leave, TrapFrame};
use crate::arch::rseq::Words;
use crate::kernel::{self, Kernel, kind};
use crate::memory::deferred;
use crate::memory::guest::Fault;
use crate::recover::reintegration;
use crate::sched::turns;
use crate::sys;
use crate::sys::numbers::common::READ;

/// Exit status of the program under `--strict` after an unsupported call.
const STRICT_STATUS: u8 = 125;

/// Result of a call whose thread has to wait, or has ended; no program ever sees it.
pub(crate) const PARKED: i64 = -(1 << 20);
/// Result of a call that the primary left for news that all replicas take first; it is then made
/// again. No program ever sees it either.
const NEWS: i64 = PARKED - 1;

/// A system call of the program, as its registers say. Number and arguments stand in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) nr: u64,
    pub(crate) raw: [u64; 6],
    pub(crate) what: &'static Resolved,
}

const _: () = {
    assert!(core::mem::offset_of!(Call, nr) == 0);
    assert!(core::mem::offset_of!(Call, raw) == 8);
};

impl Call {
    /// The call with this number; `None` if the table does not know it.
    #[inline(always)]
    pub(crate) fn new(nr: u64, raw: [u64; 6]) -> Option<Self> {
        let what = rcoe_linux_syscalls::entry(nr)?.resolve(&raw);
        Some(Self { nr, raw, what })
    }

    /// The call that the program makes, of which this is known.
    #[inline(always)]
    pub(crate) const fn of(frame: &TrapFrame, what: &'static Resolved) -> Self {
        let (nr, raw) = arguments_of(frame);
        Self { nr, raw, what }
    }

    /// The same of a known number: registers that are none of its arguments count as zeroes.
    #[inline(always)]
    pub(crate) const fn of_known(frame: &TrapFrame, nr: u64, what: &'static Resolved) -> Self {
        let (_, mut raw) = arguments_of(frame);
        let mut at = what.nargs as usize;
        while at < raw.len() {
            raw[at] = 0;
            at += 1;
        }
        Self { nr, raw, what }
    }

    /// Number and arguments, where they stand.
    #[inline]
    pub(crate) fn words(&self) -> &Words {
        // SAFETY: the first seven words of the structure, as asserted above.
        unsafe { &*(&raw const *self).cast() }
    }

    /// Argument `i` in its true width.
    #[inline]
    pub(crate) fn arg(&self, i: usize) -> u64 {
        self.what.canonical(i, &self.raw)
    }
}

/// Entry from the assembly. Returns what is to be loaded from the frame.
#[unsafe(no_mangle)]
extern "C" fn rcoe_system_call(frame: &mut TrapFrame) -> Leave {
    let kernel = kernel::kernel();
    let make = kernel.calm.way(frame.cpu.regs.rax);
    make(kernel, frame)
}

/// Makes whatever call it is.
#[cold]
#[inline(never)]
fn make_any(kernel: &mut Kernel, frame: &mut TrapFrame) -> Leave {
    let (nr, raw) = arguments_of(frame);
    if kernel.replica.env().meeting.is_under_way() {
        points::at_call(kernel);
    }
    let Some(entry) = rcoe_linux_syscalls::entry(nr) else {
        frame.cpu.regs.rax = beyond_table(kernel, nr, &raw).cast_unsigned();
        look_around(kernel, frame, false);
        return Leave::Registers;
    };
    // Resolved where it stands: it would be copied otherwise.
    let mut call = Call { nr, raw, what: ANY };
    call.what = entry.resolve(&call.raw);
    if kernel.calm.is_calm() && call.what.straight {
        straight::enter(kernel, frame, call.what)
    } else {
        go_on(kernel, frame, &call, &Way::Long)
    }
}

/// What some call is.
const ANY: &Resolved = rcoe_linux_syscalls::straight(READ).expect("a call of the table");

/// Number and arguments of the call that the program makes.
#[inline(always)]
const fn arguments_of(frame: &TrapFrame) -> (u64, [u64; 6]) {
    let regs = &frame.cpu.regs;
    let raw = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
    (regs.rax, raw)
}

/// The rest of a call that does not end straight.
#[cold]
#[inline(never)]
fn go_on(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call, way: &Way) -> Leave {
    let all_registers = handle(kernel, frame, call, way);
    look_around(kernel, frame, false);
    Leave::with(all_registers)
}

/// At the end of a call that did not end straight, or of a point: is anything to be done, and how
/// will the next one go?
fn look_around(kernel: &mut Kernel, frame: &mut TrapFrame, is_point: bool) {
    reintegration::carry_out(kernel);
    kernel.calm = Calm::of(kernel);
    if kernel.replica.env().meeting.is_under_way() {
        points::behind_call(kernel, frame);
    }
    points::go_on(kernel, is_point);
}

/// The long way, or the end of it. Returns whether all registers changed.
fn handle(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call, way: &Way) -> bool {
    // Not every way out comes to where this is found out anew.
    kernel.alert();
    if let Way::News(result) = *way {
        return finish(kernel, frame, call, result);
    }
    kernel.count_call(stat_class(call.what.class));
    if emulated::is_sigreturn(call) {
        kernel.enter(call.nr);
        signals::sigreturn(kernel, frame);
        signals::deliver(kernel, frame, call);
        return true;
    }
    let result = perform(kernel, frame, call);
    finish(kernel, frame, call, result)
}

/// The way out of a call with this result.
fn finish(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call, result: i64) -> bool {
    if result != PARKED && kernel.turns.count_call() {
        turns::pass(kernel);
    }
    if result == PARKED || kernel.threads.count_call() {
        return schedule::leave(kernel, frame, call, result);
    }
    if signals::is_due(kernel) {
        signals::look_outside(kernel);
    }
    frame.cpu.regs.rax = result.cast_unsigned();
    let replaced = kernel.processes.take_replaced();
    signals::deliver(kernel, frame, call) || replaced
}

pub(crate) fn perform(kernel: &mut Kernel, frame: &mut TrapFrame, call: &Call) -> i64 {
    outgoing::before(kernel, call);
    kernel.enter(call.nr);
    signals::count_call(kernel);
    let output = call.what.class == Class::Output;
    if arguments::name_agent(call) {
        kernel.event(kind::of(call.nr, kind::FAULTY_POINTER), 0);
        return Fault::RESULT;
    }
    if deferred::is_active() && deferred::before(call) {
        processes::release_twin(kernel);
    }
    if (output || kernel.compare >= Compare::Args)
        && let Err(Fault) = arguments::fold_apart(kernel, call)
    {
        kernel.event(kind::of(call.nr, kind::FAULTY_POINTER), 0);
        return order::of_fault(kernel, call);
    }
    let takes = kernel.masks && takeover::is_final(call);
    let vote = kernel.compare == Compare::Every || takes && !outgoing::takes_later(kernel, call);
    if vote && !output {
        kernel.rendezvous();
    }
    shared::files::before_call(kernel, call);
    let result = match call.what.class {
        Class::Local | Class::Emulated => {
            let result = emulated::perform(kernel, frame, call);
            if deferred::changes_credentials(call) {
                kernel.report.changed.store(1, Ordering::Release);
                // The kernel unties a process from its parent then.
                let supervisor = &kernel.control.supervisor;
                sys::die_with_supervisor(supervisor.load(Ordering::Relaxed));
            }
            result
        }
        Class::Input => match emulated::special_input(kernel, call) {
            Some(result) => result,
            None => io::input(kernel, call),
        },
        Class::Output => match emulated::special_output(kernel, call) {
            Some(result) => result,
            None => io::output(kernel, call),
        },
        Class::Process => match clone::thread(kernel, frame, call) {
            Some(result) => result,
            None => processes::perform(kernel, call, frame),
        },
        Class::Unsupported => refuse(kernel, call),
    };
    after(kernel, call, result);
    if output || kernel.compare >= Compare::Args {
        kernel.outcome.set(result);
    }
    result
}

/// All replicas, after any call: what its result changes elsewhere.
fn after(kernel: &mut Kernel, call: &Call, result: i64) {
    signals::signalfd::after(kernel, call, result);
    takeover::kinds::after(call, call.what);
    shared::files::after_call(kernel, call, result);
    processes::terminals::after_call(kernel, call, result);
    outgoing::after(kernel, call, result);
}

const fn stat_class(class: Class) -> StatClass {
    match class {
        Class::Local => StatClass::Local,
        Class::Emulated => StatClass::Emulated,
        Class::Input => StatClass::Input,
        Class::Output => StatClass::Output,
        Class::Process => StatClass::Process,
        Class::Unsupported => StatClass::Unsupported,
    }
}

/// A number that is not in the table: rcoe's own call, or unknown.
fn beyond_table(kernel: &mut Kernel, nr: u64, raw: &[u64; 6]) -> i64 {
    if nr != rcoe_linux_sys::ADD_TRACE {
        return unknown(kernel, nr);
    }
    kernel.count_call(StatClass::Emulated);
    match crate::memory::guest::digest(raw[0], raw[1]) {
        Ok(digest) => {
            kernel.event(kind::of(0, kind::TRACE), digest);
            0
        }
        Err(Fault) => {
            kernel.event(kind::of(0, kind::FAULTY_POINTER), 0);
            Fault::RESULT
        }
    }
}

/// A number that no kernel of this table knows.
fn unknown(kernel: &mut Kernel, nr: u64) -> i64 {
    kernel.count_call(StatClass::Unsupported);
    kernel.event(kind::of(nr, kind::NUMBER), nr);
    refuse_with(kernel, Note::UnsupportedCall, nr)
}

/// A call in the manner of 32-bit programs.
pub(crate) fn refuse_foreign(kernel: &mut Kernel) -> i64 {
    /// No call has this number; reports show it as unknown.
    const FOREIGN: u64 = 0xf_ffff;
    unknown(kernel, FOREIGN)
}

/// Namespaces, and what else `clone` and `unshare` may ask for, unless the kernel refuses it, too.
pub(crate) fn not_carried(kernel: &mut Kernel, call: &Call) -> i64 {
    match order::of_namespaces(call) {
        Some(error) => error,
        None => refuse(kernel, call),
    }
}

/// A call that is not supported: ENOSYS and one warning, or the end under `--strict`.
pub(crate) fn refuse(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.what.quiet {
        return -i64::from(call.what.errno);
    }
    let table = call.what.call.requests.as_ref().map(|it| it.table);
    let (note, argument) = match table {
        Some(Table::Ioctl) => (Note::UnsupportedIoctl, call.arg(1)),
        Some(Table::Fcntl) => (Note::UnsupportedFcntl, call.arg(1)),
        Some(Table::Prctl) => (Note::UnsupportedPrctl, call.arg(0)),
        Some(Table::Lseek) | None => (Note::UnsupportedCall, call.nr),
    };
    refuse_with(kernel, note, argument);
    -i64::from(call.what.errno)
}

/// ENOSYS with a note, or the end under `--strict`.
pub(crate) fn refuse_with(kernel: &mut Kernel, note: Note, argument: u64) -> i64 {
    kernel.note(note, argument);
    if kernel.strict {
        kernel.end(rcoe_linux_abi::Ending::Exit(STRICT_STATUS));
    }
    sys::error(ENOSYS)
}

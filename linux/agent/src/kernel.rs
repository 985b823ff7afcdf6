//! The one global state of a replica's agent, and what every part of it needs.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_core::{Compare, Halt, Kind, Replica, ReplicaSet};
use rcoe_linux_abi::{Control, Ending, Note, Phase, Report, StatClass};

use crate::arch::rewrite::Rewriter;
use crate::arch::sites::Traps;
use crate::arch::vdso::Clock;
use crate::arch::vdso::host::Reader;
use crate::calls::Calm;
use crate::calls::acting::Acting;
use crate::calls::barriers::Barriers;
use crate::calls::clone;
use crate::calls::limits::Limits;
use crate::calls::made::Made;
use crate::calls::memory::Brk;
use crate::calls::outgoing::{self, notes::Outgoing, queue::Queue};
use crate::calls::processes::{self, Bounding, Processes};
use crate::calls::scheduling::Scheduling;
use crate::calls::shared::{Shared, arena, files};
use crate::calls::signals::{Inbox, Signals};
use crate::calls::timers::Timers;
use crate::lifetime::{PerCopy, PerProcess, PerProgram, Program, Who, state};
use crate::memory::withheld::Withheld;
use crate::one_thread::OneThread;
use crate::protocol::arguments::Agreed;
use crate::protocol::direct::Direct;
use crate::protocol::env::{self, LinuxEnv};
use crate::protocol::meeting;
use crate::protocol::requests;
use crate::protocol::reread::LastRead;
use crate::protocol::segments::Segments;
use crate::protocol::transfer::Buffer;
use crate::protocol::uring::Ring;
use crate::recover::reintegration::Orders;
use crate::sched::threads::Threads;
use crate::sched::turns::slice::Slice;
use crate::sched::turns::{self, Turns};
use crate::sys;

/// Event kinds, as the supervisor knows them.
pub(crate) mod kind {
    use rcoe_core::Kind;
    pub(crate) use rcoe_linux_abi::event::{
        ARG, BEFORE, CALL, CONTENT, END, FAULT, FAULTY_POINTER, INSTRUCTION, LAYOUT, NUMBER, ORDER,
        POINT, SIGNALS, TRACE, TURN,
    };

    /// Event `what` of call `nr`.
    #[inline]
    pub(crate) const fn of(nr: u64, what: u32) -> Kind {
        Kind(rcoe_linux_abi::event::code(nr, what))
    }

    /// The same of a call that the table knows.
    #[inline]
    pub(crate) const fn of_known(nr: u64, what: u32) -> Kind {
        of(nr & 0xfff, what)
    }
}

/// What only the first replica of all knows when it starts.
pub(crate) struct Start {
    pub(crate) reader: Reader,
    pub(crate) acting: Acting,
}

state! {
    /// The agent's state in this replica: first what is alike in all, then what is its own. The
    /// order is that of the memory, see [`crate::memory::own`].
    struct Kernel, from (start: Start, who, program);

    alike {
        // Tables, of which a program fills little. What is said of their use comes first in each.
        outgoing: Outgoing = zeroes, child stays, program stays;
        shared: Shared = zeroes, child renewed, program renewed;
        traps: Traps = zeroes, child stays, program renewed;
        rewriter: Rewriter = zeroes, child stays, program renewed;
        processes: Processes = [|it| it.begin(
            who.pid,
            who.control.sid.load(Ordering::Relaxed),
        )], child renewed, program stays;
        timers: Timers = [Timers::begin], child renewed, program renewed;
        signals: Signals = [|it| it.begin(who.control)], child renewed, program renewed;

        // All else is small, and most of it written by every process: on few pages.
        withheld: Withheld = (Withheld::NONE), child renewed, program renewed;
        threads: Threads = (Threads::of_replica(who.control)), child renewed, program renewed;

        // Fixed for the run.
        compare: Compare = (Compare::from_word(who.control.compare.load(Ordering::Relaxed))),
            child stays, program stays;
        strict: bool = (who.control.strict.load(Ordering::Relaxed) != 0),
            child stays, program stays;

        // Handed on to children and to programs: only calls change it.
        clock: Clock = (Clock::new(who.control, start.reader)), child stays, program stays;
        limits: Limits = (Limits::given(who.control)), child stays, program stays;
        acting: Acting = (start.acting), child stays, program stays;
        scheduling: Scheduling = (Scheduling::OF_HOST), child renewed, program stays;
        bounding: Bounding = (Bounding::UNKNOWN), child stays, program stays;

        // A process's.
        control: &'static Control = (who.control), child anew, program stays;
        /// Only one replica was started: nobody to publish to.
        alone: bool = (who.places() == 1), child anew, program stays;
        /// The group can lose a primary and go on: notes are kept for a successor.
        masks: bool = (who.places() > 2 && who.control.mask.load(Ordering::Relaxed) != 0),
            child anew, program stays;
        turns: Turns = (Turns::new(who.control)), child renewed, program stays;
        orders: Orders = (Orders::NONE), child anew, program stays;
        /// The result of the last call, which enters the trace with whatever comes next.
        outcome: LastResult = (LastResult::NONE), child stays, program stays;

        // A program's, which a child goes on with.
        brk: Brk = (Brk::new(program.brk_start)), child stays, program anew;
        barriers: Barriers = (Barriers::NONE), child stays, program anew;
    }

    own {
        // Who it is, and what it has to do with its siblings.
        replica: Replica<'static, LinuxEnv> = (env::join(who)), child anew, copy renewed;
        report: &'static Report = (who.report), child anew, copy anew;
        /// The slice of shared memory of this replica's number.
        slice: Slice = (Slice::new(who.id.index())), child anew, copy anew;
        /// Membership changes after which this replica has looked at what a lost primary left.
        inherited: u64 = (0), child anew, copy stays;

        // Of the present call.
        /// The present call as it was folded.
        agreed: Agreed = (Agreed::NOTHING), child stays, copy stays;
        /// Nothing rare is under way: see [`crate::calls`]'s straight way.
        calm: Calm = (Calm::NOT), child anew, copy stays;
        /// Primary: when it began a call that waits for some time at most.
        begun: Option<u64> = (None), child anew, copy stays;
        /// Primary: what came of the present call.
        made: Made = (Made::new()), child stays, copy stays;

        // What a primary knows, and can find out again.
        /// Primary: what has arrived and is not published yet.
        inbox: Inbox = (Inbox::default()), child anew, copy anew;
        last_read: LastRead = (LastRead::default()), child stays, copy stays;
        /// Primary: of the file that it reads, and bytes that siblings may ask for.
        direct: Direct = (Direct::NOTHING), child anew, copy stays;
        ring: Ring = (Ring::NONE), child anew, copy anew;
        /// Primary: effects that are released later.
        queue: Queue = zeroes, child renewed, copy renewed;

        // Of the present call, and large.
        buffer: Buffer = zeroes, child stays, copy stays;
        segments: Segments = zeroes, child stays, copy stays;
    }
}

/// A result that is no event yet.
pub(crate) struct LastResult(i64);

impl LastResult {
    /// No call has such a result.
    pub(crate) const NONE: Self = Self(-1 << 30);

    /// A call has come to this.
    #[inline(always)]
    pub(crate) const fn set(&mut self, result: i64) {
        self.0 = result;
    }

    /// Takes it, as the value of an event; the same if there is none.
    #[inline(always)]
    pub(crate) const fn take(&mut self) -> u64 {
        core::mem::replace(self, Self::NONE).0.cast_unsigned()
    }

    #[inline(always)]
    const fn is_some(&self) -> bool {
        self.0 != Self::NONE.0
    }
}

/// The global state.
#[unsafe(link_section = ".bss.own.0")]
static KERNEL: OneThread<MaybeUninit<Kernel>> = OneThread::new(MaybeUninit::zeroed());

/// Sets the state; once per replica, before the program starts.
pub(crate) fn install(start: Start, who: &Who, program: &Program) {
    // SAFETY: the static came as zeroes, a replica is one kernel thread, and nobody holds a
    // reference yet.
    unsafe { Kernel::begin(KERNEL.get().cast(), start, who, program) }
}

/// The state of this replica.
///
/// Called once per entry into the agent. The entries never overlap: system calls come from the
/// program, and so do the faults that use it (a fault inside the agent either resumes at a guard's
/// landing or ends the replica, without touching this state).
pub(crate) fn kernel() -> &'static mut Kernel {
    // SAFETY: installed before the program starts; exclusive as argued above.
    unsafe { (*KERNEL.get()).assume_init_mut() }
}

/// What the supervisor tells this replica, also for a handler that has interrupted the agent;
/// `None` before the replica has begun.
pub(crate) fn told() -> Option<&'static Control> {
    let kernel = KERNEL.get().cast::<Kernel>();
    // SAFETY: a read of a pointer without a reference to the state around it, which the interrupted
    // code may hold; it is null until the state is installed, and valid for good from then on.
    unsafe { (*(&raw const (*kernel).control).cast::<*const Control>()).as_ref() }
}

/// Adds to a counter that this replica alone writes.
pub(crate) fn count(cell: &AtomicU64, by: u64) {
    cell.store(
        cell.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

impl Kernel {
    /// Where in memory this replica's own part of the state begins.
    pub(crate) fn own_begins(&self) -> u64 {
        (&raw const self.own) as u64
    }

    /// Something rare may be under way: who looks next finds out.
    #[inline]
    pub(crate) const fn alert(&mut self) {
        self.calm = Calm::NOT;
    }

    /// The waits to come are at the call of this number.
    #[inline(always)]
    pub(crate) fn enter(&mut self, nr: u64) {
        self.replica.env_mut().enter(nr);
        self.step();
    }

    /// A call comes next, whether this replica will wait in it or not: all count the same ones.
    #[inline(always)]
    pub(crate) fn step(&mut self) {
        if self.replica.env().meeting.is_on() {
            meeting::mark(self);
        }
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, kind: Kind, value: u64) {
        self.tell_outcome();
        self.replica.add_event(kind, value);
    }

    /// Adds the result of the last call, if it has not entered the trace.
    #[inline(always)]
    pub(crate) fn tell_outcome(&mut self) {
        if self.outcome.is_some() {
            let value = self.outcome.take();
            self.replica.add_event(kind::of(0, kind::BEFORE), value);
        }
    }

    /// Meets the siblings and compares.
    #[inline]
    pub(crate) fn rendezvous(&mut self) {
        if !self.alone {
            self.tell_outcome();
            if let Err(halt) = self.replica.rendezvous() {
                self.park(halt);
            }
        }
        if self.outgoing.is_open() {
            outgoing::settle(self);
        }
    }

    /// Primary, about to wait in the host: whoever it has yet to wake is woken.
    #[inline]
    pub(crate) fn settle_debt(&mut self) {
        let own = self.replica.outbox();
        let env = self.replica.env_mut();
        env.settle_debt(own);
        env.begin_anew();
    }

    /// Counts a call for `--stats`.
    #[inline(always)]
    pub(crate) fn count_call(&self, class: StatClass) {
        count(&self.report.calls[class as usize], 1);
    }

    /// Leaves a note for the supervisor to tell the user.
    pub(crate) fn note(&self, note: Note, argument: u64) {
        let index = self.report.note_count.load(Ordering::Relaxed);
        if let Some(slot) = self.report.notes.get(index as usize) {
            slot.store(
                u64::from(note as u32) << 32 | (argument & 0xffff_ffff),
                Ordering::Relaxed,
            );
            self.report.note_count.store(index + 1, Ordering::Release);
            self.notify();
        }
    }

    /// Asks for the supervisor's attention.
    pub(crate) fn notify(&self) {
        requests::call();
    }

    /// Ends the program in all replicas alike: a vote, then each goes for itself.
    pub(crate) fn end(&mut self, ending: Ending) -> ! {
        clone::give_up_all_robust(self);
        files::flush_all(self);
        arena::forget_all(self);
        processes::return_lent(self);
        processes::release_twin(self);
        self.event(kind::of(0, kind::END), u64::from(ending.pack()));
        self.replica.env_mut().expect_lasting();
        self.rendezvous();
        turns::leave(self);
        let calls: u64 = self.report.calls[..StatClass::Instruction as usize]
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .sum();
        let dispatched = self.report.dispatched.load(Ordering::Relaxed);
        self.report
            .rewritten
            .store(calls.saturating_sub(dispatched), Ordering::Relaxed);
        self.report.ending.store(ending.pack(), Ordering::Relaxed);
        self.report
            .phase
            .store(Phase::Ended as u32, Ordering::Release);
        sys::exit_group(match ending {
            Ending::Exit(status) => status,
            Ending::Signal(signal) => 128 + signal,
        })
    }

    /// Ends the program by a signal's default action.
    pub(crate) fn end_by(&mut self, signal: u32) -> ! {
        self.end(Ending::Signal(
            u8::try_from(signal).expect("signal numbers are small"),
        ))
    }

    /// Stops for good: the protocol has ended this replica or the whole run. The supervisor reads
    /// the reason from the outbox and reaps.
    #[cold]
    pub(crate) fn park(&self, _halt: Halt) -> ! {
        self.replica.env().leave_scene(ReplicaSet::empty());
        self.report
            .phase
            .store(Phase::Halted as u32, Ordering::Release);
        self.notify();
        loop {
            let bell = self.control.bell.load(Ordering::Acquire);
            requests::wait(self.control, bell);
        }
    }
}

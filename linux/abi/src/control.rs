//! What the supervisor alone writes.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::USAGE_WORDS;
use crate::jobs::{Job, Terminals};
use crate::layout::MAX_REPLICAS;
use crate::limits::LimitCells;

/// Length of the queue of collected signals.
pub const SIGNAL_SLOTS: usize = 64;

/// `Control::clock`: the program gets a vDSO, which reads clocks without a system call (the
/// default).
pub const CLOCK_VDSO: u32 = 0;
/// `Control::clock`: the program gets no vDSO and reads clocks by system calls.
pub const CLOCK_CALLS: u32 = 1;

/// `Control::gate`: the program waits for a debugger.
pub const GATE_CLOSED: u32 = 1;
/// `Control::gate`: the program is debugged.
pub const GATE_OPEN: u32 = 2;

/// A signal that has arrived from outside, as `siginfo_t` tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Its number.
    pub signal: u32,
    /// `si_code`.
    pub code: i32,
    /// The sender, or the child of which it tells.
    pub pid: u32,
    /// The sender's user.
    pub uid: u32,
    /// The value sent with it, or the child's status.
    pub value: u64,
}

impl Queued {
    /// As words of the queue.
    #[must_use]
    pub const fn pack(self) -> [u64; 3] {
        [
            (self.code.cast_unsigned() as u64) << 32 | self.signal as u64,
            (self.uid as u64) << 32 | self.pid as u64,
            self.value,
        ]
    }

    /// Reads the words of the queue.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "halves of words")]
    pub const fn unpack(words: [u64; 3]) -> Self {
        Self {
            signal: words[0] as u32,
            code: ((words[0] >> 32) as u32).cast_signed(),
            pid: words[1] as u32,
            uid: (words[1] >> 32) as u32,
            value: words[2],
        }
    }
}

/// Who has a process as a child that has not made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// Its group.
    pub by: u32,
    /// Adoptions are counted.
    pub count: u32,
}

impl Adoption {
    /// As a word, never 0.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.count as u64) << 32 | (self.by as u64 + 1)
    }

    /// Reads the word; `None` if the process was not adopted.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "halves of words")]
    pub const fn unpack(word: u64) -> Option<Self> {
        match (word as u32).checked_sub(1) {
            None => None,
            Some(by) => Some(Self {
                by,
                count: (word >> 32) as u32,
            }),
        }
    }
}

/// What the supervisor knows of a replica's process, as stored in `Control::state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ReplicaState {
    /// Not seen to stop or die.
    Alive = 0,
    /// Stopped by a signal (`SIGSTOP`), hence overdue as soon as someone waits for it.
    Stopped = 1,
    /// Gone; it will never publish again.
    Dead = 2,
}

/// Settings of a run, fixed before the first replica starts, and the live words the supervisor
/// updates while it runs.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// [`crate::LAYOUT_VERSION`].
    pub version: AtomicU32,
    /// Number of replicas, 1 to [`MAX_REPLICAS`].
    pub replicas: AtomicU32,
    /// The word of a [`rcoe_core::Compare`].
    pub compare: AtomicU32,
    /// [`CLOCK_VDSO`] or [`CLOCK_CALLS`].
    pub clock: AtomicU32,
    /// 1 if an unsupported system call ends the run instead of returning ENOSYS.
    pub strict: AtomicU32,
    /// 1 if effects whose result is known may be released later.
    pub defer: AtomicU32,
    /// 1 if what is found in files is kept for other runs.
    pub finds: AtomicU32,
    /// 1 if a faulty replica may be removed and the run go on; 0 stops at the first fault.
    pub mask: AtomicU32,
    /// 1 if replicas are stopped alike between calls, for signals and other threads.
    pub points: AtomicU32,
    /// 1 if replicas that differ tell where the program stands.
    pub scenes: AtomicU32,
    /// 1 if those who go on after a fault first wait until the supervisor has ended who was at
    /// fault: it looks at all of them before.
    pub hold: AtomicU32,
    /// [`GATE_CLOSED`] while replicas wait for a debugger before the program's first instruction,
    /// [`GATE_OPEN`] once it is there; 0 where there is none.
    pub gate: AtomicU32,
    /// 1 if more replicas than usable CPUs run, so that waiting must yield early.
    pub crowded: AtomicU32,
    /// CPU time a late replica may use beyond what its siblings needed, in nanoseconds.
    pub timeout_ns: AtomicU64,
    /// Wall-clock time after which a late replica is given up whatever its CPU time, nanoseconds.
    pub wall_cap_ns: AtomicU64,
    /// CPU time for which a thread computes while others are ready, in nanoseconds; 0 for ever.
    pub slice_ns: AtomicU64,
    /// 1 if it computes for longer where agreeing on the end would cost too much of that.
    pub slice_auto: AtomicU32,
    /// CPU time after which a program that came to no vote agrees on its state, in nanoseconds; 0
    /// for never.
    pub tick_ns: AtomicU64,
    /// What counts branches between points, in the words of `perf_event_open`: the type of the
    /// event plus one, and which event. 0 if nothing does.
    pub counter: AtomicU32,
    /// See [`Control::counter`]; of breakpoints the address of an instruction.
    pub counter_event: AtomicU64,
    /// 1 if visits to the place of the last point are counted.
    pub milestones: AtomicU32,
    /// Bytes of each slice of memory that processes share; 0 if there is no room for any.
    pub slice_bytes: AtomicU64,
    /// CPU number for each replica, or `u32::MAX` for no pinning.
    pub cores: [AtomicU32; MAX_REPLICAS],
    /// The supervisor's process id.
    pub supervisor: AtomicU32,
    /// What the program sees as its parent's process id; 1 once it has none.
    pub ppid: AtomicU32,
    /// Once the process that has made this one is gone: who has it as a child since, as
    /// [`Adoption::pack`] tells, or 0.
    pub adoption: AtomicU64,
    /// The signal that was asked for at the birth, to tell the parent of the end; SIGCHLD once the
    /// process has been adopted. None of the program's signals if nothing is to be told.
    pub exit_signal: AtomicU32,
    /// The signal by which the end was told, fixed when `ending` is set.
    pub told_by: AtomicU32,
    /// What the program sees as its process group.
    pub pgid: AtomicU32,
    /// What the program sees as its session.
    pub sid: AtomicU32,
    /// Of group 0 only: groups below this number have been allotted so far. Others are untouched,
    /// and so is the memory of their controls as long as nobody looks there.
    pub reach: AtomicU32,
    /// Number of the birth for which this group was allotted; 0 while nobody has it.
    pub serial: AtomicU32,
    /// 1 if the parent's primary was lost before anyone learnt of this birth: it does not count.
    pub abandoned: AtomicU32,
    /// 1 while a deadly signal is being judged: no replica may begin to share memory then.
    pub doomed: AtomicU32,
    /// [`crate::Ending::pack`] once the group's processes are gone, else 0.
    pub ending: AtomicU32,
    /// What the process has used, its awaited children included; fixed when `ending` is set.
    pub usage: [AtomicU64; USAGE_WORDS],
    /// Its process id, as the program knows it; 0 until its parent has told.
    pub pid: AtomicU32,
    /// Process id of the host's process that stands in for this one, or 0.
    pub stand_in: AtomicU32,
    /// Stops, and the terminal.
    pub job: Job,
    /// Of group 0 only: the terminals of the program's sessions.
    pub terminals: Terminals,
    /// Requests of this group's primary that were answered.
    pub answered: AtomicU64,
    /// Which attempt at the last one was answered.
    pub answered_attempt: AtomicU32,
    /// Process id of the replica that the last answer is for.
    pub answered_to: AtomicU32,
    /// The last answer: a value or a negative errno, as a system call returns it.
    pub answer: AtomicU64,
    /// Signals ignored when rcoe was started (bit `n - 1` for signal `n`); inherited as such.
    pub ignored: AtomicU64,
    /// Signals blocked when rcoe was started.
    pub blocked: AtomicU64,
    /// CPU affinity mask rcoe was started with; the program sees this one.
    pub affinity: [AtomicU64; 16],
    /// Limits of resources rcoe was started with; the program starts with these.
    pub limits: LimitCells,
    /// Length in bytes of [`Control::exe`].
    pub exe_len: AtomicU32,
    /// Absolute path of the program, eight bytes a word, for `/proc/self/exe`.
    pub exe: [AtomicU64; 512],
    /// [`ReplicaState`] of each replica.
    pub state: [AtomicU32; MAX_REPLICAS],
    /// Bumped, and futex-woken, after every change of a live word.
    pub bell: AtomicU32,
    /// The last order to the group ([`crate::SerialOrder::pack`]), or 0.
    pub order: AtomicU64,
    /// With [`crate::Order::CopySharer`]: the supervisor's turn has this number or a higher one.
    pub rest: AtomicU64,
    /// Number of signals ever put into [`Control::signals`].
    pub signal_head: AtomicU64,
    /// Queue of collected asynchronous signals, each as [`Queued::pack`] gives it. None is
    /// overwritten before all replicas have taken it.
    pub signals: [[AtomicU64; 3]; SIGNAL_SLOTS],
    /// Where the lengths of the threads' slices come from; fixed for the run.
    pub seed: AtomicU64,
    /// Nanoseconds for which job control kept the whole group stopped; no replica is late by them.
    pub paused_ns: AtomicU64,
    /// Length in bytes of [`Control::execfn`].
    pub execfn_len: AtomicU32,
    /// The path as `execve` would have got it, eight bytes a word, for `AT_EXECFN`.
    pub execfn: [AtomicU64; 512],
}

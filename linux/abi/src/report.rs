//! What a replica tells the supervisor, beside the protocol core's own outbox.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::limits::LimitCells;
use crate::scene::Scene;
use crate::{BLOCKS, GROUPS, Journal, LastWill, Letter, SCRUB_PAGES, USAGE_WORDS};

/// Number of notes a replica can leave; further ones are counted but lost.
pub const NOTE_SLOTS: usize = 128;

/// Words of its stack that a program gets back from a child made by `vfork`.
pub const LENT_WORDS: usize = 512;

/// In [`Report::adopted`]: nothing more is needed.
pub const ADOPTED: u32 = 1;
/// In [`Report::adopted`]: a twin is needed.
pub const TWIN_WANTED: u32 = 2;

/// Marks a process id in [`Report::births`] as that of a twin; no process id has this bit.
pub const TWIN: u32 = 1 << 31;

/// Classes of system calls counted by `--stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StatClass {
    /// Done by each replica on its own memory.
    Local = 0,
    /// Answered by the agent itself.
    Emulated = 1,
    /// Done by the primary, result published.
    Input = 2,
    /// Voted, then done by the primary once.
    Output = 3,
    /// Process creation and its kin.
    Process = 4,
    /// Refused with ENOSYS.
    Unsupported = 5,
    /// Trapped instructions (`rdtsc`, `cpuid`, `rdrand`).
    Instruction = 6,
}

/// Number of [`StatClass`] values.
pub const STAT_CLASSES: usize = 7;

/// How far a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// Nothing written yet.
    None = 0,
    /// Mapping the program.
    Loading = 1,
    /// The program runs.
    Running = 2,
    /// The program ended; see [`Report::ending`].
    Ended = 3,
    /// The protocol ended this replica (its outbox says why).
    Halted = 4,
    /// The agent failed; see the epitaph.
    Failed = 5,
}

/// How the program ended, as packed in [`Report::ending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `exit_group` with this status.
    Exit(u8),
    /// Killed by this signal's default action.
    Signal(u8),
}

impl Ending {
    /// Packs the ending into a non-zero word.
    #[must_use]
    pub const fn pack(self) -> u32 {
        match self {
            Self::Exit(status) => 0x100 | status as u32,
            Self::Signal(signal) => 0x200 | signal as u32,
        }
    }

    /// Unpacks a word; `None` if it is zero or malformed.
    #[must_use]
    pub const fn unpack(word: u32) -> Option<Self> {
        let low = (word & 0xff) as u8;
        match word >> 8 {
            1 => Some(Self::Exit(low)),
            2 => Some(Self::Signal(low)),
            _ => None,
        }
    }
}

/// Argument of [`Note::UnsupportedMmap`] for an `mremap`.
pub const REMAP: u64 = 0xffff;

/// Something the user should be told; see the constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Note {
    /// Unsupported system call; the argument is its number.
    UnsupportedCall = 1,
    /// Unsupported ioctl request; the argument is the request.
    UnsupportedIoctl = 2,
    /// Unsupported fcntl command.
    UnsupportedFcntl = 3,
    /// Unsupported prctl operation.
    UnsupportedPrctl = 4,
    /// Unsupported mmap (shared and writable file mapping); the argument is the flags word, or
    /// [`REMAP`].
    UnsupportedMmap = 5,
    /// The program tried to map, unmap or protect the agent's memory; the argument is the address.
    AgentMemory = 6,
    /// A fault inside the agent; the argument is the instruction address.
    AgentFault = 7,
    /// No room for another process; the argument is how many there may be.
    TooManyProcesses = 8,
    /// A program that would change privileges was refused.
    Privileged = 9,
    /// A program that rcoe cannot load was refused; the argument is the errno.
    NotLoadable = 10,
    /// A fork while memory would be shared with the child; the argument is how many files are
    /// mapped so.
    SharedWithChild = 11,
    /// A child whose memory the host does not let the replicas compare with the parent's.
    Unverified = 12,
    /// No room for memory that processes share; the argument is how many MiB there are.
    NoSharedMemory = 13,
    /// A program was executed without capabilities that the host's own `execve` would have added.
    FewerCapabilities = 14,
    /// `execve` was refused because the flag that keeps capabilities is locked.
    CapabilitiesLocked = 15,
    /// More instructions that tell replicas apart than are kept; the argument is how many are.
    TooManyInstructions = 20,
    /// Writing to a file that acts on a process was refused; the argument is its row in the table,
    /// or the number of rows, and [`OF_OTHER`] if it is another process's of the program.
    ActingFile = 30,
}

/// Part of the argument of [`Note::ActingFile`].
pub const OF_OTHER: u32 = 1 << 16;

impl Note {
    /// The note with this code.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::UnsupportedCall),
            2 => Some(Self::UnsupportedIoctl),
            3 => Some(Self::UnsupportedFcntl),
            4 => Some(Self::UnsupportedPrctl),
            5 => Some(Self::UnsupportedMmap),
            6 => Some(Self::AgentMemory),
            7 => Some(Self::AgentFault),
            8 => Some(Self::TooManyProcesses),
            9 => Some(Self::Privileged),
            10 => Some(Self::NotLoadable),
            11 => Some(Self::SharedWithChild),
            12 => Some(Self::Unverified),
            13 => Some(Self::NoSharedMemory),
            14 => Some(Self::FewerCapabilities),
            15 => Some(Self::CapabilitiesLocked),
            20 => Some(Self::TooManyInstructions),
            30 => Some(Self::ActingFile),
            _ => None,
        }
    }
}

/// Instead of a process id in [`Report::copy`]: the program has memory that cannot be copied.
pub const NOT_COPYABLE: u32 = u32::MAX;

/// A replica's own page of facts.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Report {
    /// [`Phase`].
    pub phase: AtomicU32,
    /// Process id of the replica.
    pub pid: AtomicU32,
    /// The program's first instruction, as soon as this replica waits there for a debugger.
    pub at_gate: AtomicU64,
    /// Tells of its end.
    pub will: LastWill,
    /// [`Ending::pack`] of how the program ended, or 0.
    pub ending: AtomicU32,
    /// Errno with which loading failed, or 0.
    pub load_error: AtomicU32,
    /// System calls by [`StatClass`].
    pub calls: [AtomicU64; STAT_CLASSES],
    /// Calls that came through Syscall User Dispatch.
    pub dispatched: AtomicU64,
    /// Calls that came through a rewritten site.
    pub rewritten: AtomicU64,
    /// Sites rewritten.
    pub sites: AtomicU64,
    /// Bytes of output content that entered the signature before a vote.
    pub bytes_voted: AtomicU64,
    /// Effects that were released later.
    pub deferred: AtomicU64,
    /// Rendezvous at which some waited.
    pub flushes: AtomicU64,
    /// Waits for a sibling that went beyond spinning to yielding.
    pub yields: AtomicU64,
    /// Waits for a sibling that slept on a futex.
    pub sleeps: AtomicU64,
    /// Requests that the supervisor had not answered when they were made once more.
    pub asked_again: AtomicU64,
    /// Nanoseconds that votes took in which members were removed, until this replica went on.
    pub removals_ns: AtomicU64,
    /// Process id of the sibling that this replica gave up last for having used up its CPU time, or
    /// 0.
    pub outrun: AtomicU32,
    /// Number of the system call the replica is in, plus one; 0 in the program.
    pub in_call: AtomicU64,
    /// 1 while this replica waits for siblings that are to be interrupted.
    pub meeting: AtomicU32,
    /// Points between calls that all agreed on, and attempts that came to no end.
    pub points: [AtomicU64; 2],
    /// Phases that these took, and the most that one took.
    pub phases: [AtomicU64; 2],
    /// Time that attempts took which this replica took part in, in ns, and the part of that for
    /// which the last replica was behind the first when they began: it would have to be caught up
    /// with anyway.
    pub attempts_ns: [AtomicU64; 2],
    /// Points from which branches or visits were counted, and targets that were passed, as counts
    /// tell.
    pub counted: [AtomicU64; 2],
    /// Threads that run as soon as the one that has the processor gives way, or a little later.
    pub held_up: AtomicU64,
    /// Signals that would end the program at once (bit `n - 1` for signal `n`): default action,
    /// not blocked. The supervisor ends all replicas itself when one of these arrives.
    pub fatal: AtomicU64,
    /// Signals that would stop the program, as [`Report::fatal`].
    pub stops: AtomicU64,
    /// Threads of the process, and their user.
    pub threads: AtomicU32,
    /// See [`Report::threads`].
    pub user: AtomicU32,
    /// How long its turns on a CPU are to be, in nanoseconds, if the program has said so; else 0.
    pub turn_ns: AtomicU64,
    /// The signal that the process wants when its parent ends, or 0.
    pub death_signal: AtomicU32,
    /// 1 if the process takes in the orphans among its descendants (PR_SET_CHILD_SUBREAPER).
    pub subreaper: AtomicU32,
    /// The program's limits of resources.
    pub limits: LimitCells,
    /// Signals of the supervisor's queue that this replica has taken.
    pub taken: AtomicU64,
    /// What this replica, as primary, notes for its successor.
    pub journal: Journal,
    /// Number of notes ever left.
    pub note_count: AtomicU32,
    /// Length of the epitaph in bytes.
    pub epitaph_len: AtomicU32,
    /// Children that exist for this replica, by group: number of the birth above, process id below.
    pub launched: [AtomicU64; GROUPS],
    /// Processes made for the birth of a child, by group: by the primary its first replica, by the
    /// others a twin of their own ([`TWIN`]). Number of the birth above, process id below.
    pub births: [AtomicU64; GROUPS],
    /// [`ADOPTED`] as soon as nothing more is needed of the replica of the parent, or of its twin;
    /// [`TWIN_WANTED`] before, if that replica is to leave one.
    pub adopted: AtomicU32,
    /// 1 if the host did not let this replica see its twin.
    pub unverified: AtomicU32,
    /// Births whose end the program has awaited, by group.
    pub reaped: [AtomicU64; GROUPS],
    /// What the children that the program has awaited have used.
    pub children: [AtomicU64; USAGE_WORDS],
    /// 1 as soon as this process, or one that it descends from, has changed its credentials.
    pub changed: AtomicU32,
    /// The last request that is answered.
    pub wish: Letter,
    /// The request that this replica would make as the primary, left before the vote on it.
    pub plan: Letter,
    /// The last [`crate::Ask::Background`].
    pub background: Letter,
    /// The last [`crate::Ask::Expired`].
    pub expired: Letter,
    /// The slice of memory that this replica shares with replicas of other processes, plus one; 0
    /// while it shares none. Such a process ends only at a point of its trace.
    pub sharing: AtomicU32,
    /// 1 while this replica waits for its turn among the processes that share memory.
    pub awaits_turn: AtomicU32,
    /// Number of the last turn to which this replica has come, whether it waits for it, has it or
    /// has had it, plus one.
    pub turn: AtomicU64,
    /// The file that the process executes: device and inode.
    pub executes: [AtomicU64; 2],
    /// How often the program has been replaced by another (`execve`).
    pub replaced: AtomicU32,
    /// The copy that this replica has made for a re-integration, the newcomer or a twin to compare
    /// with: its serial number above, the process id below, which is 0 if that failed.
    pub copy: AtomicU64,
    /// The same of the twin that a newcomer has made of itself.
    pub twin: AtomicU64,
    /// Newcomer: how far it is, in records, at the last point where members wait for it.
    pub step: AtomicU64,
    /// Nanoseconds for which the last re-integration has kept this replica from the program.
    pub pause_ns: AtomicU64,
    /// Where in the agent's memory a replica may differ from its siblings: start and end.
    pub own: [AtomicU64; 2],
    /// The last [`crate::Order::Digest`] or [`crate::Order::Scrub`] that was carried out, as a
    /// word.
    pub scrubbed: AtomicU64,
    /// 1 if it was left out, because the memory is not this replica's own yet, or not its alone.
    pub skipped: AtomicU32,
    /// Digests of the pages it named.
    pub digests: [AtomicU64; SCRUB_PAGES],
    /// The same of the blocks of each, as far as the page could be read.
    pub blocks: [[AtomicU32; BLOCKS]; SCRUB_PAGES],
    /// Which of them were odd here and are now what most members have, one bit each.
    pub repaired: AtomicU64,
    /// Address of the first byte of each of these that was odd.
    pub odd: [AtomicU64; SCRUB_PAGES],
    /// Which of them differ in such a way that nobody knows what is right.
    pub undecided: AtomicU64,
    /// Stack that the program lent its child by `vfork`, as the child leaves it at its end.
    pub lent: [AtomicU64; LENT_WORDS],
    /// [`Note`] code in the upper half, argument in the lower.
    pub notes: [AtomicU64; NOTE_SLOTS],
    /// Last words of a failed agent (UTF-8, eight bytes a word).
    pub epitaph: [AtomicU64; 64],
    /// Where the program stood when this replica was found to differ, or found others so.
    pub scene: Scene,
}

//! The description of one system call.

use crate::{Arg, Request, Requests, Special};

/// Who performs a call, and how replicas meet over it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Every replica does it itself, on its own memory or attributes; results are made equal.
    Local,
    /// The agent answers without the host: see [`Syscall::special`].
    Emulated,
    /// The primary does it and publishes result and bytes; followers take them without a barrier.
    Input,
    /// All meet, vote on arguments and content, and then the primary does it once.
    Output,
    /// Makes, replaces or awaits processes: see [`Syscall::special`].
    Process,
    /// Refused with [`Resolved::errno`] and one warning: see [`Syscall::reason`].
    Unsupported,
}

/// Turns an input call into an output call if an argument has any of these bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OutputIf {
    /// Index of the argument.
    pub arg: u8,
    /// The bits.
    pub any_bits: u64,
}

/// One system call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Syscall {
    /// Its number.
    pub nr: u32,
    /// Its name in the kernel's headers.
    pub name: &'static str,
    /// Its class, before [`Syscall::resolve`] looks at the arguments.
    pub class: Class,
    /// The kinds of its arguments; [`Arg::None`] past the last.
    pub args: [Arg; 6],
    /// The names of its arguments, for reports; empty past the last.
    pub params: [&'static str; 6],
    /// How many arguments it has.
    pub nargs: u8,
    /// When an input call is an output call after all.
    pub output_if: Option<OutputIf>,
    /// The table in which one argument selects a row that replaces what is said here.
    pub requests: Option<Requests>,
    /// A new primary may do this input call again if the old one died inside: it consumes nothing.
    pub repeatable: bool,
    /// It may wait for ever.
    pub blocking: bool,
    /// Refused without a warning: programs probe for it and have another way.
    pub quiet: bool,
    /// The agent's own code for it. Set for emulated and process calls; elsewhere it marks a call
    /// of which the description tells the agent not enough.
    pub special: Special,
    /// Why it is not supported; empty if it is.
    pub reason: &'static str,
}

/// A call as its actual arguments make it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The call.
    pub call: &'static Syscall,
    /// The row of requests that applied.
    pub request: Option<&'static Request>,
    /// The class after conditions and requests.
    pub class: Class,
    /// The arguments, with the kind that the request gives to its own.
    pub args: [Arg; 6],
    /// As [`Syscall::repeatable`].
    pub repeatable: bool,
    /// As [`Syscall::blocking`].
    pub blocking: bool,
    /// As [`Syscall::quiet`].
    pub quiet: bool,
    /// As [`Syscall::special`].
    pub special: Special,
    /// As [`Syscall::reason`].
    pub reason: &'static str,
    /// What it fails with if it is unsupported: `ENOSYS`, or [`Requests::errno`].
    pub errno: u16,
}

const ENOSYS: u16 = 38;

impl OutputIf {
    /// Whether the argument has any of the bits.
    #[inline]
    #[must_use]
    pub const fn applies(self, raw: &[u64; 6]) -> bool {
        raw[self.arg as usize] & self.any_bits != 0
    }
}

impl Syscall {
    /// What this call is, given its raw arguments: applies [`Syscall::output_if`] and the row of
    /// [`Syscall::requests`].
    #[inline]
    #[must_use]
    pub fn resolve(&'static self, raw: &[u64; 6]) -> Resolved {
        let plain = Resolved {
            call: self,
            request: None,
            class: self.class_for(raw),
            args: self.args,
            repeatable: self.repeatable,
            blocking: self.blocking,
            quiet: self.quiet,
            special: self.special,
            reason: self.reason,
            errno: self.requests.as_ref().map_or(ENOSYS, |r| r.errno),
        };
        match &self.requests {
            None => plain,
            Some(requests) => requests.apply(plain, raw),
        }
    }

    /// The class, with `output_if` applied.
    fn class_for(&self, raw: &[u64; 6]) -> Class {
        match self.output_if {
            Some(o) if o.applies(raw) => Class::Output,
            _ => self.class,
        }
    }
}

impl Resolved {
    /// Argument `i` in its true width and sign; zero if there is none.
    #[inline]
    #[must_use]
    pub fn canonical(&self, i: usize, raw: &[u64; 6]) -> u64 {
        self.args[i].canonical(raw[i])
    }
}

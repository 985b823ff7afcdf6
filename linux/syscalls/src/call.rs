//! The description of one system call.

use crate::arg::{Width, nested, paths, pointers, reading, widths, writing};
use crate::text::Text;
use crate::{
    Arg, Descriptors, Facts, Offset, Opens, Outgoing, Request, Requests, Special, Time, Valid,
};

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
    /// The number of the resolved output call.
    pub(crate) resolved: u16,
}

/// One system call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Syscall {
    /// Its number.
    pub nr: u32,
    /// Its class, before [`Syscall::resolve`] looks at the arguments.
    pub class: Class,
    /// The kinds of its arguments; [`Arg::None`] past the last.
    pub args: [Arg; 6],
    /// How many arguments it has.
    pub nargs: u8,
    /// Which of them are pointers, one bit each; made from [`Syscall::args`].
    pub pointers: u8,
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
    /// Common, and made without detours by a lone replica while nothing rare is under way.
    pub straight: bool,
    /// The number of what else is known of it.
    pub(crate) facts: u16,
    /// The number of the resolved call, if neither condition nor request changes it.
    pub(crate) resolved: u16,
}

/// What is said of a call to people. It stands apart, so that the agent does not carry it.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) name: Text,
    pub(crate) params: [Text; 6],
    pub(crate) reason: Text,
}

/// A buffer of bytes, or of structures, that a call writes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The argument that points to it.
    pub at: u8,
    /// The argument with its length.
    pub len: u8,
    /// Bytes of a unit of that length.
    pub elem: u16,
    /// How much is filled.
    pub valid: Valid,
}

impl Buffer {
    /// The only memory that a call with these arguments writes.
    const fn only(args: &[Arg; 6]) -> Option<Self> {
        let writes = writing(args);
        if !writes.is_power_of_two() {
            return None;
        }
        let at = writes.trailing_zeros();
        let (len, elem, valid) = match args[at as usize] {
            Arg::OutBuf { len_arg, valid } => (len_arg, 1, valid),
            Arg::OutArray {
                count_arg,
                elem,
                valid,
            } => (count_arg, elem, valid),
            _ => return None,
        };
        let at = at.to_le_bytes()[0];
        Some(Self {
            at,
            len,
            elem,
            valid,
        })
    }
}

/// The bytes that a call reads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The argument that points to them.
    pub at: u8,
    /// The argument with their number.
    pub len: u8,
}

impl Sent {
    /// The only memory that a call with these arguments reads.
    const fn only(args: &[Arg; 6]) -> Option<Self> {
        let reads = reading(args);
        if !reads.is_power_of_two() {
            return None;
        }
        let at = reads.trailing_zeros();
        let Arg::InBuf { len_arg: len } = args[at as usize] else {
            return None;
        };
        let at = at.to_le_bytes()[0];
        Some(Self { at, len })
    }
}

/// A call as its actual arguments make it: all that is decided about it before it is made. There is
/// one for each call, and for each request of those that have them.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The call.
    pub call: &'static Syscall,
    /// The row of requests that applied.
    pub request: Option<&'static Request>,
    /// The class after conditions and requests.
    pub class: Class,
    /// How many arguments it has.
    pub nargs: u8,
    /// The arguments, with the kind that the request gives to its own.
    pub args: [Arg; 6],
    /// Their widths.
    widths: [Width; 6],
    /// As [`Syscall::pointers`], with the request's own.
    pub pointers: u8,
    /// Where the only pointer stands in number and arguments in a row; the number's place without
    /// one, [`Resolved::SEVERAL`] with several.
    pub pointer: u8,
    /// Which arguments lead to memory that the call reads, one bit each.
    pub reads: u8,
    /// Which arguments lead to memory that the call writes, one bit each.
    pub writes: u8,
    /// The buffer of bytes that the call writes, if that is all it writes.
    pub buffer: Option<Buffer>,
    /// The bytes that the call reads, if that is all it reads.
    pub sent: Option<Sent>,
    /// Which arguments are paths, one bit each.
    pub paths: u8,
    /// Does it follow pointers within structures?
    pub nested: bool,
    /// As [`Syscall::repeatable`].
    pub repeatable: bool,
    /// As [`Syscall::blocking`].
    pub blocking: bool,
    /// As [`Syscall::quiet`].
    pub quiet: bool,
    /// As [`Syscall::special`].
    pub special: Special,
    /// As [`Syscall::straight`].
    pub straight: bool,
    /// Can nothing about its arguments be rare, but that one points to no memory of the program:
    /// no time, no offset, no path, no structure that leads further, no clock and no signal mask?
    pub plain: bool,
    /// Does its result change what is noted of descriptors?
    pub noted: bool,
    /// The argument, of 32 bits, with the milliseconds that it may wait, if there is nothing else
    /// about it that keeps it from being plain.
    pub timeout: Option<u8>,
    /// As [`Syscall::facts`].
    pub facts: &'static Facts,
    /// What it fails with if it is unsupported: `ENOSYS`, or [`Requests::errno`].
    pub errno: u16,
}

const ENOSYS: u16 = 38;

/// See [`Resolved::plain`].
const fn plain(args: &[Arg; 6], special: Special, facts: &Facts) -> bool {
    matches!(facts.time, Time::None) && plain_but_for_time(args, special, facts)
}

/// See [`Resolved::timeout`].
const fn timeout(args: &[Arg; 6], special: Special, facts: &Facts) -> Option<u8> {
    match facts.time {
        Time::Milliseconds(at)
            if matches!(args[at as usize], Arg::Int)
                && plain_but_for_time(args, special, facts) =>
        {
            Some(at)
        }
        _ => None,
    }
}

const fn plain_but_for_time(args: &[Arg; 6], special: Special, facts: &Facts) -> bool {
    matches!(facts.offset, Offset::Position)
        && !matches!(special, Special::CpuClock | Special::EpollPwait)
        && paths(args) == 0
        && !nested(args)
}

/// Does it open a file for more than reading?
const fn acts_on_open(class: Class, facts: &Facts) -> bool {
    matches!(class, Class::Output) && !matches!(facts.opens, Opens::None)
}

/// See [`Resolved::noted`].
const fn noted(facts: &Facts) -> bool {
    matches!(facts.outgoing, Outgoing::Describes(_) | Outgoing::Opens(_))
        || !matches!(facts.descriptors, Descriptors::Stay)
}

impl OutputIf {
    /// Whether the argument has any of the bits.
    #[inline]
    #[must_use]
    pub const fn applies(self, raw: &[u64; 6]) -> bool {
        raw[self.arg as usize] & self.any_bits != 0
    }
}

impl Syscall {
    /// The first resolved calls are the calls themselves, in the order of their numbers.
    fn words(&self) -> &'static Words {
        &crate::table::WORDS[usize::from(self.resolved)]
    }

    /// Its name in the kernel's headers.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.words().name.get()
    }

    /// The names of its arguments, for reports; empty past the last.
    #[must_use]
    pub fn params(&self) -> [&'static str; 6] {
        self.words().params.map(Text::get)
    }

    /// What else is known of it.
    #[must_use]
    pub const fn facts(&self) -> &'static Facts {
        &crate::table::COLUMNS[self.facts as usize]
    }

    /// Why it is not supported; empty if it is.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.words().reason.get()
    }

    /// The kind of argument `i`, given the raw arguments: that of the row of
    /// [`Syscall::requests`], where that has a say. For those who ask for nothing else: the records
    /// of [`Syscall::resolve`] are full of pointers.
    #[must_use]
    pub fn kind(&self, i: usize, raw: &[u64; 6]) -> Arg {
        let requests = self
            .requests
            .filter(|it| it.data.map(usize::from) == Some(i));
        let row = requests.and_then(|it| it.select(raw));
        row.map_or(self.args[i], |row| row.arg)
    }

    /// What this call is, given its raw arguments: applies [`Syscall::output_if`] and the row of
    /// [`Syscall::requests`].
    #[inline]
    #[must_use]
    pub fn resolve(&'static self, raw: &[u64; 6]) -> &'static Resolved {
        let at = if self.requests.is_none() && self.output_if.is_none() {
            self.resolved
        } else {
            self.resolve_further(raw)
        };
        &crate::table::RESOLVED[usize::from(at)]
    }

    /// The number of the resolved call, of those that it can be.
    #[inline(never)]
    fn resolve_further(&self, raw: &[u64; 6]) -> u16 {
        match (&self.requests, self.output_if) {
            (Some(requests), _) => requests.resolve(raw).unwrap_or(self.resolved),
            (None, Some(condition)) if condition.applies(raw) => condition.resolved,
            (None, _) => self.resolved,
        }
    }
}

/// See [`Resolved::pointer`].
const fn only_pointer(pointers: u8) -> u8 {
    match pointers.count_ones() {
        0 => 0,
        1 => 1 + pointers.trailing_zeros().to_le_bytes()[0],
        _ => Resolved::SEVERAL,
    }
}

impl Resolved {
    /// As [`Resolved::pointer`]: no place.
    pub const SEVERAL: u8 = u8::MAX;

    /// A call in one of its classes, without a request.
    pub(crate) const fn of(call: &'static Syscall, class: Class) -> Self {
        Self {
            call,
            request: None,
            class,
            nargs: call.nargs,
            args: call.args,
            widths: widths(&call.args),
            pointers: call.pointers,
            pointer: only_pointer(call.pointers),
            reads: reading(&call.args),
            writes: writing(&call.args),
            buffer: Buffer::only(&call.args),
            sent: Sent::only(&call.args),
            paths: paths(&call.args),
            nested: nested(&call.args),
            repeatable: call.repeatable,
            blocking: call.blocking,
            quiet: call.quiet,
            special: call.special,
            straight: call.straight && !acts_on_open(class, call.facts()),
            plain: plain(&call.args, call.special, call.facts()),
            noted: noted(call.facts()),
            timeout: timeout(&call.args, call.special, call.facts()),
            facts: call.facts(),
            errno: match &call.requests {
                Some(requests) => requests.errno,
                None => ENOSYS,
            },
        }
    }

    /// A call with a request.
    pub(crate) const fn with(call: &'static Syscall, row: &'static Request) -> Self {
        let mut args = call.args;
        if let Some(Requests {
            data: Some(data), ..
        }) = call.requests
        {
            args[data as usize] = row.arg;
        }
        Self {
            request: Some(row),
            args,
            widths: widths(&args),
            pointers: pointers(&args),
            pointer: only_pointer(pointers(&args)),
            reads: reading(&args),
            writes: writing(&args),
            buffer: Buffer::only(&args),
            sent: Sent::only(&args),
            paths: paths(&args),
            nested: nested(&args),
            repeatable: row.repeatable,
            blocking: row.blocking,
            quiet: row.quiet,
            special: row.special,
            straight: row.straight,
            plain: plain(&args, row.special, row.facts()),
            noted: noted(row.facts()),
            timeout: timeout(&args, row.special, row.facts()),
            facts: row.facts(),
            ..Self::of(call, row.class)
        }
    }

    /// The same with an argument that turns out to be of another kind than the table says.
    #[must_use]
    pub const fn described(&self, at: usize, arg: Arg) -> Self {
        let mut args = self.args;
        args[at] = arg;
        Self {
            args,
            widths: widths(&args),
            pointers: pointers(&args),
            pointer: only_pointer(pointers(&args)),
            reads: reading(&args),
            writes: writing(&args),
            buffer: Buffer::only(&args),
            sent: Sent::only(&args),
            paths: paths(&args),
            nested: nested(&args),
            plain: plain(&args, self.special, self.facts),
            timeout: timeout(&args, self.special, self.facts),
            ..*self
        }
    }

    /// Argument `i` cut to its true width, without regard to its sign; zero if there is none.
    #[inline]
    #[must_use]
    pub const fn cut(&self, i: usize, raw: &[u64; 6]) -> u64 {
        self.widths[i].cut(raw[i])
    }

    /// Argument `i` in its true width and sign; zero if there is none.
    #[inline]
    #[must_use]
    pub const fn canonical(&self, i: usize, raw: &[u64; 6]) -> u64 {
        self.widths[i].canonical(raw[i])
    }
}

//! The generated constants, and access to them.

use crate::arg::pointers;
use crate::call::Words;
use crate::request::find;
use crate::text::Text;
use crate::{
    Arg, Class, Content, Descriptors, Facts, File, Ids, Moves, Offset, Opens, Outgoing, OutputIf,
    Place, Position, Request, Requests, Resolved, Sigpipe, Size, Stream, Syscall, Takeover,
    Terminal, Time, Treatment, Unless, Valid, Waits,
};

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// The description of call number `nr`, by direct index. The kernel looks at the low half of the
/// register only, and so does this.
#[inline]
#[must_use]
pub fn entry(nr: u64) -> Option<&'static Syscall> {
    let at = SLOTS.get(usize::try_from(nr & 0xffff_ffff).ok()?)?;
    CALLS.get(usize::from(*at))
}

/// The call number `nr`, if it is one that is made straight whatever its arguments.
#[must_use]
pub const fn straight(nr: usize) -> Option<&'static Resolved> {
    match straight_if(nr) {
        Some(resolved) if resolved.call.output_if.is_none() => Some(resolved),
        _ => None,
    }
}

/// The same of one that is made straight unless [`Syscall::output_if`] applies: the call that it is
/// then.
#[must_use]
pub const fn straight_if(nr: usize) -> Option<&'static Resolved> {
    if nr >= SLOTS.len() {
        return None;
    }
    let at = SLOTS[nr] as usize;
    if at >= CALLS.len() {
        return None;
    }
    let call = &CALLS[at];
    let resolved = &RESOLVED[call.resolved as usize];
    if call.requests.is_none() && resolved.straight {
        Some(resolved)
    } else {
        None
    }
}

/// How many numbers there may be calls of.
pub const NUMBERS: usize = SLOTS.len();

/// The name of call number `nr`, for reports.
#[must_use]
pub fn name(nr: u64) -> &'static str {
    entry(nr).map_or("unknown", Syscall::name)
}

/// The description of an `ioctl` request.
#[must_use]
pub fn ioctl(request: u32) -> Option<&'static Request> {
    find(IOCTL, request)
}

/// The description of an `fcntl` command.
#[must_use]
pub fn fcntl(command: u32) -> Option<&'static Request> {
    find(FCNTL, command)
}

/// The description of a `prctl` option.
#[must_use]
pub fn prctl(option: u32) -> Option<&'static Request> {
    find(PRCTL, option)
}

/// The description of an `lseek` origin.
#[must_use]
pub fn lseek(whence: u32) -> Option<&'static Request> {
    find(LSEEK, whence)
}

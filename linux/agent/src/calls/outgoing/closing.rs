//! Descriptors that are closed later.
//!
//! Intuition: nobody outside sees the end of a regular file that can only be read, so where a
//! difference stops the group it needs no vote. Where the group goes on without a lost primary a
//! successor would see it: replicas share their descriptors, and nobody can bring back one that a
//! primary which went astray has closed. Instead of having all meet before each, the descriptor is
//! closed once all have posted that they have come to this call, as one more effect that is
//! released later. A successor finds out by its number whether it was.
//!
//! Contract: until it is closed its number is free to the program and taken to the host. So all
//! meet before any call that makes a descriptor, names this one, or could find it below `/proc`.
//!
//! Not covered: a program that computes for long right after a close may keep the file until its
//! next call, if no timer runs for other effects; paths that lead to `/proc/self/fd` by other
//! names, which may show it a moment longer.

use rcoe_linux_syscalls::Arg;

use super::notes::Outgoing;
use crate::calls::{Call, paths};
use crate::convert::low32;

/// Could this call tell that a descriptor is still to be closed?
pub(super) fn could_tell(outgoing: &Outgoing, call: &Call) -> bool {
    if outgoing.closings == 0 {
        return false;
    }
    let what = call.what;
    let names = |at| what.args[at] == Arg::Fd && outgoing.is_closing(low32(call.arg(at)));
    (0..usize::from(what.call.nargs)).any(names) || !paths::are_plain(call, what)
}

//! Reads from streams, which take out later what they have read.
//!
//! Intuition: nobody can bring back what was taken out of a stream. A primary that went astray
//! could take something before it is noticed, so where the group goes on without it all would have
//! to meet before each read. Instead the primary reads and leaves the bytes where they are. They
//! are taken out once all have posted that they have come to this read, as one more effect that is
//! released later. So one that is astray takes nothing, and a server that reads from fifty clients
//! need not meet its siblings fifty times.
//!
//! Contract: of each stream there is one such read at a time. All meet before the next one, and
//! before any call that could tell.
//!
//! Not covered: groups that do not mask faults, which stop if one is astray; reads into several
//! buffers, with flags or an address, and of streams on which no effect may wait.

use rcoe_core::POSTS;
use rcoe_linux_syscalls::{Arg, Stream};

use super::notes::State;
use crate::calls::{Call, io};
use crate::convert::{low32, size};
use crate::kernel::{Kernel, kind};
use crate::protocol::transfer::{self, Lost, Outcome};
use crate::sys;
use crate::sys::numbers::MSG_DONTWAIT;

/// Does this call take, or read what is still to be taken, in a way that has all meet before?
pub(super) fn must_meet(kernel: &Kernel, fd: u64) -> bool {
    let outgoing = &kernel.outgoing;
    kernel.masks && (outgoing.is_taking(low32(fd)) || size(outgoing.count.into()) >= POSTS)
}

/// All replicas: is this a read that takes out later what it reads? After any other one nobody
/// knows how much of its stream was read.
pub(crate) fn takes_later(kernel: &mut Kernel, call: &Call) -> bool {
    let streams = matches!(call.what.facts.stream, Stream::Read | Stream::Receive(_));
    if !kernel.masks || !streams {
        return false;
    }
    let State::Stream { never_waits, .. } = kernel.outgoing.state(call.arg(0)) else {
        return false;
    };
    let fd = low32(call.arg(0));
    let takes = is_plain(call, never_waits)
        && kernel.outgoing.read_position(fd).is_some()
        && !must_meet(kernel, fd.into())
        && !kernel.turns.is_member()
        && kernel.shared.is_empty();
    if !takes {
        kernel.outgoing.set_read_position(fd, None);
    }
    takes
}

/// Does it read bytes into one buffer, whatever has come?
fn is_plain(call: &Call, never_waits: bool) -> bool {
    let flags = match call.what.facts.stream {
        Stream::Receive(flags) => call.arg(usize::from(flags)),
        _ => 0,
    };
    let named = matches!(call.what.facts.stream, Stream::Receive(_)) && call.arg(4) != 0;
    let single = matches!(call.what.args[1], Arg::OutBuf { .. });
    let at_once = never_waits || flags & MSG_DONTWAIT != 0;
    single && at_once && !named && flags & !MSG_DONTWAIT == 0
}

/// All replicas, with such a read. What it fills was noted.
pub(crate) fn read(kernel: &mut Kernel, call: &Call) -> Outcome {
    let received = if kernel.replica.is_primary() {
        Err(Lost { torn: false })
    } else {
        transfer::receive(kernel)
    };
    let outcome = received.unwrap_or_else(|_| {
        kernel.replica.begin_effect(true);
        let [fd, address, len, ..] = call.raw;
        // SAFETY: the program's own buffer, which is not the agent's.
        let result = io::in_host(kernel, call, |_| unsafe {
            sys::sockets::peek(fd, address, len)
        });
        io::tell(kernel, call, result)
    });
    if let Ok(bytes @ 1..) = u32::try_from(outcome.result) {
        take_later(kernel, call, bytes);
    }
    outcome
}

/// All replicas: so many bytes are to be taken out.
fn take_later(kernel: &mut Kernel, call: &Call, bytes: u32) {
    let fd = low32(call.arg(0));
    let what = u64::from(fd) << 32 | u64::from(bytes);
    kernel.event(kind::of(call.nr, kind::CONTENT), what);
    let at = kernel.outgoing.read_position(fd).unwrap_or(0);
    let post = kernel.replica.posted();
    kernel.queue.push_taking((fd, at), bytes, post);
    let primary = kernel.replica.is_primary();
    if !primary {
        kernel.queue.follow();
    }
    let next = at.wrapping_add(bytes);
    kernel.outgoing.set_read_position(fd, Some(next));
    kernel.outgoing.take_later(fd);
    kernel.replica.post();
    if primary {
        kernel.queue.remind();
    }
}

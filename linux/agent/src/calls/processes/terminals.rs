//! Controlling terminals: how a session gets one, what `/dev/tty` means, how one is given up.
//!
//! Intuition: a terminal that the program has made, or opened, is taken for its session by a
//! process of the host's that the supervisor makes (see [`Ask::TakeTerminal`]); the replicas stay
//! in rcoe's own session. So `/dev/tty`, which to the host is rcoe's terminal, is opened here by
//! the name of the session's own.
//!
//! Contract: who has which terminal is the supervisor's to know and may change at any time, so the
//! primary looks and all take its word.
//!
//! Not covered: other names of `/dev/tty`.

use core::fmt::Write as _;
use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{ENOTTY, ENXIO};
use linux_raw_sys::general::{O_ACCMODE, O_NOCTTY, O_PATH, O_WRONLY};
use linux_raw_sys::ioctl as request;
use rcoe_linux_abi::{Ask, NOT_OURS, Note, Terminal};
use rcoe_linux_syscalls::{Opens, Special};

use crate::calls::paths::Resolving;
use crate::calls::processes::jobs::{is_master, own_terminal, terminals};
use crate::calls::processes::{ask, plan};
use crate::calls::{Call, io, refuse, refuse_with};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::protocol::transfer;
use crate::sys;
use crate::sys::terminals::number_of;
use crate::text::Text;

/// Longest name of a terminal, with its NUL.
const NAME: usize = 40;

/// All replicas: `TIOCSCTTY` and `TIOCNOTTY`.
pub(in crate::calls) fn change(kernel: &mut Kernel, call: &Call) -> i64 {
    plan(kernel, Some(wish(call)));
    kernel.rendezvous();
    match io::exchange(kernel, call, true) {
        NOT_OURS => refuse(kernel, call),
        result => result,
    }
}

/// What is asked of the supervisor.
fn wish(call: &Call) -> Ask {
    if call.what.special == Special::Tiocsctty {
        Ask::TakeTerminal {
            fd: low32(call.arg(0)),
            steal: call.arg(2) == 1,
        }
    } else {
        Ask::LeaveTerminal
    }
}

/// Primary: what the supervisor says.
pub(super) fn execute(kernel: &mut Kernel, call: &Call) -> i64 {
    let device = match number_of(call.arg(0), request::TIOCGDEV) {
        Ok(device) => device,
        Err(error) => return error,
    };
    if call.what.special == Special::Tiocsctty {
        return ask(kernel, wish(call));
    }
    match own_terminal(kernel) {
        Some(own) if own.device.load(Ordering::Acquire) == device => ask(kernel, wish(call)),
        _ => sys::error(ENOTTY),
    }
}

/// Flags with which the call opens something that may become the controlling terminal.
fn opening_flags(call: &Call) -> Option<u32> {
    let arg = |index: u8| call.arg(usize::from(index));
    let flags = match call.what.facts.opens {
        Opens::Plain(_, flags) | Opens::Peer(flags) => arg(flags),
        Opens::Described(_, how) => guest::read::<u64>(arg(how)).ok()?,
        Opens::None | Opens::Created(_) => return None,
    };
    Some(low32(flags))
}

/// All replicas, after a call: a terminal that a process opens which leads a session without one
/// becomes the controlling one.
pub(in crate::calls) fn after_call(kernel: &mut Kernel, call: &Call, result: i64) {
    if !kernel.processes.leads || result < 0 {
        return;
    }
    let Some(flags) = opening_flags(call) else {
        return;
    };
    if flags & (O_NOCTTY | O_PATH) != 0 || flags & O_ACCMODE == O_WRONLY {
        return;
    }
    let fd = result.cast_unsigned();
    let [found] = transfer::agree_all(kernel, true, |kernel| [is_taken(kernel, fd).into()]);
    if found == 0 {
        return;
    }
    let wish = Ask::TakeTerminal {
        fd: low32(fd),
        steal: false,
    };
    plan(kernel, Some(wish));
    kernel.rendezvous();
    let [answer] = transfer::agree_all(kernel, true, |kernel| [ask(kernel, wish).cast_unsigned()]);
    if answer.cast_signed() == NOT_OURS {
        refuse_with(kernel, Note::UnsupportedIoctl, request::TIOCSCTTY.into());
    }
}

/// Primary: does opening this file give it to a session that has no terminal?
fn is_taken(kernel: &Kernel, fd: u64) -> bool {
    /// `/dev/tty0` and `/dev/console`, which only stand for another one.
    const NEVER: [u64; 2] = [0x400, 0x501];
    let is_terminal = number_of(fd, request::TIOCGDEV).is_ok() && !is_master(fd);
    is_terminal
        && own_terminal(kernel).is_none()
        && sys::file_type(fd).is_some_and(|(_, device)| !NEVER.contains(&device))
}

/// Name of the terminal that `/dev/tty` is to this process.
enum Name {
    /// The same: it is the one that rcoe has.
    Same,
    /// There is none.
    None,
    Other(Text<NAME>),
}

/// Does the call open `/dev/tty`? Returns which argument names it.
fn opens_own(call: &Call) -> Option<usize> {
    const PATH: &[u8; 9] = b"/dev/tty\0";
    let place = usize::from(call.what.facts.opens.path()?);
    let path = guest::read::<[u8; PATH.len()]>(call.arg(place)).ok()?;
    // Below a directory of the caller it is a name as any.
    let named = path == *PATH && Resolving::of(call) != Resolving::Below;
    named.then_some(place)
}

fn own_name(kernel: &Kernel) -> Name {
    let Some(own) = own_terminal(kernel) else {
        return Name::None;
    };
    if core::ptr::eq(own, &raw const terminals()[0]) {
        return Name::Same;
    }
    name_of(own).map_or(Name::None, Name::Other)
}

/// Name of a session's terminal; `None` if the session has lost it.
fn name_of(terminal: &Terminal) -> Option<Text<NAME>> {
    const PSEUDO_TERMINALS: core::ops::RangeInclusive<u32> = 136..=143;
    let device = terminal.device.load(Ordering::Acquire);
    if !sys::has_terminal(terminal.deputy.load(Ordering::Acquire)) {
        return None;
    }
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    let mut name = Text::new();
    if PSEUDO_TERMINALS.contains(&major) {
        write!(name, "/dev/pts/{minor}\0").ok()?;
    } else {
        write!(name, "/dev/char/{major}:{minor}\0").ok()?;
    }
    Some(name)
}

/// Primary: opens `/dev/tty` if the call does that, and it is another one than rcoe's.
pub(in crate::calls) fn open_own(kernel: &Kernel, call: &Call) -> Option<i64> {
    let place = opens_own(call)?;
    match own_name(kernel) {
        Name::Same => None,
        Name::None => Some(sys::error(ENXIO)),
        Name::Other(name) => {
            let mut args = call.raw;
            args[place] = name.as_bytes().as_ptr() as u64;
            // SAFETY: the program's own call with another name, which ends with NUL.
            Some(unsafe { rcoe_linux_sys::syscall6(call.nr, args) })
        }
    }
}

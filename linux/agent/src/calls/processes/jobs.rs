//! Job control: stopping, and the foreground group of a session's terminal.
//!
//! Intuition: to the host all replicas and the supervisor are one job of the terminal that rcoe
//! has. Which of the program's process groups is in the foreground is the supervisor's to know; it
//! hands the terminal's signals to that one. A process of another group that reads from the
//! terminal, or sets it, gets SIGTTIN or SIGTTOU here, as from the host.
//!
//! A stop is carried out by the supervisor, which stops the host's processes wherever they are:
//! that changes nothing in them, so it needs no agreement. Here only those stops come to pass that
//! the program comes to at a point of its trace. A process that shares memory stops in no other
//! way, and gives its turn back first, in all replicas.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EINVAL, EIO, ENOTTY};
use linux_raw_sys::general::{SIGTTIN, SIGTTOU, TOSTOP};
use linux_raw_sys::ioctl as request;
use rcoe_linux_abi::{Ask, Terminal as SessionTerminal};
use rcoe_linux_syscalls::Terminal::{self, Reads, Sets, Writes};

use crate::calls::io::GIVEN_UP;
use crate::calls::processes::{ask, plan};
use crate::calls::{Call, io, signals};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::memory::regions;
use crate::protocol::requests::{self, LOOK_NS, Looks};
use crate::protocol::transfer;
use crate::sched::turns;
use crate::sys;
use crate::sys::terminals::{local_modes, number_of};

/// All replicas: the default action of a signal stops the program; returns when it goes on.
pub(in crate::calls) fn stop(kernel: &mut Kernel, signal: u32) {
    let signal = u8::try_from(signal).expect("signal numbers are small");
    plan(kernel, Some(Ask::Stop { signal }));
    turns::outside(kernel, |kernel| {
        // No replica may be stopped before it has given its turn back.
        kernel.rendezvous();
        transfer::agree_all(kernel, true, |kernel| {
            let in_call = &kernel.report.in_call;
            in_call.store(sys::PAUSE + 1, Ordering::Relaxed);
            let answer = ask(kernel, Ask::Stop { signal });
            in_call.store(0, Ordering::Relaxed);
            [answer.cast_unsigned()]
        });
    });
    // The signal that continues it comes before anything that the program does.
    signals::look_outside(kernel);
}

/// Of a pseudo-terminal's two ends, is it the one that commands?
pub(super) fn is_master(fd: u64) -> bool {
    number_of(fd, request::TIOCGPTN).is_ok()
}

pub(super) fn terminals() -> &'static [SessionTerminal] {
    &regions::control(0).terminals
}

/// The terminal of the program's session.
pub(super) fn own_terminal(kernel: &Kernel) -> Option<&'static SessionTerminal> {
    terminals().get(kernel.control.job.terminal()?)
}

/// The session's terminal that is open here, if it is one.
fn terminal_at(fd: u64) -> Result<Option<&'static SessionTerminal>, i64> {
    let device = number_of(fd, request::TIOCGDEV)?;
    let is_it = |it: &&SessionTerminal| it.device.load(Ordering::Acquire) == device;
    Ok(terminals().iter().find(is_it))
}

/// The terminal that is open here, if the program may ask for its job control.
fn asked_of(kernel: &Kernel, fd: u64) -> Result<Option<&'static SessionTerminal>, i64> {
    let found = terminal_at(fd)?;
    let own = own_terminal(kernel);
    let is_own = found.is_some_and(|it| own.is_some_and(|own| core::ptr::eq(it, own)));
    if is_own || is_master(fd) {
        Ok(found)
    } else {
        Err(sys::error(ENOTTY))
    }
}

/// The host's own foreground group, while another job than rcoe's is in the foreground of the
/// terminal that rcoe has.
fn in_host_background(fd: u64) -> Option<u32> {
    let group = number_of(fd, request::TIOCGPGRP).ok()?;
    (group != 0 && group != sys::getpgrp()).then_some(group)
}

/// Primary: `tcgetpgrp`; `None` to ask the host.
pub(super) fn foreground(kernel: &Kernel, call: &Call) -> Option<i64> {
    let terminal = match asked_of(kernel, call.arg(0)) {
        Err(error) => return Some(error),
        Ok(found) => found?,
    };
    let group = in_host_background(call.arg(0))
        .filter(|_| core::ptr::eq(terminal, &raw const terminals()[0]))
        .unwrap_or_else(|| terminal.foreground.load(Ordering::Acquire));
    Some(guest::write(call.arg(2), &group).map_or(Fault::RESULT, |()| 0))
}

/// Primary: `tcgetsid`; `None` to ask the host.
pub(super) fn session(kernel: &Kernel, call: &Call) -> Option<i64> {
    let terminal = match asked_of(kernel, call.arg(0)) {
        Err(error) => return Some(error),
        Ok(found) => found?,
    };
    let session = terminal.session.load(Ordering::Acquire);
    Some(guest::write(call.arg(2), &session).map_or(Fault::RESULT, |()| 0))
}

/// All replicas: `tcsetpgrp`.
pub(in crate::calls) fn set_foreground(kernel: &mut Kernel, call: &Call) -> i64 {
    let group = guest::read::<u32>(call.arg(2));
    plan(kernel, group.ok().map(|group| Ask::SetForeground { group }));
    kernel.rendezvous();
    io::exchange(kernel, call, true)
}

/// Primary: what the supervisor says.
pub(super) fn bring_to_foreground(kernel: &mut Kernel, call: &Call) -> i64 {
    let own = own_terminal(kernel);
    match terminal_at(call.arg(0)) {
        Err(error) => return error,
        Ok(Some(found)) if own.is_some_and(|own| core::ptr::eq(found, own)) => {}
        Ok(_) => return sys::error(ENOTTY),
    }
    let Ok(group) = guest::read::<u32>(call.arg(2)) else {
        return Fault::RESULT;
    };
    if let Some(result) = background(kernel, call) {
        return result;
    }
    if group.cast_signed() < 0 {
        return sys::error(EINVAL);
    }
    ask(kernel, Ask::SetForeground { group })
}

/// Primary: is another process group of the session in the foreground of its terminal?
#[inline]
pub(in crate::calls) fn is_in_background(kernel: &Kernel) -> bool {
    kernel.control.job.terminal.load(Ordering::Relaxed) != 0 && is_behind_others(kernel)
}

/// The same of a process of a session with a terminal.
#[inline(never)]
fn is_behind_others(kernel: &Kernel) -> bool {
    let group = kernel.control.pgid.load(Ordering::Relaxed);
    own_terminal(kernel)
        .is_some_and(|terminal| group != terminal.foreground.load(Ordering::Acquire))
}

/// Primary: the result of using the session's terminal from the background; `None` if that is not
/// so, or allowed.
pub(in crate::calls) fn background(kernel: &Kernel, call: &Call) -> Option<i64> {
    let signal = signal_for(call)?;
    let terminal = own_terminal(kernel)?;
    let group = kernel.control.pgid.load(Ordering::Relaxed);
    if group == terminal.foreground.load(Ordering::Acquire) {
        return None;
    }
    let here = terminal_at(call.arg(0)).ok()??;
    if !core::ptr::eq(here, terminal) || is_master(call.arg(0)) {
        return None;
    }
    if call.what.facts.terminal == Writes && !stops_writers(call.arg(0)) {
        return None;
    }
    rebuke(kernel, signal)
}

/// Primary: the result of reading from rcoe's terminal, which the host has refused; `None` if not
/// because rcoe is in the background.
pub(in crate::calls) fn refused(kernel: &Kernel, call: &Call) -> Option<i64> {
    let own = own_terminal(kernel)?;
    if signal_for(call) != Some(SIGTTIN) || !core::ptr::eq(own, &raw const terminals()[0]) {
        return None;
    }
    in_host_background(call.arg(0)).filter(|_| !is_master(call.arg(0)))?;
    rebuke(kernel, SIGTTIN)
}

/// What a process gets for this call in the background.
const fn signal_for(call: &Call) -> Option<u32> {
    match call.what.facts.terminal {
        Terminal::None => None,
        Reads => Some(SIGTTIN),
        Writes | Sets => Some(SIGTTOU),
    }
}

/// Is the terminal set so that background processes may not write to it?
fn stops_writers(fd: u64) -> bool {
    local_modes(fd).is_some_and(|modes| modes & TOSTOP != 0)
}

/// Has the program's process group signalled, and waits until it is. `None` if the program may go
/// on: it does not heed the signal.
fn rebuke(kernel: &Kernel, signal: u32) -> Option<i64> {
    let reads = signal == SIGTTIN;
    if !signals::is_heeded(kernel, signal) {
        return reads.then(|| sys::error(EIO));
    }
    let control = kernel.control;
    if control.job.orphaned.load(Ordering::Acquire) != 0 {
        return Some(sys::error(EIO));
    }
    let ask = Ask::Background {
        signal: u8::try_from(signal).expect("signal numbers are small"),
    };
    let heard = || control.job.rebukes.load(Ordering::Acquire);
    let before = heard();
    requests::tell(&kernel.report.background, ask);
    let mut looks = Looks::new(LOOK_NS);
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        if heard() != before {
            return Some(GIVEN_UP);
        }
        if !requests::wait(control, bell) {
            looks.count("the supervisor's rebuke");
            requests::call();
        }
    }
}

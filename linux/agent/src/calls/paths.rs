//! Paths that name the program's own process.
//!
//! The process that makes a call is the primary, whose image is the agent and whose id is not the
//! one the program knows. `/proc/self/exe` therefore means the program's file, and
//! `/proc/<own id>/...` means `/proc/self/...`. `/proc/<id>/...` of another process of the program
//! means that of one of its replicas: the first process has the supervisor's id.
//!
//! How `openat2` wants a path to be resolved is kept: what must not be reached by links, or not
//! beyond a mount, is named such that the kernel refuses it by itself, and a path below a directory
//! of the caller's is nobody's process.
//!
//! Not covered: the executable of another process, and the ids in its files, which are the host's.

use core::fmt::Write as _;

use linux_raw_sys::general::{
    RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};
use rcoe_linux_syscalls::{Opens, Resolved};

use crate::calls::Call;
use crate::calls::processes::{exe_path, replica_of};
use crate::convert;
use crate::memory::guest;
use crate::one_thread::OneThread;
use crate::sys;
use crate::text::Text;

/// Longest path that is looked at; those of interest are short.
const LOOK: usize = 256;

/// Room for one rewritten path; the host reads it during the call.
#[unsafe(link_section = ".bss.own.1")]
static SCRATCH: OneThread<[u8; LOOK]> = OneThread::new([0; LOOK]);

/// How a path is to be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolving {
    /// As usual.
    Freely,
    /// Without some links or mounts.
    Narrowly,
    /// From a directory of the caller's on, even if it begins with a slash.
    Below,
}

impl Resolving {
    /// What the call asks for.
    pub(super) fn of(call: &Call) -> Self {
        let Opens::Described(_, how) = call.what.facts.opens else {
            return Self::Freely;
        };
        match guest::read::<[u64; 3]>(call.arg(usize::from(how))) {
            Ok([_, _, resolve]) => Self::by(resolve),
            // The host says so.
            Err(_) => Self::Freely,
        }
    }

    const fn by(resolve: u64) -> Self {
        const BELOW: u32 = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
        const NARROWLY: u32 = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
        if resolve & BELOW as u64 != 0 {
            Self::Below
        } else if resolve & NARROWLY as u64 != 0 {
            Self::Narrowly
        } else {
            Self::Freely
        }
    }
}

/// Replaces the first path argument that names a process of the program.
pub(crate) fn substitute(own: u32, call: &Call, args: &mut [u64; 6]) {
    let resolving = Resolving::of(call);
    if resolving == Resolving::Below {
        return;
    }
    let mut left = call.what.paths;
    while left != 0 {
        let arg = &mut args[left.trailing_zeros() as usize];
        left &= left - 1;
        if let Some(path) = replacement(own, *arg, resolving) {
            *arg = path;
            return;
        }
    }
}

/// Is none of the call's paths one that could name a process, or a terminal that the agent knows?
#[inline(always)]
pub(super) fn are_plain(call: &Call, what: &Resolved) -> bool {
    let mut paths = (0..).zip(call.raw);
    paths.all(|(at, path)| what.paths >> at & 1 == 0 || is_plain(path))
}

/// One that is too near to the end of its memory to tell may be any.
#[inline(always)]
fn is_plain(path: u64) -> bool {
    const PROC: u64 = word_of(*b"/proc/");
    const DEV: u64 = word_of(*b"/dev/\0");
    const FIVE: u64 = word_of([u8::MAX, u8::MAX, u8::MAX, u8::MAX, u8::MAX, 0]);
    guest::start(path).is_ok_and(|start| start != PROC && start & FIVE != DEV)
}

/// As [`guest::start`] has it.
const fn word_of([a, b, c, d, e, f]: [u8; guest::START]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Is this path the program's own executable?
pub(crate) fn is_own_exe(own: u32, path: u64) -> bool {
    is_own(own, path, b"exe")
}

/// Is this path that of the program's own file with this name?
pub(super) fn is_own(own: u32, path: u64, name: &[u8]) -> bool {
    let mut buffer = [0; LOOK];
    own_part(own, path, &mut buffer) == Some(name)
}

fn replacement(own: u32, path: u64, resolving: Resolving) -> Option<u64> {
    let mut buffer = [0; LOOK];
    let mut folder = Text::<32>::new();
    let (who, part) = parts(path, &mut buffer)?;
    if resolving == Resolving::Narrowly && is_self(own, who) {
        // A word is a link itself, and a number is none.
        number(who)?;
        write!(folder, "/proc/{}/", sys::getpid()).ok()?;
    } else if is_self(own, who) {
        if part == b"exe" {
            return Some(exe_path().as_ptr() as u64);
        }
        folder.write_str("/proc/self/").ok()?;
    } else {
        let replica = replica_of(number(who)?)?;
        write!(folder, "/proc/{replica}/").ok()?;
    }
    let folder = folder.as_bytes();
    // SAFETY: a replica is one kernel thread, and the path is used up before the next call.
    let scratch = unsafe { &mut *SCRATCH.get() };
    scratch[..folder.len()].copy_from_slice(folder);
    let room = scratch.get_mut(folder.len()..folder.len() + part.len() + 1)?;
    room[..part.len()].copy_from_slice(part);
    room[part.len()] = 0;
    Some(scratch.as_ptr() as u64)
}

/// What follows `/proc/self/` or `/proc/<own id>/` in the path.
fn own_part(own: u32, path: u64, buffer: &mut [u8; LOOK]) -> Option<&[u8]> {
    let (who, part) = parts(path, buffer)?;
    is_self(own, who).then_some(part)
}

fn is_self(own: u32, who: &[u8]) -> bool {
    who == b"self" || who == b"thread-self" || number(who) == Some(own)
}

/// What follows `/proc/` in the path, up to the next slash and after it.
fn parts(path: u64, buffer: &mut [u8; LOOK]) -> Option<(&[u8], &[u8])> {
    if path == 0 || guest::read::<[u8; 6]>(path).ok()? != *b"/proc/" {
        return None;
    }
    let len = convert::size(guest::string_len(path, LOOK as u64).ok()?);
    let bytes = buffer.get_mut(..len)?;
    guest::copy_in(bytes, path).ok()?;
    let rest = bytes.get(6..)?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    Some((&rest[..slash], &rest[slash + 1..]))
}

fn number(digits: &[u8]) -> Option<u32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_as_strictly_as_asked_for() {
        let by = |flags: u32| Resolving::by(flags.into());
        assert_eq!(by(0), Resolving::Freely);
        assert_eq!(by(0x20), Resolving::Freely, "only from what is cached");
        assert_eq!(by(RESOLVE_NO_MAGICLINKS), Resolving::Narrowly);
        assert_eq!(by(RESOLVE_NO_SYMLINKS), Resolving::Narrowly);
        assert_eq!(by(RESOLVE_NO_XDEV), Resolving::Narrowly);
        let both = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;
        assert_eq!(by(both), Resolving::Below);
        assert_eq!(by(RESOLVE_BENEATH), Resolving::Below);
    }
}

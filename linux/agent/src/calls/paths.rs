//! Paths that name the program's own process.
//!
//! The process that makes a call is the primary, whose image is the agent and whose id is not the
//! one the program knows. `/proc/self/exe` therefore means the program's file, and
//! `/proc/<own id>/...` means `/proc/self/...`.

use rcoe_linux_syscalls::Arg;

use super::Call;
use super::processes::exe_path;
use crate::convert;
use crate::guest;

/// Longest path that is looked at; those of interest are short.
const LOOK: usize = 256;

/// Room for one rewritten path; the host reads it during the call.
struct Scratch(core::cell::UnsafeCell<[u8; LOOK]>);

// SAFETY: a replica is one kernel thread.
unsafe impl Sync for Scratch {}

static SCRATCH: Scratch = Scratch(core::cell::UnsafeCell::new([0; LOOK]));

/// Where a primary writes another path than the program's.
pub(super) fn scratch() -> (u64, u64) {
    crate::reintegration::range(&SCRATCH)
}

/// Replaces the first path argument that names the program's own process.
pub(crate) fn substitute(own: u32, call: &Call, args: &mut [u64; 6]) {
    for (kind, arg) in call.what.args.iter().zip(args) {
        if *kind == Arg::Path
            && let Some(path) = replacement(own, *arg)
        {
            *arg = path;
            return;
        }
    }
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

fn replacement(own: u32, path: u64) -> Option<u64> {
    const SELF: &[u8] = b"/proc/self/";
    let mut buffer = [0; LOOK];
    let part = own_part(own, path, &mut buffer)?;
    if part == b"exe" {
        return Some(exe_path().as_ptr() as u64);
    }
    // SAFETY: a replica is one kernel thread, and the path is used up before the next call.
    let scratch = unsafe { &mut *SCRATCH.0.get() };
    scratch[..SELF.len()].copy_from_slice(SELF);
    let room = scratch.get_mut(SELF.len()..SELF.len() + part.len() + 1)?;
    room[..part.len()].copy_from_slice(part);
    room[part.len()] = 0;
    Some(scratch.as_ptr() as u64)
}

/// What follows `/proc/self/` or `/proc/<own id>/` in the path.
fn own_part(own: u32, path: u64, buffer: &mut [u8; LOOK]) -> Option<&[u8]> {
    if path == 0 || guest::read::<[u8; 6]>(path).ok()? != *b"/proc/" {
        return None;
    }
    let len = convert::size(guest::string_len(path, LOOK as u64).ok()?);
    let bytes = buffer.get_mut(..len)?;
    guest::copy_in(bytes, path).ok()?;
    let rest = bytes.get(6..)?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let (who, part) = (&rest[..slash], &rest[slash + 1..]);
    let own = who == b"self" || who == b"thread-self" || number(who) == Some(own);
    own.then_some(part)
}

fn number(digits: &[u8]) -> Option<u32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

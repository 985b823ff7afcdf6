//! ETXTBSY: a file that a process of the program executes is not written to.
//!
//! To the host that file is only mapped. So each process tells the others which one it is, and a
//! primary that is to open a file for writing looks whether it is one of these. It does as the
//! kernel, which asks first whether the file may be written at all.
//!
//! Not covered: writers outside the program.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::ETXTBSY;
use linux_raw_sys::general::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_ACCMODE, O_CREAT, O_EXCL, O_NOFOLLOW, O_PATH, O_RDWR, O_TRUNC,
    O_WRONLY,
};
use rcoe_linux_abi::MAX_REPLICAS;
use rcoe_linux_syscalls::{Opens, Special};

use crate::calls::Call;
use crate::convert::low32;
use crate::memory::{guest, regions};
use crate::sys;

/// Primary: why a call with these arguments must not write to the file that it names; `None` if it
/// may, or for the host to say what is wrong.
pub(in crate::calls) fn refusal(call: &Call, args: &[u64; 6]) -> Option<i64> {
    let (path, flags) = writing(call)?;
    let dir = match path {
        0 => AT_FDCWD,
        _ => low32(args[path - 1]).cast_signed(),
    };
    let follow = match flags & O_NOFOLLOW {
        0 => 0,
        _ => AT_SYMLINK_NOFOLLOW,
    };
    let file = sys::file_at(dir, args[path], follow)?;
    if !is_executed(file) {
        return None;
    }
    let reads = flags & O_ACCMODE == O_RDWR;
    let allowed = sys::may_write(dir, args[path], reads);
    Some(if allowed < 0 {
        allowed
    } else {
        sys::error(ETXTBSY)
    })
}

/// Which argument is the path, and with which flags it is opened, of a call that is to write to a
/// file that there is.
fn writing(call: &Call) -> Option<(usize, u32)> {
    if call.what.special == Special::Truncate {
        return Some((0, O_WRONLY));
    }
    let (path, flags) = match call.what.facts.opens {
        Opens::Plain(path, flags) => (path, low32(call.arg(usize::from(flags)))),
        Opens::Described(path, how) => {
            let flags = guest::read::<u64>(call.arg(usize::from(how)));
            (path, low32(flags.ok()?))
        }
        Opens::Created(path) => (path, O_WRONLY),
        Opens::None | Opens::Peer(_) => return None,
    };
    let writes = [O_WRONLY, O_RDWR].contains(&(flags & O_ACCMODE)) || flags & O_TRUNC != 0;
    let exists = flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
    (writes && exists && flags & O_PATH == 0).then_some((usize::from(path), flags))
}

/// Does a process of the program execute this file? A place that nobody has is without replicas.
fn is_executed(file: [u64; 2]) -> bool {
    regions::groups().any(|group| {
        let control = regions::control(group);
        let lives = control.ending.load(Ordering::Acquire) == 0;
        let replicas = control.replicas.load(Ordering::Relaxed) as usize;
        let executes = |index| {
            let told = &regions::report(group, index).executes;
            [0, 1].map(|at: usize| told[at].load(Ordering::Acquire)) == file
        };
        lives && (0..replicas.min(MAX_REPLICAS)).any(executes)
    })
}

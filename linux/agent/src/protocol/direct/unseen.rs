//! Can anybody change this file unseen?
//!
//! Whoever writes to a file, or to a page of a mapping for the first time, moves the time of its
//! last change before anything else. Two kinds of changes would not show: stores to a page that its
//! writer has touched before, and changes within one tick of the host's clock. So the file must
//! have been at rest for a while, and nobody may have it open for writing (a mapping keeps it
//! open). Whoever opens it later begins with pages that he has not touched.
//!
//! That nobody has it open is told by a lease, taken for a moment: the host gives none for reading
//! if somebody has. Only the owner gets one.
//!
//! Contract: an answer is right for what is read after it was asked for. The file systems are those
//! of which it is known; files in memory do not keep that time for mappings, and others may be
//! changed elsewhere.

use crate::sys;

/// Nanoseconds of rest: longer than a tick of any kernel.
const REST: u64 = 20_000_000;

/// The version of an open file that nobody can change unseen from now on.
pub(super) fn version(fd: u64) -> Option<u64> {
    if !sys::is_plain_file_on_disk(fd) {
        return None;
    }
    let version = sys::file_version(i32::try_from(fd).ok()?)?;
    let rest = sys::coarse_real_time()?.checked_sub(version.changed_ns())?;
    (rest > REST && sys::has_no_writer(fd)).then(|| mix(&version.words()))
}

/// Which version of the file is there now.
pub(super) fn present_version(fd: u64) -> Option<u64> {
    let version = sys::file_version(i32::try_from(fd).ok()?)?;
    Some(mix(&version.words()))
}

fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0, |all, word| {
        (all ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

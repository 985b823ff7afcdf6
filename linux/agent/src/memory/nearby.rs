//! Code near other code: areas for stubs within reach of a jump, and overwriting.

use core::sync::atomic::{Ordering, compiler_fence};

use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE,
};

use crate::convert::low32;
use crate::memory::guest;
use crate::memory::loader::{page_down, page_up};
use crate::sys;

/// A displacement must reach the stub and back.
pub(crate) const REACH: u64 = 0x7fff_0000;

/// Maps an area for stubs within reach of `site`, below it if possible.
pub(crate) fn map_area(site: u64, bytes: u64) -> Option<u64> {
    map_as(site, bytes, PROT_READ | PROT_EXEC)
}

/// The same for one that is written first, and [closed](close_area) before it is executed.
pub(crate) fn map_open_area(site: u64, bytes: u64) -> Option<u64> {
    map_as(site, bytes, PROT_READ | PROT_WRITE)
}

/// From here on an area is executed, and written no more.
///
/// # Errors
/// The host lets nothing be executed that could be written.
pub(crate) fn close_area(area: u64, bytes: u64) -> Result<(), sys::Errno> {
    // SAFETY: an area for stubs, in which nobody is.
    unsafe { sys::mprotect(area, bytes, PROT_READ | PROT_EXEC) }
}

fn map_as(site: u64, bytes: u64, protection: u32) -> Option<u64> {
    const STEP: u64 = 1 << 20;
    const TRIES: u64 = 1024;
    let base = page_down(site);
    let below = (1..TRIES).filter_map(|i| base.checked_sub(i * STEP));
    let above = (1..TRIES).filter_map(|i| base.checked_add(i * STEP));
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    for hint in below.chain(above).filter(|hint| *hint >= STEP) {
        // SAFETY: a new mapping; it replaces nothing.
        match unsafe { sys::mmap(hint, bytes, protection, flags, -1, 0) } {
            Ok(start) if start == hint => return Some(start),
            Ok(other) => {
                // SAFETY: mapped just now: a kernel that took the address for a hint only.
                let _ = unsafe { sys::munmap(other, bytes) };
            }
            Err(_) => {}
        }
    }
    None
}

/// `jmp rel32` from `at` to `to`.
pub(crate) fn jump(at: u64, to: u64) -> [u8; 5] {
    let displacement = low32(to.wrapping_sub(at + 5));
    let [a, b, c, d] = displacement.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Overwrites code of the program.
pub(crate) fn patch(at: u64, bytes: &[u8]) -> Option<()> {
    let page = page_down(at);
    let span = page_up(at + bytes.len() as u64) - page;
    // Executable throughout: the interrupted program's own page may be this one.
    let open = PROT_READ | PROT_WRITE | PROT_EXEC;
    // SAFETY: code of the program, which is not running; its protection is restored below.
    unsafe { sys::mprotect(page, span, open) }.ok()?;
    let written = guest::copy_out(at, bytes).ok();
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { sys::mprotect(page, span, PROT_READ | PROT_EXEC) }.ok()?;
    written
}

#[cfg(test)]
mod tests {
    use crate::memory::nearby::jump;

    #[test]
    fn jumps_reach_both_ways() {
        assert_eq!(jump(0x1000, 0x2000), [0xe9, 0xfb, 0x0f, 0, 0]);
        assert_eq!(jump(0x2000, 0x1000), [0xe9, 0xfb, 0xef, 0xff, 0xff]);
    }
}

//! The image that the program gets as its vDSO.
//!
//! Assembled and linked at build time from `vdso/`, as the kernel's is: one segment with dynamic
//! symbols, versions and call frame information, for the parsers of C libraries, of Go, of
//! debuggers and unwinders. Each program gets a private copy in which one word is the agent's
//! entry.
//!
//! Contract: it lies at the same address in all replicas, because each maps it at the same point
//! of the trace where the kernel puts a mapping that asks for no place.

use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE};

use crate::arch::vdso::{entry_address, is_wanted};
use crate::memory::loader::page_up;
use crate::memory::regions;
use crate::memory::space::{Kind, space};
use crate::sys::{self, Errno};

/// The file.
static FILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vdso.so"));
/// Where in it the word is that names the agent's entry; found by the build.
const SLOT: usize = include!(concat!(env!("OUT_DIR"), "/vdso_slot.rs"));

/// A program's vDSO: its first address and its length, or zeroes.
pub(crate) type Place = (u64, u64);

/// Maps the image for a new program, if the user wants one.
///
/// # Errors
/// The kernel's, if there is no room.
pub(crate) fn map() -> Result<Place, Errno> {
    let control = regions::control(0);
    if !is_wanted(control) {
        return Ok((0, 0));
    }
    let len = page_up(FILE.len() as u64);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: a new mapping; it replaces nothing.
    let start = unsafe { sys::mmap(0, len, PROT_READ | PROT_WRITE, flags, -1, 0)? };
    let bytes = core::ptr::with_exposed_provenance_mut::<u8>(crate::convert::size(start));
    // SAFETY: mapped just now, writable and at least as long as the file, in which the slot lies.
    unsafe {
        core::ptr::copy_nonoverlapping(FILE.as_ptr(), bytes, FILE.len());
        bytes
            .add(SLOT)
            .cast::<u64>()
            .write_unaligned(entry_address(control));
        sys::mprotect(start, len, PROT_READ | PROT_EXEC)?;
    }
    space().set(start, len, Kind::Fixed);
    Ok((start, len))
}

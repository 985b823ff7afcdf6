//! Programs of Linux in the system sphere: compiled for it, and held against a run on the host.

use crate::launch::Outcome;

/// Compilers of static programs, with their words.
pub const MUSL: &[&str] = &["musl-gcc", "-static"];
/// See [`MUSL`].
pub const GLIBC: &[&str] = &["gcc", "-static"];
/// A compiler for AArch64, where characters have a sign here, as they have on the host.
pub const AARCH64: &[&str] = &["aarch64-linux-gnu-gcc", "-fsigned-char"];

/// What a carried program did is what it does on the host, and the user is told nothing.
///
/// # Panics
/// If not; `what` says which program that was.
pub fn assert_alike(carried: &Outcome, native: &Outcome, what: &str) {
    assert_eq!(carried.ended, native.ended, "{what}: {}", carried.err());
    assert_eq!(carried.out(), native.out(), "{what}");
    assert_eq!(carried.err(), "", "{what}");
}

//! What the processor says of itself: nothing to programs.

/// Leaf and part of it, and the bits that are kept.
#[must_use]
pub const fn identity(_leaf: u32, _part: u32, _kept: [u32; 4]) -> [u32; 4] {
    [0; 4]
}

//! What all replicas perform at one point of the trace, a bit for each: the tick, interrupt lines,
//! and the replacement of a lost replica.

use rcoe_kernel_objects::IRQ_LINES;

/// Action: the tick. The bits above are interrupt lines.
pub(crate) const TICK: u64 = 1;

/// Action: a lost replica is to be replaced.
pub(crate) const REPLACE: u64 = 1 << 63;

/// The action of an interrupt line.
pub(crate) const fn action_of(line: u32) -> u64 {
    2 << line
}

/// The interrupt lines among actions, from the lowest on.
pub(crate) fn lines_of(actions: u64) -> impl Iterator<Item = u32> {
    let mut rest = actions >> 1 & ((1 << IRQ_LINES) - 1);
    core::iter::from_fn(move || {
        let line = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        line
    })
}

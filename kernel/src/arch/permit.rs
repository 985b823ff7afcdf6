//! The permit to stop another core, or to start it anew: given where that was found justified, and
//! asked for at the very command.
//!
//! No core can refuse such a command. A kernel whose instruction pointer was hit may come to one
//! from anywhere, behind all that is checked before; but then there is no permit.

use core::sync::atomic::{AtomicU32, Ordering};

/// The core that the permit names, and one; 0 for none. As it is spent at once, it is alike in all
/// replicas when these are compared.
static PERMIT: AtomicU32 = AtomicU32::new(0);

/// Permits the next command that stops or starts this core, and no other.
pub(crate) fn permit(core: u32) {
    PERMIT.store(core + 1, Ordering::Relaxed);
}

/// Spends the permit.
///
/// # Panics
/// If it does not name this core: this kernel came here without a reason, so it is broken.
pub(super) fn spend(core: u32) {
    let named = PERMIT.swap(0, Ordering::Relaxed);
    assert!(named == core + 1, "core {core} is commanded for no reason");
}

//! The permit to stop another core, to start it anew, or to switch the machine off: given where
//! that was found justified, and asked for at the very command.
//!
//! Nobody can refuse such a command. A kernel whose instruction pointer was hit may come to one
//! from anywhere, behind all that is checked before; but then there is no permit.

use core::sync::atomic::{AtomicU32, Ordering};

use super::processor::cpu::OFF_WORD;

/// The core that the permit names, and one; 0 for none. As it is spent at once, it is alike in all
/// replicas when these are compared.
static PERMIT: AtomicU32 = AtomicU32::new(0);

/// By what the machine is switched off, while there is a reason for it; else 0. It stands nowhere
/// in the code of the command, so that who comes there astray lacks it.
static OFF: AtomicU32 = AtomicU32::new(0);

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

/// Permits to switch the machine off if `is_right`; else nobody may.
pub(crate) fn permit_off(is_right: bool) {
    OFF.store(u32::from(is_right) * OFF_WORD, Ordering::Relaxed);
}

/// Spends that permit; by what the machine is switched off.
///
/// # Panics
/// If there is none: this kernel came here without a reason, so it is broken.
pub(super) fn spend_off() -> u32 {
    let word = OFF.swap(0, Ordering::Relaxed);
    assert!(word != 0, "the machine is switched off for no reason");
    word
}

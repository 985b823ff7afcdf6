//! Guests: there are none on this processor, and the kernel makes no virtual processor.

/// What is entered next is a guest.
///
/// # Safety
/// There is none.
///
/// # Panics
/// Always.
pub(in crate::arch) unsafe fn enter(_first: u64, _own: u64, _lines: u64) {
    unreachable!("no thread is a virtual processor");
}

/// Where an instruction of a guest is.
///
/// # Panics
/// Always.
pub(crate) fn place_of(_ip: u64, _status: u64) -> Option<u64> {
    unreachable!("no thread is a virtual processor");
}

/// The kernel was entered from a guest.
///
/// # Panics
/// Always.
pub(crate) fn leave() {
    unreachable!("no thread is a virtual processor");
}

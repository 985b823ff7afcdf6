//! State of which a replica has one, and that changes.
//!
//! A replica is one kernel thread: the program's threads take turns on it, and what interrupts the
//! agent (a signal, a fault at a guard) leaves alone what it may be about to use. So none of it
//! needs a lock.
//!
//! Contract: the cell gives a pointer only. Whoever makes a reference of it says why there is no
//! other one meanwhile. It adds nothing to its value, so one of zeroes lies in `.bss`.

use core::cell::UnsafeCell;

/// A value that is used by the one kernel thread of a replica.
#[repr(transparent)]
pub(crate) struct OneThread<T>(UnsafeCell<T>);

// SAFETY: a replica is one kernel thread.
unsafe impl<T> Sync for OneThread<T> {}

impl<T> OneThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Where the value stands.
    #[inline]
    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }
}

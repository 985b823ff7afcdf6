//! The word by which replicas call the supervisor, as the threads that wait for it share it.
//!
//! Contract: everybody may write the word, so its value proves nothing. Whoever was called looks
//! itself what there is to do.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rcoe_linux_abi::{Doorbell, PAGE_BYTES};

/// A mapping of the word that lives as long as this does.
#[derive(Debug)]
pub struct Bell {
    page: NonNull<u8>,
}

// SAFETY: the mapping is shared memory with an atomic word, and nobody unmaps it before the drop.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Bell {
    /// The word at this offset of an object, which is a multiple of the page size.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn map(object: BorrowedFd, offset: usize) -> io::Result<Self> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address the kernel chooses overlaps nothing.
        let page = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                object.as_raw_fd(),
                offset,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { page })
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        // SAFETY: in bounds of a live page-aligned mapping; any value is valid, and all writers use
        // atomics.
        &unsafe { self.page.cast::<Doorbell>().as_ref() }.0
    }

    /// What it says now; it says something else after a call.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.word().load(Ordering::SeqCst)
    }

    /// Calls whoever waits.
    pub fn ring(&self) {
        self.word().fetch_add(1, Ordering::SeqCst);
        self.futex(libc::FUTEX_WAKE, i32::MAX.cast_unsigned());
    }

    /// Waits until it no longer says this. May return earlier.
    pub fn wait(&self, seen: u32) {
        self.futex(libc::FUTEX_WAIT, seen);
    }

    fn futex(&self, operation: i32, value: u32) {
        let no_timeout = core::ptr::null::<libc::timespec>();
        let word = self.word().as_ptr();
        // SAFETY: the word is mapped for as long as self lives, and there is no timeout to read.
        // What can fail is a wait that is over.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, value, no_timeout) };
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives self.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;
    use crate::host::{Access, SharedObject};

    #[test]
    fn a_call_ends_the_wait_of_another_thread() {
        let object =
            SharedObject::create(c"bell", 2 * PAGE_BYTES, Access::ReadWrite).expect("object");
        let bell = Bell::map(object.as_fd(), PAGE_BYTES).expect("mapped");
        let bell = Arc::new(bell);
        let seen = bell.value();
        let waiter = {
            let bell = Arc::clone(&bell);
            std::thread::spawn(move || {
                while bell.value() == seen {
                    bell.wait(seen);
                }
                bell.value()
            })
        };
        bell.ring();
        assert_eq!(waiter.join().expect("woken"), seen.wrapping_add(1));
    }
}

//! This replica's slice of the memory that processes share, and the ring of claims.
//!
//! All slices are mapped in every replica, so that a child can take another one than its maker had,
//! but only the replica's own can be touched.

use linux_raw_sys::general::{
    MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE,
};
use rcoe_linux_abi::arena::{
    BOOKS_BYTES, BOOKS_OFFSET, Books, CLAIMS_ADDR, CLAIMS_BYTES, Claims, Gate, slice_addr,
};

use crate::sys::{self, Errno};

/// The slice of one replica index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice(usize);

/// The ring of claims.
pub(crate) fn claims() -> &'static Claims {
    // SAFETY: mapped for good before anything else runs; atomic words, of which zero is valid.
    unsafe { &*(CLAIMS_ADDR as *const Claims) }
}

/// Maps the object behind `fd`: the claims, and so many slices of `bytes`, out of reach yet.
///
/// # Errors
/// As the host says.
pub(crate) fn map(fd: i32, slices: usize, bytes: u64) -> Result<(), Errno> {
    let flags = MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    let both = PROT_READ | PROT_WRITE;
    let (claims, len) = (CLAIMS_ADDR as u64, CLAIMS_BYTES as u64);
    // SAFETY: a place in the agent's own window that nothing uses yet.
    unsafe { sys::mmap(claims, len, both, flags, fd, 0) }?;
    for index in 0..slices {
        let offset = len + index as u64 * bytes;
        let address = slice_addr(index) as u64;
        if bytes > 0 {
            // SAFETY: as above.
            unsafe { sys::mmap(address, bytes, PROT_NONE, flags, fd, offset) }?;
        }
    }
    Ok(())
}

impl Slice {
    pub(crate) const fn new(index: usize) -> Self {
        assert!(index < rcoe_linux_abi::MAX_REPLICAS);
        Self(index)
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }

    fn base(self) -> usize {
        slice_addr(self.index())
    }

    /// Makes this slice the only one that can be touched.
    pub(crate) fn take(self, slices: usize, bytes: u64) {
        for index in 0..slices {
            let own = index == self.index();
            let prot = if own {
                PROT_READ | PROT_WRITE
            } else {
                PROT_NONE
            };
            if bytes > 0 {
                // SAFETY: a mapping of the agent's own, which nobody refers to at the moment.
                unsafe { sys::mprotect(slice_addr(index) as u64, bytes, prot) }
                    .expect("a mapping of ours");
            }
        }
    }

    /// Whose turn it is.
    pub(crate) fn gate(self) -> &'static Gate {
        // SAFETY: mapped for good; atomic words, of which zero is valid.
        unsafe { &*(self.base() as *const Gate) }
    }

    /// What is kept about the memory; only for who has the turn, and not kept beyond it.
    pub(super) fn books(self) -> &'static mut Books {
        // SAFETY: mapped for good, and every bit pattern is valid. Processes of this slice touch it
        // in their turns only, and this one is a single kernel thread whose callers keep no second
        // reference.
        unsafe { &mut *((self.base() + BOOKS_OFFSET) as *mut Books) }
    }

    /// Where the program's part of the slice begins.
    pub(crate) fn memory(self) -> u64 {
        (self.base() + BOOKS_BYTES) as u64
    }
}

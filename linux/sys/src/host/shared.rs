//! Memory objects shared with the replicas.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rcoe_core::Outbox;
use rcoe_linux_abi::arena::{Claims, Gate};
use rcoe_linux_abi::{Control, Notebook, Report};

/// Descriptors of ours live at or above this number, away from the program's.
const HIGH_FD: i32 = 200;

/// Types that may be seen in shared memory which another process writes.
///
/// # Safety
///
/// Every byte of the type must be inside an atomic (or padding), every bit pattern, all zero
/// included, must be valid, and no method may write unless the owner of the object calls it.
pub unsafe trait SharedLayout: Sync {}

// SAFETY: all fields are atomics or arrays of them.
unsafe impl SharedLayout for Control {}
// SAFETY: all fields are atomics or arrays of them.
unsafe impl SharedLayout for Report {}
// SAFETY: all fields are atomics or structures of them; bytes of zero are a fresh outbox.
unsafe impl SharedLayout for Outbox {}
// SAFETY: all fields are atomics or structures of them.
unsafe impl SharedLayout for Claims {}
// SAFETY: all fields are atomics or structures of them.
unsafe impl SharedLayout for Gate {}
// SAFETY: all fields are atomics or arrays of them.
unsafe impl SharedLayout for Notebook {}
// SAFETY: an atomic word.
unsafe impl SharedLayout for AtomicU64 {}

/// Whether this process may store into the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The object belongs to another party; a store would fault.
    ReadOnly,
    /// The object is this process's own.
    ReadWrite,
}

/// A zeroed memory object of fixed size, mapped here and handed to children by descriptor.
#[derive(Debug)]
pub struct SharedObject {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    access: Access,
}

impl SharedObject {
    /// Makes an object of `len` bytes that can neither shrink nor grow.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the object, its size, its seals or the mapping.
    pub fn create(name: &CStr, len: usize, access: Access) -> io::Result<Self> {
        let fd = memory_file(name, libc::MFD_ALLOW_SEALING)?;
        let size = i64::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: both calls change only the file behind our own descriptor.
        let failed = unsafe {
            libc::ftruncate(fd.as_raw_fd(), size) != 0
                || libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
        let fd = raise(fd)?;
        let protection = match access {
            Access::ReadOnly => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address the kernel chooses overlaps nothing.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            fd,
            base,
            len,
            access,
        })
    }

    /// The `T` at `offset`.
    ///
    /// # Panics
    ///
    /// If it does not fit into the object or is misaligned: offsets are constants of the layout.
    #[must_use]
    pub fn view<T: SharedLayout>(&self, offset: usize) -> &T {
        let end = offset
            .checked_add(size_of::<T>())
            .expect("offset within the address space");
        assert!(end <= self.len, "view past the end of a shared object");
        assert_eq!(offset % align_of::<T>(), 0, "misaligned view");
        assert!(align_of::<T>() <= 4096, "mappings are page aligned");
        // SAFETY: in bounds of a live mapping (it lives as long as self), aligned, and T allows
        // any bit pattern and concurrent writers (SharedLayout). The size is sealed, so that no
        // page of it can vanish.
        unsafe { self.base.add(offset).cast::<T>().as_ref() }
    }

    /// Gives the pages of a range back; it reads as zero afterwards.
    ///
    /// # Errors
    ///
    /// Whatever the kernel says.
    pub fn clear(&self, offset: usize, len: usize) -> io::Result<()> {
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let offset = libc::off_t::try_from(offset).map_err(wrong)?;
        let len = libc::off_t::try_from(len).map_err(wrong)?;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the content may change at any time (SharedLayout); the size stays.
        if unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset, len) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Overwrites what was ever stored in a range with zeroes. Its pages stay: no process has to
    /// be told that they are gone, and who comes next finds them there.
    ///
    /// # Errors
    ///
    /// Whatever the kernel says.
    pub fn wipe(&self, offset: usize, len: usize) -> io::Result<()> {
        static ZEROES: [u8; 1 << 15] = [0; 1 << 15];
        let end = offset + len;
        let mut at = offset;
        while let Some(from) = self.seek(at, libc::SEEK_DATA)?.filter(|from| *from < end) {
            let to = self.seek(from, libc::SEEK_HOLE)?.unwrap_or(end).min(end);
            let part = (to - from).min(ZEROES.len());
            let place = libc::off_t::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: the content may change at any time (SharedLayout); so many bytes are there.
            let put =
                unsafe { libc::pwrite(self.fd.as_raw_fd(), ZEROES.as_ptr().cast(), part, place) };
            at = from + usize::try_from(put).map_err(|_| io::Error::last_os_error())?;
        }
        Ok(())
    }

    /// Where the next data or hole begins at or after an offset; `None` behind the last.
    fn seek(&self, from: usize, what: libc::c_int) -> io::Result<Option<usize>> {
        let from = libc::off_t::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the position of our own descriptor is used by nobody.
        let found = unsafe { libc::lseek(self.fd.as_raw_fd(), from, what) };
        match usize::try_from(found) {
            Ok(found) => Ok(Some(found)),
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Whether this process may store into the object.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }
}

impl Drop for SharedObject {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no view outlives self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl AsFd for SharedObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A new close-on-exec memory file.
pub(super) fn memory_file(name: &CStr, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: the name is a valid C string; the result is checked before use.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags | libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Moves a descriptor up, to where the program's own descriptors hardly reach.
pub(super) fn raise(fd: OwnedFd) -> io::Result<OwnedFd> {
    for lowest in [HIGH_FD, 32, 3] {
        // SAFETY: duplicating a descriptor touches no memory.
        let high = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
        if high >= 0 {
            // SAFETY: a fresh descriptor that nobody else owns.
            return Ok(unsafe { OwnedFd::from_raw_fd(high) });
        }
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn object_is_zero_and_writable() {
        let object = SharedObject::create(c"test", 4096, Access::ReadWrite).expect("object");
        let word: &AtomicU64 = object.view(8);
        assert_eq!(word.load(Relaxed), 0);
        word.store(7, Relaxed);
        assert_eq!(object.view::<AtomicU64>(8).load(Relaxed), 7);
        assert!(object.as_fd().as_raw_fd() >= 32);
    }

    #[test]
    fn size_is_sealed() {
        let object = SharedObject::create(c"test", 4096, Access::ReadOnly).expect("object");
        // SAFETY: ftruncate on our own descriptor; the seal makes it fail.
        let result = unsafe { libc::ftruncate(object.as_fd().as_raw_fd(), 0) };
        assert_eq!(result, -1);
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn view_is_bounds_checked() {
        let object = SharedObject::create(c"test", 64, Access::ReadOnly).expect("object");
        let _word: &AtomicU64 = object.view(64);
    }
}

//! Overwriting the program's code for a while, without a trace for anybody but who executes it.
//!
//! The kernel writes through `/proc/self/mem`, so that code is never writable for the program and
//! its protection key keeps what it allows. Where that is refused, pages are made writable instead
//! of executable and get their protection back.
//!
//! A program may read its own code, too. So pages with a patch can be executed only, where the
//! processor has keys for that; who reads there faults, and reads with the patch lifted for one
//! instruction. Code that the program has made is not writable meanwhile; who writes there faults,
//! and does so with the patch lifted.
//!
//! Contract: the program does not run while its code is written; it is one kernel thread, so five
//! bytes need not change at once. Whoever copies, compares or digests the program's memory, or
//! forks, takes a patch out before.
//!
//! Not covered: a program that reads its own code on a processor without protection keys, or with
//! all keys open; one that reads what it has made. Shared mappings are refused, since others would
//! see it.

use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};

use crate::coupling::place::{JUMP, Window};
use crate::memory::guest;
use crate::memory::loader::{page_down, page_up};
use crate::memory::nearby::jump;
use crate::sys::{self, Errno};

/// How code was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through `/proc/self/mem`.
    Memory,
    /// By changing its protection.
    Protection,
}

/// Why code was not written, or not written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// It is not what was looked at before.
    Changed,
    /// Others would see it.
    Shared,
    /// The host refuses.
    Refused(Errno),
    /// It was written, and something else is there.
    Unseen,
}

/// Code that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    /// What its pages allow, as `mmap` takes it.
    pub(crate) bits: u32,
    /// Nobody else sees what is written to it.
    pub(crate) is_private: bool,
}

/// A jump in the program's code, or room for one.
#[derive(Debug, Default)]
pub(crate) struct Patch {
    at: u64,
    old: [u8; JUMP],
    new: [u8; JUMP],
    is_in: bool,
    /// What its pages allow when it is not in.
    bits: u32,
    /// Its pages can be executed only, as far as the processor can do that; or not be written.
    is_hidden: bool,
    /// It is in, but for one instruction, which reads it.
    is_lifted: bool,
}

impl Patch {
    /// No patch.
    pub(crate) const NONE: Self = Self {
        at: 0,
        old: [0; JUMP],
        new: [0; JUMP],
        is_in: false,
        bits: 0,
        is_hidden: false,
        is_lifted: false,
    };

    /// Overwrites the window's beginning with a jump.
    ///
    /// # Errors
    /// The code is another one, or cannot be written.
    ///
    /// # Panics
    /// There is a patch already.
    pub(crate) fn put_in(
        &mut self,
        window: &Window,
        to: u64,
        protection: Protection,
    ) -> Result<Way, Unwritten> {
        assert!(!self.is_in, "one patch at a time");
        let old = window.code()[..JUMP].try_into().expect("a whole jump");
        expect(window.at, window.code(), Unwritten::Changed)?;
        let new = jump(window.at, to);
        *self = Self {
            at: window.at,
            old,
            new,
            bits: protection.bits,
            ..Self::NONE
        };
        if self.is_writable() {
            self.hide().map_err(Unwritten::Refused)?;
        }
        let written = write(window.at, &new, protection);
        self.is_in = written.is_ok();
        match self.is_writable() {
            false => self.is_hidden = self.is_in && self.hide().is_ok(),
            true if self.is_in => self.is_hidden = true,
            true => self.protect(self.bits).map_err(Unwritten::Refused)?,
        }
        written
    }

    const fn is_writable(&self) -> bool {
        self.bits & PROT_WRITE != 0
    }

    /// Nobody writes there unseen, nor reads where that can be told and keys are not the program's.
    fn hide(&self) -> Result<(), Errno> {
        let bits = match self.is_writable() {
            true => self.bits & !PROT_WRITE,
            false => PROT_EXEC,
        };
        self.protect(bits)
    }

    /// Is this an address at which the program may have to be stopped before it goes on?
    pub(crate) const fn hides(&self, address: u64) -> bool {
        let (start, end) = self.pages();
        self.is_hidden && start <= address && address < end
    }

    /// Puts the original bytes back for an instruction that reads or writes them.
    ///
    /// # Errors
    /// The host refuses.
    pub(crate) fn lift(&mut self) -> Result<(), Errno> {
        write_by_kernel(self.at, &self.old)?;
        if self.is_writable() {
            self.protect(self.bits)?;
        }
        self.is_lifted = true;
        Ok(())
    }

    /// Puts the jump there again over the window that it was made for.
    ///
    /// # Errors
    /// The host refuses, or the code has become another one.
    pub(crate) fn put_back(&mut self, window: &Window) -> Result<(), Unwritten> {
        expect(window.at, window.code(), Unwritten::Changed)?;
        if self.is_writable() {
            self.hide().map_err(Unwritten::Refused)?;
        }
        write_by_kernel(self.at, &self.new).map_err(Unwritten::Refused)?;
        self.is_lifted = false;
        Ok(())
    }

    const fn pages(&self) -> (u64, u64) {
        (page_down(self.at), page_up(self.at + JUMP as u64))
    }

    fn protect(&self, bits: u32) -> Result<(), Errno> {
        let (start, end) = self.pages();
        // SAFETY: code of the program, which allows less, or what it did.
        unsafe { sys::mprotect(start, end - start, bits) }
    }

    /// Puts the original bytes back, if there is a patch.
    ///
    /// # Errors
    /// The jump is not there any more, or cannot be overwritten.
    pub(crate) fn take_out(&mut self, protection: Protection) -> Result<(), Unwritten> {
        if !self.is_in {
            return Ok(());
        }
        if core::mem::take(&mut self.is_hidden) {
            self.protect(self.bits).map_err(Unwritten::Refused)?;
        }
        if !core::mem::take(&mut self.is_lifted) {
            expect(self.at, &self.new, Unwritten::Changed)?;
            write(self.at, &self.old, protection)?;
        }
        self.is_in = false;
        Ok(())
    }
}

fn expect(at: u64, bytes: &[u8], otherwise: Unwritten) -> Result<(), Unwritten> {
    const PART: usize = 64;
    for (address, part) in (at..).step_by(PART).zip(bytes.chunks(PART)) {
        let mut found = [0; PART];
        let found = &mut found[..part.len()];
        if guest::copy_in(found, address).is_err() || found != part {
            return Err(otherwise);
        }
    }
    Ok(())
}

/// Writes code where anything can be written.
///
/// # Errors
/// It is not there then.
pub(crate) fn fill(at: u64, bytes: &[u8]) -> Result<(), Unwritten> {
    guest::copy_out(at, bytes).map_err(|_| Unwritten::Unseen)?;
    expect(at, bytes, Unwritten::Unseen)
}

/// Overwrites code.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(at: u64, bytes: &[u8], protection: Protection) -> Result<Way, Unwritten> {
    if !protection.is_private {
        return Err(Unwritten::Shared);
    }
    let way = match write_by_kernel(at, bytes) {
        Ok(()) => Way::Memory,
        Err(_) => write_unprotected(at, bytes, protection.bits)?,
    };
    expect(at, bytes, Unwritten::Unseen).map(|()| way)
}

fn write_by_kernel(at: u64, bytes: &[u8]) -> Result<(), Errno> {
    sys::with_own_memory(|| {
        let memory = sys::open_file(b"/proc/self/mem\0", true)?;
        let written = sys::pwrite_raw(memory, bytes.as_ptr() as u64, bytes.len(), at);
        sys::close(memory);
        sys::check(written).map(drop)
    })
}

/// The same with pages that are writable meanwhile, and not executable.
pub(crate) fn write_unprotected(at: u64, bytes: &[u8], bits: u32) -> Result<Way, Unwritten> {
    let page = page_down(at);
    let span = page_up(at + bytes.len() as u64) - page;
    // SAFETY: code of the program, which is not running; its protection is restored below.
    let opened = unsafe { sys::mprotect(page, span, PROT_READ | PROT_WRITE) };
    opened.map_err(Unwritten::Refused)?;
    let written = guest::copy_out(at, bytes);
    // SAFETY: as above.
    unsafe { sys::mprotect(page, span, bits) }.map_err(Unwritten::Refused)?;
    written
        .map_err(|_| Unwritten::Unseen)
        .map(|()| Way::Protection)
}

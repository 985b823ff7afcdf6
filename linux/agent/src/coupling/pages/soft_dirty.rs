//! Written pages by the kernel's soft-dirty bits.
//!
//! Contract: nobody else clears the bits of this process. The descriptors belong to one address
//! space, and are the agent's as those of the other tracker.

use rcoe_linux_sys::tracking::{self, clear_soft_dirty, entry};

use crate::coupling::pages::{
    Asked, PAGE, Pages, Run, Tracker, Untracked, answer, each_entry, open,
};
use crate::sys::Errno;

/// The tracker.
#[derive(Debug)]
pub(crate) struct SoftDirty {
    clear_refs: i64,
    pagemap: i64,
}

impl SoftDirty {
    /// Asks the host for one, and whether it notes anything: `probe` is a byte that may be written.
    ///
    /// # Errors
    /// It refuses, or has no such bits.
    pub(crate) fn new(probe: &mut u8) -> Result<Self, Untracked> {
        let clear_refs = open(Asked::ClearRefs, c"/proc/self/clear_refs", true)?;
        let pagemap = open(Asked::Pagemap, c"/proc/self/pagemap", false);
        if pagemap.is_err() {
            tracking::close(clear_refs);
        }
        let it = Self {
            clear_refs,
            pagemap: pagemap?,
        };
        match it.notes(probe) {
            Ok(true) => Ok(it),
            Ok(false) => {
                it.close();
                Err(Untracked::Refused(Asked::SoftDirty, Errno(0)))
            }
            Err(refused) => {
                it.close();
                Err(refused)
            }
        }
    }

    /// Is a write noted?
    fn notes(&self, probe: &mut u8) -> Result<bool, Untracked> {
        let start = (&raw const *probe) as u64 & !(PAGE - 1);
        let page = [Run {
            start,
            end: start + PAGE,
        }];
        answer(Asked::ClearRefs, clear_soft_dirty(self.clear_refs))?;
        // SAFETY: a byte that is borrowed for writing; it keeps its value.
        unsafe { (&raw mut *probe).write_volatile(*probe) };
        let mut noted = false;
        each_entry(self.pagemap, &page, |_, word| {
            noted = word & entry::SOFT_DIRTY != 0;
            Ok(())
        })?;
        Ok(noted)
    }

    /// Its two descriptors.
    pub(crate) const fn descriptors(&self) -> [i64; 2] {
        [self.clear_refs, self.pagemap]
    }

    /// Nothing is noted any more.
    pub(crate) fn close(self) {
        tracking::close(self.clear_refs);
        tracking::close(self.pagemap);
    }
}

impl Tracker for SoftDirty {
    fn arm(&mut self, _: &[Run]) -> Result<(), Untracked> {
        answer(Asked::ClearRefs, clear_soft_dirty(self.clear_refs)).map(drop)
    }

    fn written(&mut self, memory: &[Run], pages: &mut Pages<'_>) -> Result<(), Untracked> {
        each_entry(self.pagemap, memory, |start, word| {
            if word & entry::SOFT_DIRTY == 0 || word & entry::POPULATED == 0 {
                return Ok(());
            }
            let end = start + PAGE;
            pages.add(Run { start, end })
        })
    }
}

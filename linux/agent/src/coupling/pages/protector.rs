//! Written pages by write protection that waits for nobody (Linux 6.7).
//!
//! A `userfaultfd` is registered with the memory; a scan protects what is written and tells what is
//! not protected any more. The kernel's own writes count.
//!
//! Contract: both descriptors belong to one address space: a child opens its own. They stand in the
//! process's table, so whoever uses this hides them from the program.
//!
//! Registration is lost by `mremap` and by a clone, and new mappings have none; their pages count
//! as written until the tracker is armed again.

use linux_raw_sys::errno::EPERM;
use rcoe_linux_sys::tracking::{
    self, Region, SCAN_AND_PROTECT, SCAN_CHECKED, Scan, category, register, write_protector,
};

use crate::convert::size;
use crate::coupling::pages::{Asked, Pages, Run, Tracker, Untracked, answer, open};
use crate::sys::Errno;

/// Regions asked for at once.
const BATCH: usize = 128;

/// The tracker.
#[derive(Debug)]
pub(crate) struct Protector {
    protector: i64,
    pagemap: i64,
}

impl Protector {
    /// Asks the host for one.
    ///
    /// # Errors
    /// It refuses.
    pub(crate) fn new() -> Result<Self, Untracked> {
        let protector = answer(Asked::Protector, write_protector())?;
        let pagemap = open(Asked::Pagemap, c"/proc/self/pagemap", false);
        if pagemap.is_err() {
            tracking::close(protector);
        }
        Ok(Self {
            protector,
            pagemap: pagemap?,
        })
    }

    /// Its two descriptors.
    pub(crate) const fn descriptors(&self) -> [i64; 2] {
        [self.protector, self.pagemap]
    }

    /// Nothing is protected any more.
    pub(crate) fn close(self) {
        tracking::close(self.protector);
        tracking::close(self.pagemap);
    }

    /// Scans a run in parts; false if a part of it is not registered.
    fn scan(
        &self,
        run: Run,
        mut what: Scan,
        mut each: impl FnMut(&Region) -> Result<(), Untracked>,
    ) -> Result<bool, Untracked> {
        let mut regions = [Region::default(); BATCH];
        (what.start, what.end) = (run.start, run.end);
        while what.start < what.end {
            let filled = tracking::scan(self.pagemap, &mut what, &mut regions);
            let filled = match answer(Asked::Scan, filled) {
                Err(Untracked::Refused(_, Errno(errno))) if errno == EPERM.cast_signed() => {
                    return Ok(false);
                }
                other => size(other?.cast_unsigned()),
            };
            for region in &regions[..filled] {
                each(region)?;
            }
            if what.walk_end <= what.start {
                return Err(Untracked::Refused(Asked::Scan, Errno(0)));
            }
            what.start = what.walk_end;
        }
        Ok(true)
    }

    /// All pages of what is not registered, and of the rest those written.
    fn unregistered(&self, run: Run, pages: &mut Pages<'_>) -> Result<(), Untracked> {
        let there = category::PRESENT | category::SWAPPED | category::WRITTEN;
        let what = Scan::new(0, 0, there, there | category::ALLOWED);
        self.scan(run, what, |region| {
            // Where nothing is protected, places without a page look written, too.
            let counts = match region.categories & category::ALLOWED {
                0 => category::PRESENT | category::SWAPPED,
                _ => category::WRITTEN,
            };
            if region.categories & counts == 0 {
                return Ok(());
            }
            pages.add(run_of(region))
        })
        .map(drop)
    }
}

const fn run_of(region: &Region) -> Run {
    Run {
        start: region.start,
        end: region.end,
    }
}

/// What was written.
fn what(flags: u64) -> Scan {
    Scan::new(flags, category::WRITTEN, 0, category::WRITTEN)
}

impl Tracker for Protector {
    fn arm(&mut self, memory: &[Run]) -> Result<(), Untracked> {
        for run in memory {
            let done = register(self.protector, run.start, run.end - run.start);
            answer(Asked::Register, done)?;
            let all = self.scan(*run, what(SCAN_AND_PROTECT | SCAN_CHECKED), |_| Ok(()))?;
            if !all {
                return Err(Untracked::Refused(
                    Asked::Register,
                    Errno(EPERM.cast_signed()),
                ));
            }
        }
        Ok(())
    }

    fn written(&mut self, memory: &[Run], pages: &mut Pages<'_>) -> Result<(), Untracked> {
        for run in memory {
            let before = pages.count;
            let last = pages.room.get(before.wrapping_sub(1)).copied();
            let add = |region: &Region| pages.add(run_of(region));
            if !self.scan(*run, what(SCAN_CHECKED), add)? {
                // What was found up to there is found again.
                pages.count = before;
                if let Some(last) = last {
                    pages.room[before - 1] = last;
                }
                self.unregistered(*run, pages)?;
            }
        }
        Ok(())
    }
}

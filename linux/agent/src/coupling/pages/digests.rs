//! Written pages by comparing the content of all of them: for hosts that note nothing.
//!
//! A page that was written and holds what it held before does not count: nobody could tell.

use rcoe_linux_abi::PAGE;
use rcoe_linux_sys::tracking::{self, entry};
use xxhash_rust::xxh3::xxh3_64;

use crate::convert::size;
use crate::coupling::pages::{Asked, Pages, Run, Tracker, Untracked, each_entry, open};
use crate::memory::guest;

/// A page and the digest of what it held.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    page: u64,
    digest: u64,
}

/// The tracker.
#[derive(Debug)]
pub(crate) struct Digests<'a> {
    /// In order of their addresses.
    table: &'a mut [Known],
    count: usize,
    pagemap: i64,
}

impl<'a> Digests<'a> {
    /// Room for so many pages.
    ///
    /// # Errors
    /// The host does not tell which pages there are.
    pub(crate) fn new(table: &'a mut [Known]) -> Result<Self, Untracked> {
        Ok(Self {
            table,
            count: 0,
            pagemap: open(Asked::Pagemap, c"/proc/self/pagemap", false)?,
        })
    }

    /// Its descriptor.
    pub(crate) const fn descriptors(&self) -> [i64; 1] {
        [self.pagemap]
    }

    /// Nothing is known any more.
    pub(crate) fn close(self) {
        tracking::close(self.pagemap);
    }
}

/// Digest of a page; one that cannot be read holds nothing.
fn digest(page: u64) -> u64 {
    let mut content = [0; size(PAGE)];
    match guest::copy_in(&mut content, page) {
        Ok(()) => xxh3_64(&content),
        Err(_) => 0,
    }
}

impl Tracker for Digests<'_> {
    fn arm(&mut self, memory: &[Run]) -> Result<(), Untracked> {
        self.count = 0;
        let Self { table, count, .. } = self;
        each_entry(self.pagemap, memory, |page, word| {
            if word & entry::POPULATED != 0 {
                let digest = digest(page);
                *table.get_mut(*count).ok_or(Untracked::Full)? = Known { page, digest };
                *count += 1;
            }
            Ok(())
        })
    }

    fn written(&mut self, memory: &[Run], pages: &mut Pages<'_>) -> Result<(), Untracked> {
        let table = &self.table[..self.count];
        each_entry(self.pagemap, memory, |page, word| {
            let known = table.binary_search_by_key(&page, |known| known.page);
            let known = known.ok().map(|index| table[index].digest);
            let now = (word & entry::POPULATED != 0).then(|| digest(page));
            if known == now {
                return Ok(());
            }
            let end = page + PAGE;
            pages.add(Run { start: page, end })
        })
    }
}

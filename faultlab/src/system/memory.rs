//! Where in a machine's memory a replica's state lies, read from its own page tables.
//!
//! Only pages that the machine has ever written are considered: flips in the rest of a partition
//! would meet nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::owner;
use super::plan::Target;
use super::processor::Processor;

const PAGE: u64 = 4096;
const PAGE_BYTES: usize = 4096;
/// As the loader lays partitions out.
const FIRST: u64 = 16 << 20;
const TABLES: u64 = 2 << 20;
const OBJECTS: u64 = 4 << 20;
const SHARED: u64 = 8 << 20;
const SLICE: u64 = 64 << 10;
const TRANSFER: u64 = 9 << 20;
const TRANSFER_BYTES: u64 = 16 * PAGE;
/// The entry of a root table that marks it as that of a guest's space, and what stands there.
const GUEST_ENTRY: usize = 510;
const GUEST_MARK: u64 = 2;
/// Bytes of the frames that a guest's memory is of.
const LARGE: u64 = 2 << 20;
/// First word of object memory: what the loader tells the replica.
const MAGIC: u64 = u64::from_le_bytes(*b"rcoepart");

/// A machine's memory, as a file of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory<'a> {
    pub(super) processor: &'static Processor,
    pub(super) file: &'a Path,
    /// Bytes of each replica's partition.
    pub(super) partition: u64,
}

/// A replica's pages by class.
#[derive(Debug, Default)]
pub(super) struct Pages {
    kernel_code: BTreeSet<u64>,
    kernel_data: BTreeSet<u64>,
    kernel_tables: BTreeSet<u64>,
    objects: BTreeSet<u64>,
    user_tables: BTreeSet<u64>,
    user: BTreeSet<u64>,
    /// The same pages again, by whose they are.
    owned: BTreeMap<Target, BTreeSet<u64>>,
    shared: BTreeSet<u64>,
    guest: BTreeSet<u64>,
    transfer: BTreeSet<u64>,
}

struct Reader {
    file: File,
    processor: &'static Processor,
    base: u64,
    partition: u64,
}

impl Reader {
    fn page(&self, address: u64) -> Result<Vec<u64>> {
        let mut bytes = [0; PAGE_BYTES];
        self.file
            .read_exact_at(&mut bytes, address - self.processor.memory)
            .context("the machine's memory")?;
        let words = bytes.chunks_exact(8);
        Ok(words
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect())
    }

    /// Pages of object memory that were ever written.
    fn written(&self) -> Result<Vec<u64>> {
        self.written_in(self.base + OBJECTS, self.base + self.partition)
    }

    /// Those between two addresses.
    fn written_in(&self, start: u64, end: u64) -> Result<Vec<u64>> {
        // From here on by places in the file.
        let first = self.processor.memory;
        let end = end - first;
        let mut found = Vec::new();
        let mut at = start - first;
        while at < end {
            let start = match lseek(&self.file, at.cast_signed(), Whence::SeekData) {
                Err(Errno::ENXIO) => break,
                start => start.context("looking for written memory")?.cast_unsigned(),
            };
            let hole = lseek(&self.file, start.cast_signed(), Whence::SeekHole)?;
            let stop = hole.cast_unsigned().min(end);
            let pages = (start / PAGE * PAGE..stop).step_by(PAGE_BYTES);
            found.extend(pages.map(|page| first + page));
            at = hole.cast_unsigned();
        }
        Ok(found)
    }

    /// Pages of a guest's memory that were written, by the first entry of its root table.
    fn guest(&self, first: u64, written: &[u64]) -> Result<Vec<u64>> {
        let below = |entry: u64| match self.processor.target(entry) {
            Some(table) if self.is_own(table) => self.page(table),
            _ => Ok(Vec::new()),
        };
        let mut frames = BTreeSet::new();
        for entry in below(first)? {
            let entries = below(entry)?.into_iter();
            let large = entries.filter(|&entry| self.processor.is_large(entry));
            frames.extend(large.filter_map(|entry| self.processor.target(entry)));
        }
        let pages = written.iter().copied();
        Ok(pages
            .filter(|page| frames.contains(&(page / LARGE * LARGE)))
            .collect())
    }

    /// What a program's space begins with, by its root table: a page of a file, if any.
    fn first_page(&self, root: u64) -> Result<Option<Vec<u64>>> {
        let mut at = root;
        for index in owner::PATH {
            match self.processor.target(self.page(at)?[index]) {
                Some(next) if self.is_own(next) => at = next,
                _ => return Ok(None),
            }
        }
        self.page(at).map(Some)
    }

    fn is_own(&self, address: u64) -> bool {
        (self.base..self.base + self.partition).contains(&address)
    }

    /// Visits the tables below `table`; `leaf` gets what they map.
    fn walk(
        &self,
        table: u64,
        level: u32,
        entries: std::ops::Range<usize>,
        tables: &mut BTreeSet<u64>,
        leaf: &mut impl FnMut(u64, u64),
    ) -> Result<()> {
        if !self.is_own(table) || !tables.insert(table) {
            return Ok(());
        }
        for &entry in &self.page(table)?[entries] {
            let Some(target) = self.processor.target(entry) else {
                continue;
            };
            if level == 0 {
                leaf(target, entry);
            } else if !self.processor.is_large(entry) {
                self.walk(target, level - 1, 0..512, tables, leaf)?;
            }
        }
        Ok(())
    }
}

impl Pages {
    /// Finds the pages of a replica in a machine's memory, which stands still.
    ///
    /// # Errors
    /// If that is not the memory of such a machine.
    pub(super) fn find(memory: Memory<'_>, replica: usize) -> Result<Self> {
        let Memory {
            processor,
            file,
            partition,
        } = memory;
        let base = processor.memory + FIRST + replica as u64 * partition;
        let reader = Reader {
            file: File::open(file)?,
            processor,
            base,
            partition,
        };
        let magic = reader.page(base + OBJECTS)?[0];
        ensure!(magic == MAGIC, "no partition of a replica at {base:#x}");
        let mut pages = Self::default();
        pages.kernel(&reader)?;
        pages.programs(&reader)?;
        let slice = processor.memory + SHARED + replica as u64 * SLICE;
        // The outbox, and the ring's first page.
        pages.shared = BTreeSet::from([slice, slice + SLICE / 2]);
        let transfer = processor.memory + TRANSFER + replica as u64 * TRANSFER_BYTES;
        let written = reader.written_in(transfer, transfer + TRANSFER_BYTES)?;
        pages.transfer = written.into_iter().collect();
        Ok(pages)
    }

    fn kernel(&mut self, reader: &Reader) -> Result<()> {
        let image = reader.base..reader.base + TABLES;
        let (code, data) = (&mut self.kernel_code, &mut self.kernel_data);
        let root = reader.base + TABLES;
        reader.walk(
            root,
            3,
            0..512,
            &mut self.kernel_tables,
            &mut |page, entry| {
                if image.contains(&page) {
                    let class = if reader.processor.is_writable(entry) {
                        &mut *data
                    } else {
                        &mut *code
                    };
                    class.insert(page);
                }
            },
        )
    }

    fn programs(&mut self, reader: &Reader) -> Result<()> {
        let written = reader.written()?;
        for &page in &written {
            let table = reader.page(page)?;
            if reader
                .processor
                .maps_kernel(table[511], reader.base + TABLES)
            {
                if table[GUEST_ENTRY] == GUEST_MARK {
                    self.guest.extend(reader.guest(table[0], &written)?);
                }
                let first = reader.first_page(page)?;
                let owner = owner::of(first.as_deref().unwrap_or_default());
                let owned = self.owned.entry(owner).or_default();
                let user = &mut self.user;
                reader.walk(page, 3, 0..511, &mut self.user_tables, &mut |page, _| {
                    user.insert(page);
                    owned.insert(page);
                })?;
            }
        }
        let known = |page: &u64| {
            let sets = [&self.user, &self.user_tables, &self.guest];
            sets.iter().any(|set| set.contains(page))
        };
        self.objects = written
            .iter()
            .copied()
            .filter(|page| !known(page))
            .collect();
        Ok(())
    }

    /// The byte that a random word selects in a class, if the class has any.
    #[must_use]
    pub(super) fn pick(&self, target: Target, place: u64) -> Option<u64> {
        let pages = match target {
            Target::KernelCode => &self.kernel_code,
            Target::KernelData => &self.kernel_data,
            Target::KernelTables => &self.kernel_tables,
            Target::Objects => &self.objects,
            Target::UserTables => &self.user_tables,
            Target::User => &self.user,
            Target::Shared => &self.shared,
            Target::Guest => &self.guest,
            Target::Drivers | Target::Network | Target::Personality | Target::Linux => {
                self.owned.get(&target)?
            }
            Target::Transfer => &self.transfer,
            Target::Gpr | Target::Xmm => return None,
        };
        let count = pages.len() as u64;
        let index = usize::try_from((place >> 12).checked_rem(count)?).ok()?;
        pages.iter().nth(index).map(|page| page + place % PAGE)
    }
}

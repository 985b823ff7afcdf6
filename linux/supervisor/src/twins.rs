//! Compares twins: processes that lie still, each a copy of one replica at the same point of the
//! trace.
//!
//! Intuition: what healthy replicas have in memory is the same, byte for byte, but for the
//! range in which the agent keeps what is a replica's own. Pages that no twin has of its own come
//! from one file or are empty, and need no look, so the work is in proportion to what the program
//! has written.
//!
//! Contract: the caller asks for one step at a time and does other things in between. A twin is
//! read through its `mem` file, which also shows what the program itself may not read.
//!
//! Not covered: registers beyond those that the agent keeps in memory.

use std::fs::{File, read_to_string};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use rcoe_linux_abi::{AGENT_END, Blocks, PAGE, object_addr};
use xxhash_rust::xxh3::xxh3_64;

use crate::scrub::known::blocks;
use crate::slices::Arena;

/// Pages looked at in one step.
const STEP: u64 = 1024;
/// Bits of an entry of `pagemap`: present, swapped out, of a file or shared.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// One line of `maps`, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    range: Range<u64>,
    permissions: String,
    offset: u64,
    /// Device and inode; empty for memory of no file.
    file: String,
}

impl Area {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?.to_owned();
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (device, inode) = (words.next()?, words.next()?);
        let anonymous = inode == "0";
        let start = u64::from_str_radix(start, 16).ok()?;
        Some(Self {
            range: start..u64::from_str_radix(end, 16).ok()?,
            permissions,
            offset: if anonymous { 0 } else { offset },
            file: if anonymous {
                String::new()
            } else {
                format!("{device} {inode}")
            },
        })
    }

    /// Does `next` go on where this one ends, as if the kernel had not split them?
    fn goes_on(&self, next: &Self) -> bool {
        let offset = self.offset + (self.range.end - self.range.start);
        self.range.end == next.range.start
            && self.permissions == next.permissions
            && self.file == next.file
            && (self.file.is_empty() || next.offset == offset)
    }

    /// The shared objects of the replicas, of which each has its own part writable.
    fn is_own(&self) -> bool {
        let objects = object_addr(0) as u64..AGENT_END as u64;
        objects.contains(&self.range.start)
    }
}

/// The kernel's own pages, which it shows to all processes, do not count.
fn lines(maps: &str) -> impl Iterator<Item = &str> {
    const KERNEL: [&str; 4] = ["[vsyscall]", "[vdso]", "[vvar]", "[vvar_vclock]"];
    maps.lines()
        .filter(|line| !KERNEL.iter().any(|name| line.ends_with(name)))
}

/// The areas of a process that count.
fn areas(maps: &str) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    let all = lines(maps).filter_map(Area::parse);
    for area in all.filter(|area| !area.is_own()) {
        match areas.last_mut() {
            Some(last) if last.goes_on(&area) => last.range.end = area.range.end,
            _ => areas.push(area),
        }
    }
    areas
}

/// The areas that belong to the process alone and can be read, the agent's among them, and whether
/// each is of a file.
pub(crate) fn private_areas(maps: &str) -> Vec<(Range<u64>, bool)> {
    let all = lines(maps).filter_map(Area::parse);
    let own =
        all.filter(|area| area.permissions.starts_with('r') && area.permissions.ends_with('p'));
    own.map(|area| (area.range, !area.file.is_empty()))
        .collect()
}

/// Does this entry of `pagemap` say that the process has a page of its own there?
pub(crate) const fn has_own_page(entry: u64, of_file: bool) -> bool {
    let there = entry & (PRESENT | SWAPPED) != 0;
    there && !(of_file && entry & OF_FILE != 0)
}

/// One twin.
#[derive(Debug)]
struct Twin {
    memory: File,
    pagemap: File,
    pages: Vec<u8>,
    bytes: Vec<u8>,
}

impl Twin {
    fn open(pid: u32) -> io::Result<(Self, Vec<Area>)> {
        let file = |name: &str| File::open(format!("/proc/{pid}/{name}"));
        let maps = read_to_string(format!("/proc/{pid}/maps"))?;
        let twin = Self {
            memory: file("mem")?,
            pagemap: file("pagemap")?,
            pages: Vec::new(),
            bytes: Vec::new(),
        };
        Ok((twin, areas(&maps)))
    }

    /// Gets the entries of so many pages.
    fn look(&mut self, start: u64, count: usize) -> io::Result<()> {
        self.pages.resize(count * 8, 0);
        self.pagemap
            .read_exact_at(&mut self.pages, start / PAGE * 8)
    }

    fn entry(&self, index: usize) -> u64 {
        let bytes = self.pages[index * 8..].first_chunk();
        u64::from_le_bytes(*bytes.expect("looked at before"))
    }

    fn read(&mut self, start: u64, count: usize) -> io::Result<()> {
        self.bytes.resize(count * usize_of(PAGE), 0);
        self.memory.read_exact_at(&mut self.bytes, start)
    }
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).expect("addresses fit")
}

/// What came of a comparison so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// There is more to be done.
    Going,
    /// The copy is what most have.
    Same {
        /// Pages that were read.
        pages: u64,
    },
    /// It is not.
    Different {
        /// What is different.
        what: String,
        /// The page, if it is memory.
        page: Option<OddPage>,
    },
}

/// A page in which twins differ. What is said of each twin begins with the copy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OddPage {
    /// Its number.
    pub(crate) number: u64,
    /// Digests of what the twins have there.
    pub(crate) digests: Vec<u64>,
    /// The same by blocks.
    pub(crate) blocks: Vec<Blocks>,
    /// Who has a page of its own there. Who has not sees what was there before the program ran, or
    /// nothing: it was never written.
    pub(crate) own: Vec<bool>,
}

/// A comparison under way.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The copy's first.
    twins: Vec<Twin>,
    areas: Vec<Area>,
    /// Where replicas may differ.
    private: Range<u64>,
    area: usize,
    next: u64,
    pages: u64,
    layouts_differ: bool,
    /// See [`Comparison::alike`].
    alike: Vec<(u64, Blocks)>,
}

impl Comparison {
    /// Of the copy's twin with the others', each with the slice of shared memory that it shows.
    /// The content of the slices is not compared: it goes on.
    ///
    /// # Errors
    /// A twin cannot be read.
    pub(crate) fn new(
        all: &[(u32, usize)],
        private: Range<u64>,
        arena: &Arena,
    ) -> io::Result<Self> {
        let mut twins = Vec::new();
        let mut layouts = Vec::new();
        for &(pid, slice) in all {
            let (twin, mut areas) = Twin::open(pid)?;
            for area in areas.iter_mut().filter(|it| it.file == arena.name) {
                area.offset = area.offset.wrapping_sub(arena.start(slice));
            }
            twins.push(twin);
            layouts.push(areas);
        }
        let alike = layouts.iter().filter(|it| **it == layouts[0]).count();
        let areas = layouts.swap_remove(0);
        Ok(Self {
            layouts_differ: alike != twins.len(),
            next: areas.first().map_or(0, |area| area.range.start),
            twins,
            areas,
            private,
            area: 0,
            pages: 0,
            alike: Vec::new(),
        })
    }

    /// A little more of it.
    ///
    /// # Errors
    /// A twin cannot be read: it is gone.
    pub(crate) fn step(&mut self) -> io::Result<Compared> {
        if self.layouts_differ {
            let what = "the address spaces differ".into();
            return Ok(Compared::Different { what, page: None });
        }
        let Some(area) = self.areas.get(self.area) else {
            return Ok(Compared::Same { pages: self.pages });
        };
        let start = self.next.max(area.range.start);
        let end = area.range.end.min(start + STEP * PAGE);
        let of_file = !area.file.is_empty();
        if end == area.range.end {
            self.area += 1;
        }
        self.next = end;
        let count = usize_of((end - start) / PAGE);
        for twin in &mut self.twins {
            twin.look(start, count)?;
        }
        let mut index = 0;
        while index < count {
            let run = (index..count).take_while(|&at| self.counts(at, of_file));
            let run = run.count();
            let from = start + u64::try_from(index).unwrap_or(0) * PAGE;
            if run > 0
                && let Some(address) = self.compare(from, run)?
            {
                let what = format!("the memory at {address:#x} differs");
                let number = address / PAGE;
                let entry = usize_of(number - start / PAGE);
                let twins = self.twins.iter();
                let own = twins.map(|twin| has_own_page(twin.entry(entry), of_file));
                let index = usize_of(number - from / PAGE);
                let page = Some(OddPage {
                    number,
                    digests: self.digests(index, xxh3_64),
                    blocks: self.digests(index, blocks),
                    own: own.collect(),
                });
                return Ok(Compared::Different { what, page });
            }
            index += run.max(1);
        }
        Ok(Compared::Going)
    }

    /// Has any twin a page of its own there?
    fn counts(&self, index: usize, of_file: bool) -> bool {
        self.twins
            .iter()
            .any(|twin| has_own_page(twin.entry(index), of_file))
    }

    /// What each twin has in a page of those compared last, but for what may differ.
    fn digests<T>(&self, index: usize, digest: fn(&[u8]) -> T) -> Vec<T> {
        let page = index * usize_of(PAGE)..(index + 1) * usize_of(PAGE);
        let twins = self.twins.iter();
        twins.map(|it| digest(&it.bytes[page.clone()])).collect()
    }

    /// Pages that all had alike since this was asked for last, with what is in their blocks.
    pub(crate) fn alike(&mut self) -> Vec<(u64, Blocks)> {
        std::mem::take(&mut self.alike)
    }

    /// The first address at which the copy has what most have not.
    fn compare(&mut self, start: u64, count: usize) -> io::Result<Option<u64>> {
        self.pages += u64::try_from(count).unwrap_or(0);
        for twin in &mut self.twins {
            twin.read(start, count)?;
        }
        let end = start + u64::try_from(count).unwrap_or(0) * PAGE;
        let (from, to) = (self.private.start.max(start), self.private.end.min(end));
        if from < to {
            for twin in &mut self.twins {
                twin.bytes[usize_of(from - start)..usize_of(to - start)].fill(0);
            }
        }
        let (copy, others) = self.twins.split_first().expect("a copy has a twin");
        if others.iter().all(|other| other.bytes == copy.bytes) {
            let pages = copy.bytes.chunks(usize_of(PAGE)).map(blocks);
            self.alike.extend((start / PAGE..).zip(pages));
            return Ok(None);
        }
        let pages = 0..count;
        let page = |index: usize| index * usize_of(PAGE)..(index + 1) * usize_of(PAGE);
        Ok(pages.into_iter().find_map(|index| {
            let own = &copy.bytes[page(index)];
            let alike = others.iter().filter(|it| it.bytes[page(index)] == *own);
            if 2 * (alike.count() + 1) > self.twins.len() {
                return None;
            }
            let other = others.iter().find(|it| it.bytes[page(index)] != *own)?;
            let at = own.iter().zip(&other.bytes[page(index)]);
            let at = at.into_iter().position(|(own, other)| own != other)?;
            let offset = u64::try_from(index).ok()? * PAGE + u64::try_from(at).ok()?;
            Some(start + offset)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00401000 r-xp 00000000 fe:00 77                         /bin/x
00401000-00402000 r-xp 00001000 fe:00 77                         /bin/x
00402000-00403000 rw-p 00002000 fe:00 77                         /bin/x
00403000-00405000 rw-p 00000000 00:00 0                          [heap]
00405000-00406000 rw-p 00000000 00:00 0
6f1000000000-6f1010000000 r--s 00000000 00:01 9                  /memfd:rcoe-replica-0 (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]
";

    #[test]
    fn areas_are_joined_however_the_kernel_has_split_them() {
        let areas = areas(MAPS);
        let ranges: Vec<_> = areas.iter().map(|area| area.range.clone()).collect();
        assert_eq!(
            ranges,
            [
                0x40_0000..0x40_2000,
                0x40_2000..0x40_3000,
                0x40_3000..0x40_6000
            ]
        );
    }
}

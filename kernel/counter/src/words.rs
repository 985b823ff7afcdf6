//! The words of each core in the machine's memory, and where this process has that.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rcoe_abi::arch::x86_64::{COUNT_PLACE, COUNT_STRIDE};
use rcoe_abi::layout::MAX_CORES;

/// Cores that are counted for: those of replicas.
pub(crate) const CORES: usize = MAX_CORES;

/// A core's words.
#[derive(Debug)]
pub(crate) struct Words {
    /// Branches so far: written by the core's thread alone.
    count: &'static AtomicU64,
    /// At how many it is interrupted: written by the core's kernel.
    limit: &'static AtomicU64,
}

impl Words {
    /// One more. Is that the limit?
    pub(crate) fn count(&self) -> bool {
        // Whoever goes past a limit that was damaged goes on: the others miss it.
        let count = self.count.load(Ordering::Relaxed).wrapping_add(1);
        self.count.store(count, Ordering::Relaxed);
        count == self.limit.load(Ordering::Relaxed)
    }
}

/// A part of a file that a process has mapped, as Linux tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mapping<'a> {
    start: usize,
    end: usize,
    offset: usize,
    file: &'a str,
}

impl<'a> Mapping<'a> {
    /// Reads a line of `/proc/self/maps` about memory that is shared and can be written.
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let offset = words.next()?;
        let file = words.nth(2)?.trim_start();
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        (rights == "rw-s").then_some(Self {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            file: file.strip_suffix(" (deleted)").unwrap_or(file),
        })
    }

    /// The address of so many bytes of the file.
    fn place(&self, offset: usize, bytes: usize) -> Option<usize> {
        let within = offset.checked_sub(self.offset)?;
        let end = within.checked_add(bytes)?;
        (end <= self.end - self.start).then_some(self.start + within)
    }
}

/// Finds the words of all cores in the memory that is mapped from a file.
pub(crate) fn find(file: &str) -> io::Result<[Words; CORES]> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let parts: Vec<Mapping<'_>> = maps.lines().filter_map(Mapping::read).collect();
    let missing = || io::Error::other("is not mapped here");
    let word = |offset: u64| {
        let offset = usize::try_from(offset).ok()?;
        let mut parts = parts.iter().filter(|it| it.file == file);
        parts.find_map(|part| part.place(offset, size_of::<u64>()))
    };
    let mut found = Vec::new();
    for core in 0..CORES as u64 {
        let place = COUNT_PLACE + core * COUNT_STRIDE;
        found.push(Words {
            count: own_word(word(place).ok_or_else(missing)?),
            limit: own_word(word(place + 8).ok_or_else(missing)?),
        });
    }
    Ok(found.try_into().expect("one for each core"))
}

/// A word of the machine's memory, by its address in this process.
///
/// # Panics
/// If it is no address of a word.
fn own_word(address: usize) -> &'static AtomicU64 {
    assert!(address != 0 && address.is_multiple_of(size_of::<AtomicU64>()));
    // SAFETY: memory of the machine, which the emulator keeps to the end; an atomic word is valid
    // whatever it holds.
    unsafe { &*(address as *const AtomicU64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_tells_when_its_limit_is_reached() {
        static COUNT: AtomicU64 = AtomicU64::new(u64::MAX);
        static LIMIT: AtomicU64 = AtomicU64::new(1);
        let words = Words {
            count: &COUNT,
            limit: &LIMIT,
        };
        assert_eq!(
            [words.count(), words.count(), words.count()],
            [false, true, false]
        );
        assert_eq!(COUNT.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_memory_of_a_machine_is_found_among_mappings() {
        let line = "7f0000000000-7f0008000000 rw-s 00100000 00:01 123    /memfd:ram (deleted)";
        let part = Mapping::read(line).expect("shared memory");
        assert_eq!(part.file, "/memfd:ram");
        assert_eq!(part.place(0x10_0008, 8), Some(0x7f00_0000_0008));
        assert_eq!(part.place(0xf_fff8, 8), None);
        assert_eq!(part.place(0x810_0000 - 8, 8), Some(0x7f00_07ff_fff8));
        assert_eq!(part.place(0x810_0000 - 4, 8), None);
        let spaced = "1000-2000 rw-s 00000000 00:01 9    /a folder/memory";
        assert_eq!(
            Mapping::read(spaced).expect("shared").file,
            "/a folder/memory"
        );
        assert_eq!(Mapping::read("1000-2000 r--s 00000000 00:01 9 /m"), None);
        assert_eq!(Mapping::read("1000-2000 rw-p 00000000 00:00 0 "), None);
    }
}

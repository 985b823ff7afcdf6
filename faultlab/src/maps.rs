//! The memory of a running replica, sorted into [`Target`] classes from `/proc/PID/maps`.
//!
//! Only pages that are present in memory are hit (`/proc/PID/pagemap`): an untouched page holds no
//! bits. Read-only file data counts as [`Target::Data`], and zeroed data is what directly follows
//! an image's writable file mapping. Under rcoe the heap has no name and grows right behind the
//! program's zeroed data: the program's file says where one ends and the other begins.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rcoe_linux_abi::{AGENT_BASE, AGENT_END};

use crate::target::Target;

/// Size of a page of the host.
pub const PAGE: u64 = 4096;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Addresses.
    pub range: Range<u64>,
    /// `rwxp` flags.
    pub flags: [u8; 4],
    /// Backing file, or a name in brackets, or nothing.
    pub name: String,
}

impl Region {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let range = u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?;
        let flags = words.next()?.as_bytes().try_into().ok()?;
        let name = words.skip(3).collect::<Vec<_>>().join(" ");
        Some(Self { range, flags, name })
    }

    fn writable(&self) -> bool {
        self.flags[1] == b'w'
    }

    fn executable(&self) -> bool {
        self.flags[2] == b'x'
    }

    fn private(&self) -> bool {
        self.flags[3] == b'p'
    }

    fn agent(&self) -> bool {
        (AGENT_BASE as u64..AGENT_END as u64).contains(&self.range.start)
    }
}

/// Parses the text of `/proc/PID/maps`.
#[must_use]
pub fn parse(text: &str) -> Vec<Region> {
    text.lines().filter_map(Region::parse).collect()
}

/// Reads the memory map of a process.
///
/// # Errors
///
/// If the process is gone or may not be looked at.
pub fn read(pid: i32) -> io::Result<Vec<Region>> {
    fs::read_to_string(format!("/proc/{pid}/maps")).map(|text| parse(&text))
}

/// Splits the region that holds both zeroed data and heap, if one does.
#[must_use]
pub fn split_at(regions: Vec<Region>, heap: Option<u64>) -> Vec<Region> {
    let Some(heap) = heap else { return regions };
    let split = |region: Region| {
        if region.name.is_empty() && region.range.start < heap && heap < region.range.end {
            let Range { start, end } = region.range;
            let low = Region {
                range: start..heap,
                ..region.clone()
            };
            vec![
                low,
                Region {
                    range: heap..end,
                    ..region
                },
            ]
        } else {
            vec![region]
        }
    };
    regions.into_iter().flat_map(split).collect()
}

/// The program that a process runs: of all files it lies lowest.
#[must_use]
pub fn program(regions: &[Region]) -> Option<&str> {
    let is_file = |region: &&Region| region.name.starts_with('/') && !region.agent();
    regions.iter().find(is_file).map(|region| &region.name[..])
}

/// Which replica of its process this is: that whose object it may write. Bare programs have none.
#[must_use]
pub fn replica(regions: &[Region]) -> Option<u64> {
    let own = regions
        .iter()
        .find(|region| region.agent() && region.writable() && !region.private())?;
    let (_, rest) = own.name.split_once("rcoe-replica-")?;
    rest.split(' ').next()?.parse().ok()
}

/// Where the heap of a running program starts if nothing lies between it and the zeroed data:
/// the first page past the program's image. `None` if the file is not understood.
#[must_use]
pub fn heap_start(regions: &[Region]) -> Option<u64> {
    const SHARED_OBJECT: u16 = 3;
    const LOAD: u32 = 1;
    let name = program(regions)?;
    let file = File::open(name).ok()?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let word = |bytes: &[u8], at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let count = u64::from(u16::from_le_bytes([header[56], header[57]]));
    let mut end = 0;
    for index in 0..count {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, word(&header, 32)? + index * 56)
            .ok()?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == LOAD {
            end = end.max(word(&entry, 16)? + word(&entry, 40)?);
        }
    }
    let movable = u16::from_le_bytes([header[16], header[17]]) == SHARED_OBJECT;
    let mapped = regions.iter().find(|region| region.name == name)?;
    let base = if movable { mapped.range.start } else { 0 };
    Some((base + end).next_multiple_of(PAGE))
}

/// The class of each region, in the order given; `None` for what is never hit.
///
/// `stack_pointer` and `heap` tell the program's stack and heap where they have no names.
#[must_use]
pub fn classify(regions: &[Region], stack_pointer: u64, heap: Option<u64>) -> Vec<Option<Target>> {
    let mut classes: Vec<Option<Target>> = Vec::with_capacity(regions.len());
    for (index, region) in regions.iter().enumerate() {
        let before = index.checked_sub(1).map(|i| (&regions[i], classes[i]));
        classes.push(class_of(region, before, stack_pointer, heap));
    }
    classes
}

fn class_of(
    region: &Region,
    before: Option<(&Region, Option<Target>)>,
    stack_pointer: u64,
    heap: Option<u64>,
) -> Option<Target> {
    if region.agent() {
        return match (region.private(), region.writable()) {
            (true, _) => Some(Target::Agent),
            (false, true) => Some(Target::Shared),
            (false, false) => None,
        };
    }
    match region.name.as_str() {
        "[stack]" => return Some(Target::Stack),
        "[heap]" => return Some(Target::Heap),
        "[vvar]" | "[vvar_vclock]" | "[vdso]" | "[vsyscall]" => return None,
        _ => {}
    }
    if !region.private() {
        return None;
    }
    if region.executable() {
        return Some(Target::Text);
    }
    if !region.name.is_empty() {
        return Some(Target::Data);
    }
    if !region.writable() {
        return None;
    }
    if region.range.contains(&stack_pointer) {
        return Some(Target::Stack);
    }
    match before.filter(|(other, _)| other.range.end == region.range.start) {
        _ if heap == Some(region.range.start) => Some(Target::Heap),
        Some((other, Some(Target::Data))) if !other.name.is_empty() => Some(Target::Data),
        Some((_, Some(Target::Heap))) => Some(Target::Heap),
        _ => Some(Target::Mmap),
    }
}

/// Bit of a page's entry in `pagemap`: it is in memory.
pub const PRESENT: u64 = 1 << 63;

/// The pages of a range with their entries in a process's `pagemap`.
///
/// # Errors
///
/// If the process is gone.
pub fn entries(
    pagemap: &File,
    range: &Range<u64>,
) -> io::Result<impl Iterator<Item = (u64, u64)> + use<>> {
    let pages = range.end.saturating_sub(range.start) / PAGE;
    let mut bytes = vec![0_u8; usize::try_from(pages * 8).map_err(io::Error::other)?];
    pagemap.read_exact_at(&mut bytes, range.start / PAGE * 8)?;
    let (words, _) = bytes.as_chunks::<8>();
    let entries: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let start = range.start;
    Ok((0..pages).map(move |page| start + page * PAGE).zip(entries))
}

/// Start addresses of all pages of the region that are present in memory.
///
/// # Errors
///
/// If the process is gone or may not be looked at.
pub fn present_pages(pid: i32, range: &Range<u64>) -> io::Result<Vec<u64>> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let present = entries(&pagemap, range)?.filter(|(_, entry)| entry & PRESENT != 0);
    Ok(present.map(|(page, _)| page).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{PAGE, classify, heap_start, parse, present_pages, read, split_at};
    use crate::target::Target;

    const NATIVE: &str = "\
00400000-00401000 r--p 00000000 fd:00 11 /bin/prog
00401000-00402000 r-xp 00001000 fd:00 11 /bin/prog
00402000-00403000 rw-p 00002000 fd:00 11 /bin/prog
00403000-00405000 rw-p 00000000 00:00 0
01000000-01021000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000002000-7f0000003000 rw-s 00000000 fd:00 12 /var/a file
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
7ffc00030000-7ffc00032000 r-xp 00000000 00:00 0 [vdso]
";

    #[test]
    fn native_map_is_sorted_into_classes() {
        use Target::{Data, Heap, Mmap, Stack, Text};
        let classes = classify(&parse(NATIVE), 0x7ffc_0000_1000, None);
        let expected = [
            Some(Data),
            Some(Text),
            Some(Data),
            Some(Data),
            Some(Heap),
            Some(Mmap),
            None,
            Some(Stack),
            None,
        ];
        assert_eq!(classes, expected);
    }

    #[test]
    fn agent_window_and_unnamed_stack_are_recognised() {
        let text = "\
6f0000000000-6f0000010000 r-xp 00000000 00:00 0
6f1000000000-6f1000110000 r--s 00000000 00:01 5 /memfd:rcoe-replica-0 (deleted)
6f1000400000-6f1000510000 rw-s 00000000 00:01 6 /memfd:rcoe-replica-1 (deleted)
7fff00000000-7fff00021000 rw-p 00000000 00:00 0
";
        let classes = classify(&parse(text), 0x7fff_0000_0010, None);
        assert_eq!(
            classes,
            [
                Some(Target::Agent),
                None,
                Some(Target::Shared),
                Some(Target::Stack)
            ]
        );
        assert_eq!(super::replica(&parse(text)), Some(1));
        assert_eq!(super::replica(&parse(NATIVE)), None);
    }

    #[test]
    fn heap_without_a_name_is_cut_off_the_zeroed_data() {
        let text = "\
00402000-00403000 rw-p 00002000 fd:00 11 /bin/prog
00403000-00425000 rw-p 00000000 00:00 0
";
        let heap = Some(0x40_5000);
        let regions = split_at(parse(text), heap);
        let classes = classify(&regions, 0, heap);
        assert_eq!(
            classes,
            [Some(Target::Data), Some(Target::Data), Some(Target::Heap)]
        );
        assert_eq!(regions[2].range, 0x40_5000..0x42_5000);
    }

    #[test]
    fn heap_follows_the_last_page_of_the_image() {
        let own = std::env::current_exe().expect("own path");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let regions = read(pid).expect("own map");
        assert_eq!(super::program(&regions).map(Path::new), Some(own.as_path()));
        let heap = heap_start(&regions).expect("own file is understood");
        let image = regions
            .iter()
            .rfind(|region| own.as_os_str() == &region.name[..]);
        let end = image.expect("own file is mapped").range.end;
        assert!(end <= heap && heap < end + (16 << 20), "{end:x} {heap:x}");
    }

    #[test]
    fn names_with_blanks_survive() {
        assert_eq!(parse(NATIVE)[6].name, "/var/a file");
    }

    #[test]
    fn own_stack_page_is_present() {
        let local = 1_u8;
        let address = std::ptr::from_ref(&local).addr() as u64 / PAGE * PAGE;
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let found = present_pages(pid, &(address..address + PAGE)).expect("own pagemap");
        assert_eq!(found, [address]);
    }
}

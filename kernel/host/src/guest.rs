//! Guests: what `--guest` names, read and packed for the monitor.
//!
//! A guest is an ELF executable whose segments lie in its memory, and begins at its entry with
//! translation off; or an image of Linux. All of it is checked here, so the monitor copies pieces
//! and knows nothing of files.

mod linux;
mod tree;

use std::path::Path;

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};
use rcoe_abi::guest::{MAGIC, MEMORY, MOST_FRAMES, PACKED_WORDS, PIECE_WORDS};
use rcoe_abi::object::LARGE;

use crate::{Arch, SystemError};
use linux::Linux;

/// The program of the image that runs a guest.
pub(crate) const MONITOR: &str = "monitor";

/// Most pieces.
const PIECES: usize = 8;

/// A guest that can be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guest(Kind);

/// What it is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Executable {
        entry: u64,
        /// Addresses, multiples of eight, and bytes, as many.
        pieces: Vec<(u64, Vec<u8>)>,
    },
    Linux(Linux),
}

impl Guest {
    /// Reads a guest; for Linux its first files too, and its command line.
    ///
    /// # Errors
    /// If it cannot be read, or is none for such a machine.
    pub fn read(
        arch: Arch,
        path: &Path,
        files: Option<&Path>,
        line: &str,
    ) -> Result<Self, SystemError> {
        if arch != Arch::Aarch64 {
            let why = "--guest: there are no virtual processors on x86_64; use --arch aarch64";
            return Err(SystemError::Setting(why.into()));
        }
        let read = |path: &Path| {
            std::fs::read(path).map_err(SystemError::host(path.display().to_string()))
        };
        let (content, is_given) = (read(path)?, files.is_some());
        let files = files.map_or(Ok(Vec::new()), read)?;
        Self::of(content, files, is_given, line).map_err(|why| SystemError::Program {
            path: path.display().to_string(),
            why,
        })
    }

    fn of(content: Vec<u8>, files: Vec<u8>, is_given: bool, line: &str) -> Result<Self, String> {
        let guest = if linux::is_image(&content) {
            Self(Kind::Linux(Linux::of(content, files, line)?))
        } else if is_given {
            return Err("no image of Linux, and --initrd is for one".into());
        } else {
            Self(executable(&content)?)
        };
        if guest.end() > MEMORY + MOST_FRAMES * LARGE {
            let most = (MOST_FRAMES * LARGE) >> 20;
            return Err(format!("no guest: it does not fit into {most} MiB"));
        }
        Ok(guest)
    }

    /// Is it Linux? Then it finds this in its first register.
    #[must_use]
    pub const fn tree(&self) -> Option<u64> {
        match &self.0 {
            Kind::Executable { .. } => None,
            Kind::Linux(linux) => Some(linux.tree()),
        }
    }

    /// Where what it begins with ends.
    fn end(&self) -> u64 {
        match &self.0 {
            Kind::Executable { pieces, .. } => {
                let ends = pieces.iter();
                let ends = ends.map(|(address, bytes)| address + bytes.len() as u64);
                ends.max().unwrap_or(MEMORY)
            }
            Kind::Linux(linux) => linux.end(),
        }
    }

    /// Megabytes of memory that it needs at least.
    pub(crate) fn memory(&self) -> u64 {
        (self.end() - MEMORY).div_ceil(LARGE) * (LARGE >> 20)
    }

    /// Megabytes beside those, if nobody says how many.
    pub(crate) const fn room(&self) -> u64 {
        match &self.0 {
            Kind::Executable { .. } => 16,
            Kind::Linux(_) => 128,
        }
    }

    /// What the monitor finds, with so many megabytes of memory for the guest.
    pub(crate) fn bundle(&self, megabytes: u64) -> Vec<u8> {
        let frames = (megabytes / (LARGE >> 20)).min(MOST_FRAMES);
        let (entry, pieces) = match &self.0 {
            Kind::Executable { entry, pieces } => (*entry, pieces.clone()),
            Kind::Linux(linux) => (linux.entry(), linux.pieces(frames * LARGE)),
        };
        let mut offset = (PACKED_WORDS + pieces.len() * PIECE_WORDS) as u64 * 8;
        let total = pieces.iter().map(|(_, bytes)| bytes.len() as u64);
        let total = offset + total.sum::<u64>();
        let mut words = vec![MAGIC, total, frames, entry, pieces.len() as u64];
        for (address, bytes) in &pieces {
            words.extend([*address, offset, bytes.len() as u64]);
            offset += bytes.len() as u64;
        }
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        words
            .chain(pieces.into_iter().flat_map(|(_, bytes)| bytes))
            .collect()
    }
}

/// A guest that is an ELF executable.
fn executable(content: &[u8]) -> Result<Kind, String> {
    let none =
        || "no guest: neither an ELF executable for aarch64 nor an image of Linux".to_owned();
    let header = elf::FileHeader64::<Endianness>::parse(content).map_err(|_| none())?;
    let endian = header.endian().map_err(|_| none())?;
    let is = header.e_machine(endian) == elf::EM_AARCH64
        && header.e_type(endian) == elf::ET_EXEC
        && endian == Endianness::Little;
    if !is {
        return Err(none());
    }
    let segments = header.program_headers(endian, content);
    let segments = segments.map_err(|_| none())?.iter();
    let mut pieces = Vec::new();
    for it in segments.filter(|it| it.p_type(endian) == elf::PT_LOAD) {
        let bytes = it.data(endian, content).map_err(|()| none())?;
        pieces.push(piece(it.p_paddr(endian), it.p_memsz(endian), bytes)?);
    }
    let entry = header.e_entry(endian);
    let begins = pieces
        .iter()
        .any(|(address, bytes)| (*address..address + bytes.len() as u64).contains(&entry));
    if !begins || pieces.len() > PIECES {
        return Err(format!(
            "no guest: it needs 1 to {PIECES} segments, and to begin in one of them"
        ));
    }
    Ok(Kind::Executable { entry, pieces })
}

/// A piece of memory that begins with these bytes, made whole words.
fn piece(address: u64, size: u64, bytes: &[u8]) -> Result<(u64, Vec<u8>), String> {
    let first = address / 8 * 8;
    let end = address.checked_add(size);
    let limit = MEMORY + MOST_FRAMES * LARGE;
    let Some(end) = end.filter(|&end| first >= MEMORY && end <= limit) else {
        return Err(format!(
            "no guest: its memory is from {MEMORY:#x} to {limit:#x}, and a segment is at \
             {address:#x}"
        ));
    };
    let skip = usize::try_from(address - first).unwrap_or_default();
    let len = usize::try_from((end - first).next_multiple_of(8)).unwrap_or_default();
    let mut content = vec![0; len.max(skip + bytes.len())];
    content[skip..skip + bytes.len()].copy_from_slice(bytes);
    Ok((first, content))
}

#[cfg(test)]
mod tests {
    use rcoe_abi::guest::{Bundle, Packed};

    use super::*;

    /// An executable of one segment with eight bytes, which is 20 bytes long.
    fn executable(address: u64, entry: u64) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        file.extend([2, 0, 183, 0, 1, 0, 0, 0]);
        file.extend([entry, 64, 0].map(u64::to_le_bytes).concat());
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        let segment = [120, address, address, 8, 20, 8];
        file.extend(segment.map(u64::to_le_bytes).concat());
        file.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        file
    }

    fn of(content: Vec<u8>) -> Result<Guest, String> {
        Guest::of(content, Vec::new(), false, "")
    }

    #[test]
    fn an_image_of_linux_becomes_what_a_monitor_reads() {
        let mut image = vec![0; 64];
        image[16..24].copy_from_slice(&64_u64.to_le_bytes());
        image[56..60].copy_from_slice(b"ARMd");
        let guest = Guest::of(image, vec![3; 9], true, "quiet").unwrap();
        assert_eq!(guest.tree(), Some(MEMORY + LARGE));
        let bytes = guest.bundle(32);
        let bundle = Bundle::new(&bytes).expect("it is one");
        let pieces: Vec<_> = bundle.pieces().collect();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].content[..4], [0xd0, 0x0d, 0xfe, 0xed]);
        assert_eq!(pieces[2].content[..10], [3, 3, 3, 3, 3, 3, 3, 3, 3, 0]);
        let refused = Guest::of(b"text".to_vec(), vec![3], true, "").unwrap_err();
        assert!(refused.contains("--initrd"), "{refused}");
    }

    #[test]
    fn an_executable_becomes_what_a_monitor_reads() {
        let guest = of(executable(MEMORY + 0x20_0004, MEMORY + 0x20_0004)).unwrap();
        assert_eq!(guest.memory(), 4);
        let bytes = guest.bundle(16);
        let bundle = Bundle::new(&bytes).expect("it is one");
        assert_eq!(bundle.word(Packed::Frames), Some(8));
        assert_eq!(bundle.word(Packed::Entry), Some(MEMORY + 0x20_0004));
        let pieces: Vec<_> = bundle.pieces().collect();
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].address, MEMORY + 0x20_0000);
        let right = [&[0; 4][..], &[1, 2, 3, 4, 5, 6, 7, 8], &[0; 12]].concat();
        assert_eq!(pieces[0].content, right);
    }

    #[test]
    fn what_is_no_guest_is_refused_by_what_is_wrong() {
        for (content, why) in [
            (b"text".to_vec(), "neither an ELF executable"),
            (executable(0x40_0000, 0x40_0000), "a segment is at 0x400000"),
            (executable(u64::MAX - 7, 0), "a segment is at"),
            (executable(MEMORY, MEMORY + 64), "begin in one of them"),
        ] {
            let refused = of(content).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let path = Path::new("/nowhere/guest");
        let refused = Guest::read(Arch::X86_64, path, None, "")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("--arch aarch64"), "{refused}");
        let refused = Guest::read(Arch::Aarch64, path, None, "")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("/nowhere/guest"), "{refused}");
    }
}

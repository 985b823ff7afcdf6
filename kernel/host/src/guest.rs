//! Guests: what `--guest` names, read and packed for the monitor.
//!
//! A guest is an ELF executable whose segments lie in its memory, and begins at its entry with
//! translation off. All of it is checked here, so the monitor copies pieces and knows nothing of
//! files.

use std::path::Path;

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};
use rcoe_abi::guest::{MAGIC, MEMORY, MOST_FRAMES, PACKED_WORDS, PIECE_WORDS};
use rcoe_abi::object::LARGE;

use crate::{Arch, SystemError};

/// The program of the image that runs a guest.
pub(crate) const MONITOR: &str = "monitor";

/// Most pieces.
const PIECES: usize = 8;

/// A guest that can be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guest {
    entry: u64,
    /// Addresses, multiples of eight, and bytes, as many.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Guest {
    /// Reads a guest.
    ///
    /// # Errors
    /// If it cannot be read, or is none for such a machine.
    pub fn read(arch: Arch, path: &Path) -> Result<Self, SystemError> {
        if arch != Arch::Aarch64 {
            let why = "--guest: there are no virtual processors on x86_64; use --arch aarch64";
            return Err(SystemError::Setting(why.into()));
        }
        let content = std::fs::read(path).map_err(SystemError::host(path.display().to_string()))?;
        Self::of(&content).map_err(|why| SystemError::Program {
            path: path.display().to_string(),
            why,
        })
    }

    fn of(content: &[u8]) -> Result<Self, String> {
        let none = || "no guest: not an ELF executable for aarch64".to_owned();
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
        let guest = Self {
            entry: header.e_entry(endian),
            pieces,
        };
        let begins = guest.pieces.iter().any(|(address, bytes)| {
            (*address..address + bytes.len() as u64).contains(&guest.entry)
        });
        if !begins || guest.pieces.len() > PIECES {
            return Err(format!(
                "no guest: it needs 1 to {PIECES} segments, and to begin in one of them"
            ));
        }
        Ok(guest)
    }

    /// Megabytes of memory that it needs at least.
    pub(crate) fn memory(&self) -> u64 {
        let ends = self.pieces.iter();
        let ends = ends.map(|(address, bytes)| address + bytes.len() as u64 - MEMORY);
        ends.max().unwrap_or(0).div_ceil(LARGE) * (LARGE >> 20)
    }

    /// What the monitor finds, with so many megabytes of memory for the guest.
    pub(crate) fn bundle(&self, megabytes: u64) -> Vec<u8> {
        let frames = (megabytes / (LARGE >> 20)).min(MOST_FRAMES);
        let mut offset = (PACKED_WORDS + self.pieces.len() * PIECE_WORDS) as u64 * 8;
        let total = self.pieces.iter().map(|(_, bytes)| bytes.len() as u64);
        let total = offset + total.sum::<u64>();
        let count = self.pieces.len() as u64;
        let mut words = vec![MAGIC, total, frames, self.entry, count];
        for (address, bytes) in &self.pieces {
            words.extend([*address, offset, bytes.len() as u64]);
            offset += bytes.len() as u64;
        }
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        words
            .chain(self.pieces.iter().flat_map(|(_, bytes)| bytes.clone()))
            .collect()
    }
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

    #[test]
    fn an_executable_becomes_what_a_monitor_reads() {
        let guest = Guest::of(&executable(MEMORY + 0x20_0004, MEMORY + 0x20_0004)).unwrap();
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
            (b"text".to_vec(), "not an ELF executable"),
            (executable(0x40_0000, 0x40_0000), "a segment is at 0x400000"),
            (executable(u64::MAX - 7, 0), "a segment is at"),
            (executable(MEMORY, MEMORY + 64), "begin in one of them"),
        ] {
            let refused = Guest::of(&content).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let path = Path::new("/nowhere/guest");
        let refused = Guest::read(Arch::X86_64, path).unwrap_err().to_string();
        assert!(refused.contains("--arch aarch64"), "{refused}");
        let refused = Guest::read(Arch::Aarch64, path).unwrap_err().to_string();
        assert!(refused.contains("/nowhere/guest"), "{refused}");
    }
}

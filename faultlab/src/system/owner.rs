//! Whose memory a program's space is, by what it begins with.
//!
//! Programs of the system are linked to one place, where their file's first page is: its header,
//! and notes of which one is the program's name. A space without that note is one of Linux.

use super::plan::Target;

/// Entries of the tables, from the root's on, by which a space maps its programs' first page.
pub(super) const PATH: [usize; 4] = [0, 0, 2, 0];

/// What a file begins with, and its class and order of bytes.
const ELF: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
/// Where the header tells where entries of segments are, and how many.
const ENTRIES: usize = 32;
const COUNT: usize = 56;
const ENTRY: usize = 56;
/// The kind of segment that holds notes.
const NOTES: u64 = 4;
/// The owner of a program's name, with its end, and the kind of note.
const OWNER: &[u8] = b"rcoe\0";
const NAME: u64 = 2;

/// Whose a space is whose first page has these words; none, if it has no such page.
pub(super) fn of(page: &[u64]) -> Target {
    let bytes: Vec<u8> = page.iter().flat_map(|word| word.to_le_bytes()).collect();
    match name(&bytes).as_deref() {
        None => Target::Linux,
        Some("system-linux") => Target::Personality,
        Some("system-net") => Target::Network,
        Some(name) if DRIVERS.contains(&name) => Target::Drivers,
        Some(_) => Target::User,
    }
}

const DRIVERS: [&str; 6] = [
    "system-input",
    "system-serial",
    "system-timer",
    "system-rtl8139",
    "system-virtio-blk",
    "system-virtio-net",
];

/// The name in the notes of a file that begins so.
fn name(bytes: &[u8]) -> Option<String> {
    if !bytes.starts_with(&ELF) {
        return None;
    }
    let first = usize::try_from(number(bytes, ENTRIES, 8)?).ok()?;
    let count = usize::try_from(number(bytes, COUNT, 2)?).ok()?;
    for entry in 0..count {
        let entry = first.checked_add(entry * ENTRY)?;
        if number(bytes, entry, 4)? == NOTES {
            let start = usize::try_from(number(bytes, entry + 8, 8)?).ok()?;
            let len = usize::try_from(number(bytes, entry + 32, 8)?).ok()?;
            let notes = bytes.get(start..start.checked_add(len)?)?;
            if let Some(name) = name_in(notes) {
                return Some(name);
            }
        }
    }
    None
}

/// The name among notes.
fn name_in(mut notes: &[u8]) -> Option<String> {
    while !notes.is_empty() {
        let size = |at| usize::try_from(number(notes, at, 4)?).ok();
        let (owner, told, kind) = (size(0)?, size(4)?, number(notes, 8, 4)?);
        let text = 12 + owner.next_multiple_of(4);
        let value = notes.get(text..text.checked_add(told)?)?;
        if kind == NAME && notes.get(12..12 + owner)? == OWNER {
            let name = String::from_utf8_lossy(value);
            return Some(name.trim_end_matches('\0').to_owned());
        }
        notes = notes.get(text + told.next_multiple_of(4)..)?;
    }
    None
}

/// A number of so many bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let own = bytes.get(at..at.checked_add(len)?)?;
    let digits = own.iter().rev();
    Some(digits.fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first page of a file with these notes.
    fn page(notes: &[(u32, &[u8])]) -> Vec<u64> {
        let mut all = Vec::new();
        for (kind, value) in notes {
            for word in [5, u32::try_from(value.len()).unwrap(), *kind] {
                all.extend(word.to_le_bytes());
            }
            all.extend(b"rcoe\0\0\0\0");
            all.extend(*value);
            all.resize(all.len().next_multiple_of(4), 0);
        }
        let mut bytes = vec![0; 4096];
        bytes[..6].copy_from_slice(&ELF);
        bytes[ENTRIES] = 64;
        bytes[COUNT] = 2;
        let entry = 64 + ENTRY;
        bytes[entry] = 4;
        bytes[entry + 8] = 0xc0;
        bytes[entry + 32..entry + 34]
            .copy_from_slice(&u16::try_from(all.len()).unwrap().to_le_bytes());
        bytes[0xc0..0xc0 + all.len()].copy_from_slice(&all);
        let words = bytes.chunks_exact(8);
        words
            .map(|it| u64::from_le_bytes(it.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn a_space_is_whose_name_its_first_page_tells() {
        let made_for: (u32, &[u8]) = (1, b"");
        let of_name = |name: &[u8]| of(&page(&[made_for, (2, name)]));
        assert_eq!(of_name(b"system-net\0\0"), Target::Network);
        assert_eq!(of_name(b"system-linux"), Target::Personality);
        assert_eq!(of_name(b"system-rtl8139\0\0"), Target::Drivers);
        assert_eq!(of_name(b"system-root\0"), Target::User);
    }

    #[test]
    fn what_has_no_name_is_of_linux() {
        assert_eq!(of(&[]), Target::Linux);
        assert_eq!(of(&page(&[(1, b"")])), Target::Linux);
        let mut cut = page(&[(1, b""), (2, b"system-net")]);
        cut.truncate(26);
        assert_eq!(of(&cut), Target::Linux);
    }
}

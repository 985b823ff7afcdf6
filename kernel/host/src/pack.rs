//! Packing boot images: programs laid out in pages, with a directory.

use std::path::Path;

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};
use rcoe_abi::image::{
    ENTRY_WORDS, HEADER_WORDS, MAGIC, MAX_PROGRAMS, NAME_WORDS, SEGMENT_WORDS, SEGMENTS, name_words,
};
use rcoe_abi::layout::{BUNDLE, PROGRAM_BASE, PROGRAM_END};
use rcoe_abi::object::PAGE;

use crate::{Arch, SystemError};

/// One segment of a program, with its content.
struct Part {
    address: u64,
    rights: u64,
    bytes: Vec<u8>,
}

/// One program.
struct Laid {
    name: String,
    entry: u64,
    parts: Vec<Part>,
}

fn refuse(path: &Path, why: &str) -> SystemError {
    SystemError::Program {
        path: path.display().to_string(),
        why: why.to_owned(),
    }
}

const fn machine(arch: Arch) -> elf::Machine {
    match arch {
        Arch::X86_64 => elf::EM_X86_64,
        Arch::Aarch64 => elf::EM_AARCH64,
    }
}

/// Reads an ELF file into pages.
fn lay_out(arch: Arch, name: &str, path: &Path) -> Result<Laid, SystemError> {
    let content = std::fs::read(path).map_err(SystemError::host(path.display().to_string()))?;
    let data = content.as_slice();
    let wrong = || {
        let name = arch.name();
        refuse(path, &format!("not a static 64-bit ELF program for {name}"))
    };
    let header = elf::FileHeader64::<Endianness>::parse(data).map_err(|_| wrong())?;
    let endian = header.endian().map_err(|_| wrong())?;
    if header.e_machine(endian) != machine(arch) || header.e_type(endian) != elf::ET_EXEC {
        return Err(wrong());
    }
    let mut parts: Vec<Part> = Vec::new();
    for segment in header.program_headers(endian, data).map_err(|_| wrong())? {
        if segment.p_type(endian) != elf::PT_LOAD || segment.p_memsz(endian) == 0 {
            continue;
        }
        let bytes = segment.data(endian, data).map_err(|()| wrong())?;
        let (start, size) = (segment.p_vaddr(endian), segment.p_memsz(endian));
        let part = part(start, size, segment.p_flags(endian).0, bytes);
        parts.push(part.map_err(|why| refuse(path, why))?);
    }
    if parts.is_empty() || parts.len() > SEGMENTS {
        let why = format!("a program has 1 to {SEGMENTS} segments");
        return Err(refuse(path, &why));
    }
    Ok(Laid {
        name: name.to_owned(),
        entry: header.e_entry(endian),
        parts,
    })
}

fn part(start: u64, size: u64, flags: u32, bytes: &[u8]) -> Result<Part, &'static str> {
    let address = start / PAGE * PAGE;
    let end = start.checked_add(size).ok_or("a segment wraps")?;
    if start < PROGRAM_BASE || end > PROGRAM_END {
        return Err("linked to addresses that programs do not have");
    }
    let mut rights = 1;
    if flags & elf::PF_W.0 != 0 {
        rights |= 2;
    }
    if flags & elf::PF_X.0 != 0 {
        rights |= 4;
    }
    if rights == 7 {
        return Err("a segment is both writable and executable");
    }
    let len = (end - address).next_multiple_of(PAGE);
    let mut content = vec![0; usize::try_from(len).map_err(|_| "a segment is too large")?];
    let skip = usize::try_from(start - address).map_err(|_| "a segment is too large")?;
    content[skip..skip + bytes.len()].copy_from_slice(bytes);
    Ok(Part {
        address,
        rights,
        bytes: content,
    })
}

/// Packs programs for a machine, given as name and ELF file, into a boot image; and for one of
/// them a bundle, which it finds in its memory.
///
/// # Errors
/// If one is no program for this system.
pub fn pack(
    arch: Arch,
    programs: &[(String, &Path)],
    bundle: Option<(&str, Vec<u8>)>,
) -> Result<Vec<u8>, SystemError> {
    if programs.len() > MAX_PROGRAMS {
        return Err(SystemError::Setting("too many programs".into()));
    }
    let mut words = vec![MAGIC, programs.len() as u64, 0, 0];
    let directory = HEADER_WORDS + programs.len() * ENTRY_WORDS;
    let mut next = (directory as u64 * 8).div_ceil(PAGE);
    let mut contents = Vec::new();
    for (name, path) in programs {
        let mut laid = lay_out(arch, name, path)?;
        if let Some((_, bundle)) = bundle.as_ref().filter(|(owner, _)| owner == name) {
            let part = part(BUNDLE, bundle.len() as u64, elf::PF_R.0, bundle);
            laid.parts.push(part.map_err(|why| refuse(path, why))?);
        }
        let name = name_words(laid.name.as_bytes());
        words.extend(name.ok_or_else(|| refuse(path, "a name has 1 to 32 bytes"))?);
        words.push(laid.entry);
        for index in 0..SEGMENTS {
            let part = laid.parts.get(index);
            words.extend(part.map_or([0; SEGMENT_WORDS], |part| {
                let pages = part.bytes.len() as u64 / PAGE;
                let first = next;
                next += pages;
                [part.address, pages, part.rights, first]
            }));
        }
        words.resize(words.len() + ENTRY_WORDS - entry_used(), 0);
        contents.extend(laid.parts.into_iter().map(|part| part.bytes));
    }
    words[2] = next;
    let mut image: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    image.resize(image.len().next_multiple_of(page()), 0);
    for content in contents {
        image.extend(content);
    }
    Ok(image)
}

const fn entry_used() -> usize {
    NAME_WORDS + 1 + SEGMENTS * SEGMENT_WORDS
}

fn page() -> usize {
    usize::try_from(PAGE).expect("a page is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "no program").unwrap();
        let error = pack(Arch::X86_64, &[("text".to_owned(), &path)], None).unwrap_err();
        assert!(error.to_string().contains("text"), "{error}");
        let own = std::env::current_exe().unwrap();
        let error = pack(Arch::X86_64, &[("own".to_owned(), &own)], None).unwrap_err();
        assert!(error.to_string().contains("static"), "{error}");
    }

    #[test]
    fn segments_are_checked() {
        assert!(part(0x40_0010, 0x20, (elf::PF_R | elf::PF_X).0, &[1; 16]).is_ok());
        assert!(part(0x40_0000, 0x20, 7, &[]).is_err());
        assert!(part(0x1000, 0x20, elf::PF_R.0, &[]).is_err());
        assert!(part(u64::MAX - 4, 0x20, elf::PF_R.0, &[]).is_err());
        assert!(part(PROGRAM_END - 8, 0x20, elf::PF_R.0, &[]).is_err());
    }
}

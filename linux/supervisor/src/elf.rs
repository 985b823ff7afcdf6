//! Checks the headers of an ELF file before anything is started.
//!
//! Not covered: everything the kernel checks later while mapping; the agent does that.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{
    ELFCLASS64, ELFDATA2LSB, EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64,
    ET_CORE, ET_DYN, ET_EXEC, ET_REL, FileHeader64, PT_LOAD,
};
use object::endian::LittleEndian;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::error::ProgramError;
use crate::program::{refused, unreadable};

/// Checks that the file is a complete x86-64 executable; returns its dynamic loader, if any.
pub(crate) fn check(path: &Path) -> Result<Option<PathBuf>, ProgramError> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let length = file
        .metadata()
        .map_err(|error| unreadable(path, error))?
        .len();
    let data = &ReadCache::new(file);
    let truncated = || refused(path, "is a truncated or damaged executable");
    check_identity(path, data)?;
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(|_| truncated())?;
    let endian = header.endian().map_err(|_| truncated())?;
    check_kind(path, header)?;
    let mut loader = None;
    let segments = header
        .program_headers(endian, data)
        .map_err(|_| truncated())?;
    for segment in segments {
        let end = segment
            .p_offset(endian)
            .checked_add(segment.p_filesz(endian));
        if segment.p_type(endian) == PT_LOAD && end.is_none_or(|end| end > length) {
            return Err(truncated());
        }
        if let Some(name) = segment.interpreter(endian, data).map_err(|_| truncated())? {
            loader = Some(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    if !segments
        .iter()
        .any(|segment| segment.p_type(endian) == PT_LOAD)
    {
        return Err(truncated());
    }
    Ok(loader)
}

/// What of a program's headers tells how it was mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Lowest address, as linked.
    pub(crate) first: u64,
    /// Where it begins.
    pub(crate) entry: u64,
    /// Where its program headers lie, and how many they are.
    pub(crate) headers: u64,
    pub(crate) count: u64,
    /// Its dynamic loader.
    pub(crate) loader: Option<PathBuf>,
}

impl Image {
    /// Of this file; `None` if it is no ELF file that can be mapped.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let data = &ReadCache::new(File::open(path).ok()?);
        let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let mut loaded = segments.iter().filter(|it| it.p_type(endian) == PT_LOAD);
        let lowest = loaded.next()?;
        let first = lowest
            .p_vaddr(endian)
            .checked_sub(lowest.p_offset(endian))?;
        let loader = segments
            .iter()
            .find_map(|it| it.interpreter(endian, data).ok()?);
        Some(Self {
            first,
            entry: header.e_entry.get(endian),
            headers: first.checked_add(header.e_phoff.get(endian))?,
            count: u64::from(header.e_phnum.get(endian)),
            loader: loader.map(|name| PathBuf::from(OsStr::from_bytes(name))),
        })
    }
}

/// Magic number, class and byte order, which come before everything else.
fn check_identity(path: &Path, data: &ReadCache<File>) -> Result<(), ProgramError> {
    use object::ReadRef;
    let magic = data.read_bytes_at(0, 4).unwrap_or_default();
    if magic != b"\x7fELF" {
        return Err(refused(
            path,
            "is not an executable for this machine: no ELF and no #! line",
        ));
    }
    let Ok([class, order]) = data.read_bytes_at(4, 2) else {
        return Err(refused(path, "is a truncated or damaged executable"));
    };
    let what = if *class != ELFCLASS64.0 {
        "32-bit"
    } else if *order != ELFDATA2LSB.0 {
        "big-endian"
    } else {
        return Ok(());
    };
    Err(refused(
        path,
        format!("is a {what} program; rcoe runs 64-bit x86-64 programs only"),
    ))
}

/// Machine and file type.
fn check_kind(path: &Path, header: &FileHeader64<LittleEndian>) -> Result<(), ProgramError> {
    let machine = header.e_machine.get(LittleEndian);
    if machine != EM_X86_64 {
        let why = format!(
            "is a program for {}; rcoe runs x86-64 programs only",
            name_of(machine)
        );
        return Err(refused(path, why));
    }
    match header.e_type.get(LittleEndian) {
        ET_EXEC | ET_DYN => Ok(()),
        ET_REL => Err(refused(
            path,
            "is an object file, not linked into a program",
        )),
        ET_CORE => Err(refused(path, "is a core file, not a program")),
        other => Err(refused(path, format!("is no program: ELF type {other:?}"))),
    }
}

fn name_of(machine: object::elf::Machine) -> String {
    match machine {
        EM_386 => "32-bit x86".into(),
        EM_ARM => "32-bit ARM".into(),
        EM_AARCH64 => "AArch64".into(),
        EM_RISCV => "RISC-V".into(),
        EM_PPC64 => "64-bit PowerPC".into(),
        EM_S390 => "S/390".into(),
        other => format!("machine {}", other.0),
    }
}

//! Userland exec: maps an ELF program and its interpreter as the kernel's `execve` would.
//!
//! `execve` itself would drop the agent and unshare the descriptor table. Addresses are fixed, as
//! the kernel places them without address-space randomisation, so they are the same in all
//! replicas.
//!
//! Not covered: 32-bit programs, executable stacks, ELF notes such as GNU properties.

use elf::abi::{ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::segment::{ProgramHeader, SegmentTable};
use linux_raw_sys::errno::{ENOEXEC, ENOMEM};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_NONE, PROT_READ,
    PROT_WRITE,
};
use rcoe_linux_abi::PAGE;

use crate::arch::known::{File, Part};
use crate::arch::vdso;
use crate::arch::vdso::image::Place;
use crate::memory::space::{Kind, space};
use crate::sys::{self, Errno};

/// Where the kernel puts position-independent programs without randomisation.
const PIE_BASE: u64 = 0x5555_5555_4000;
/// Program headers must lie within this much of the file's start.
const HEADER_BYTES: usize = 4096;
/// Longest interpreter path.
const PATH_BYTES: usize = 256;
/// Most executable segments of one file that are looked into.
const CODE_SEGMENTS: usize = 4;

/// A program in memory, ready to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Image {
    /// Where to start: the interpreter's entry, or the program's own.
    pub(crate) entry: u64,
    /// The program's own entry (`AT_ENTRY`).
    pub(crate) program_entry: u64,
    /// Address of the program headers (`AT_PHDR`).
    pub(crate) phdr: u64,
    /// Number of program headers (`AT_PHNUM`).
    pub(crate) phnum: u64,
    /// Load address of the interpreter, 0 without one (`AT_BASE`).
    pub(crate) interpreter_base: u64,
    /// First page past the program's data, where `brk` starts.
    pub(crate) brk_start: u64,
    /// Its vDSO (`AT_SYSINFO_EHDR`), or zeroes.
    pub(crate) vdso: Place,
    /// Executable mappings of program, interpreter and vDSO; some are empty.
    code: [Code; 2 * CODE_SEGMENTS + 1],
}

impl Image {
    /// The executable mappings.
    pub(crate) fn code(&self) -> impl Iterator<Item = &Code> {
        self.code.iter().filter(|code| code.len > 0)
    }
}

/// An executable mapping.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Code {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// What it came from.
    pub(crate) part: Part,
    /// It is the program's interpreter.
    pub(crate) interprets: bool,
}

impl Code {
    /// Code of a library.
    pub(crate) const fn new(start: u64, len: u64, part: Part) -> Self {
        Self {
            start,
            len,
            part,
            interprets: false,
        }
    }
}

/// One ELF file mapped into memory.
struct Loaded {
    bias: u64,
    entry: u64,
    phdr: u64,
    phnum: u64,
    end: u64,
    code: [Code; CODE_SEGMENTS],
}

/// Loads the program at `path` (NUL-terminated) and its interpreter.
///
/// # Errors
/// The kernel's error, or `ENOEXEC` for a malformed file.
pub(crate) fn load(path: &[u8]) -> Result<Image, Errno> {
    let program = sys::open_read(path)?;
    let loaded = inspect(program).and_then(|head| {
        let interpreter = match head.interpreter {
            Some((name, len)) => Some(sys::open_read(&name[..len])?),
            None => None,
        };
        let files = [program, interpreter.unwrap_or(-1)].map(File::of);
        let image = load_open(program, interpreter, files);
        interpreter.into_iter().for_each(sys::close);
        image
    });
    sys::close(program);
    loaded
}

/// Loads an open program and its interpreter, which are these files.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_open(
    program: i32,
    interpreter: Option<i32>,
    files: [File; 2],
) -> Result<Image, Errno> {
    let program = map_file(program, files[0], Some(PIE_BASE))?;
    let mut image = Image {
        entry: program.entry,
        program_entry: program.entry,
        phdr: program.phdr,
        phnum: program.phnum,
        interpreter_base: 0,
        brk_start: page_up(program.end),
        vdso: (0, 0),
        code: [Code::default(); 2 * CODE_SEGMENTS + 1],
    };
    image.code[..CODE_SEGMENTS].copy_from_slice(&program.code);
    if let Some(fd) = interpreter {
        let interpreter = map_file(fd, files[1], None)?;
        image.entry = interpreter.entry;
        image.interpreter_base = interpreter.bias;
        let interprets = true;
        let code = interpreter.code.map(|code| Code { interprets, ..code });
        image.code[CODE_SEGMENTS..2 * CODE_SEGMENTS].copy_from_slice(&code);
    }
    image.vdso = vdso::image::map()?;
    let (start, len) = image.vdso;
    let part = Part::NONE;
    image.code[2 * CODE_SEGMENTS] = Code::new(start, len, part);
    Ok(image)
}

/// What the head of a program's file says.
#[derive(Debug)]
pub(crate) struct Head {
    interpreter: Option<([u8; PATH_BYTES], usize)>,
}

impl Head {
    /// The path of its dynamic loader, without the NUL.
    pub(crate) fn interpreter(&self) -> Option<&[u8]> {
        let (name, len) = self.interpreter.as_ref()?;
        Some(&name[..len - 1])
    }
}

/// Looks whether an open file can be loaded.
///
/// # Errors
/// As [`load`].
#[inline(never)]
pub(crate) fn inspect(fd: i32) -> Result<Head, Errno> {
    let mut head = [0_u8; HEADER_BYTES];
    let read = sys::pread(fd, &mut head, 0)?;
    let header = parse_header(&head[..read])?;
    let segments = segment_table(&header, &head[..read])?;
    extent(&segments)?;
    let interpreter = interpreter_path(fd, &segments)?;
    Ok(Head { interpreter })
}

/// What the kernel reads of a file to find out what it is.
pub(crate) const LINE_BYTES: usize = 256;

/// The interpreter and the one optional argument of a line that begins with `#!`.
pub(crate) fn parse_script_line(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let rest = head.strip_prefix(b"#!")?;
    let end = rest.iter().position(|byte| *byte == b'\n');
    let line = rest[..end.unwrap_or(rest.len())].trim_ascii();
    let line = line.split(|byte| *byte == 0).next()?;
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let (interpreter, argument) = match line.iter().position(blank) {
        Some(at) => (&line[..at], Some(line[at..].trim_ascii())),
        None => (line, None),
    };
    // Without an end of line in what was read, a path may have been cut off.
    let cut = end.is_none() && argument.is_none() && head.len() >= LINE_BYTES;
    (!interpreter.is_empty() && !cut)
        .then_some((interpreter, argument.filter(|text| !text.is_empty())))
}

#[inline(never)]
fn map_file(fd: i32, file: File, pie_base: Option<u64>) -> Result<Loaded, Errno> {
    let mut head = [0_u8; HEADER_BYTES];
    let read = sys::pread(fd, &mut head, 0)?;
    let head = &head[..read];
    let header = parse_header(head)?;
    let segments = segment_table(&header, head)?;
    let (low, high) = extent(&segments)?;
    let bias = place(&header, low, high, pie_base)?;
    for segment in segments.iter().filter(|s| s.p_type == PT_LOAD) {
        map_segment(fd, &segment, bias)?;
    }
    Ok(Loaded {
        bias,
        entry: bias.wrapping_add(header.e_entry),
        phdr: program_header_address(&header, &segments, bias),
        phnum: u64::from(header.e_phnum),
        end: bias.wrapping_add(high),
        code: code_ranges(&segments, bias, file),
    })
}

const NOT_EXECUTABLE: Errno = Errno(ENOEXEC.cast_signed());

fn parse_header(head: &[u8]) -> Result<FileHeader<LittleEndian>, Errno> {
    let ident = head.get(..16).ok_or(NOT_EXECUTABLE)?;
    let ident = parse_ident::<LittleEndian>(ident).map_err(|_| NOT_EXECUTABLE)?;
    let tail = head.get(16..64).ok_or(NOT_EXECUTABLE)?;
    let header = FileHeader::parse_tail(ident, tail).map_err(|_| NOT_EXECUTABLE)?;
    let right = header.class == Class::ELF64
        && header.e_machine == elf::abi::EM_X86_64
        && matches!(header.e_type, ET_EXEC | ET_DYN)
        && header.e_phentsize == 56;
    if right {
        Ok(header)
    } else {
        Err(NOT_EXECUTABLE)
    }
}

fn segment_table<'d>(
    header: &FileHeader<LittleEndian>,
    head: &'d [u8],
) -> Result<SegmentTable<'d, LittleEndian>, Errno> {
    let start = usize::try_from(header.e_phoff).map_err(|_| NOT_EXECUTABLE)?;
    let end = start
        .checked_add(usize::from(header.e_phnum) * 56)
        .ok_or(NOT_EXECUTABLE)?;
    let bytes = head.get(start..end).ok_or(NOT_EXECUTABLE)?;
    Ok(SegmentTable::new(LittleEndian, header.class, bytes))
}

/// Lowest and highest address of the loadable segments, page-rounded downwards at the low end.
fn extent(segments: &SegmentTable<'_, LittleEndian>) -> Result<(u64, u64), Errno> {
    let mut range: Option<(u64, u64)> = None;
    for segment in segments.iter().filter(|s| s.p_type == PT_LOAD) {
        let end = segment
            .p_vaddr
            .checked_add(segment.p_memsz)
            .ok_or(NOT_EXECUTABLE)?;
        let low = page_down(segment.p_vaddr);
        range = Some(range.map_or((low, end), |(l, h)| (l.min(low), h.max(end))));
    }
    range.ok_or(NOT_EXECUTABLE)
}

/// Chooses and reserves the addresses; returns what to add to the file's addresses.
fn place(
    header: &FileHeader<LittleEndian>,
    low: u64,
    high: u64,
    pie_base: Option<u64>,
) -> Result<u64, Errno> {
    let len = page_up(high) - low;
    let wanted = if header.e_type == ET_EXEC {
        low
    } else {
        pie_base.unwrap_or(0)
    };
    let fixed = if wanted == 0 { 0 } else { MAP_FIXED_NOREPLACE };
    // SAFETY: a new reservation; it replaces nothing.
    let base = unsafe {
        sys::mmap(
            wanted,
            len,
            PROT_NONE,
            MAP_PRIVATE | MAP_ANONYMOUS | fixed,
            -1,
            0,
        )?
    };
    if wanted != 0 && base != wanted {
        return Err(Errno(ENOMEM.cast_signed()));
    }
    Ok(base.wrapping_sub(low))
}

fn map_segment(fd: i32, segment: &ProgramHeader, bias: u64) -> Result<(), Errno> {
    let prot = protection(segment.p_flags);
    let start = bias.wrapping_add(segment.p_vaddr);
    let file_end = start.checked_add(segment.p_filesz).ok_or(NOT_EXECUTABLE)?;
    let memory_end = start.checked_add(segment.p_memsz).ok_or(NOT_EXECUTABLE)?;
    let lead = start - page_down(start);
    let offset = segment.p_offset.checked_sub(lead).ok_or(NOT_EXECUTABLE)?;
    if segment.p_filesz > 0 {
        // SAFETY: inside the reservation made by `place`.
        unsafe {
            let len = segment.p_filesz + lead;
            sys::mmap(
                page_down(start),
                len,
                prot,
                MAP_PRIVATE | MAP_FIXED,
                fd,
                offset,
            )?;
        }
    }
    let kind = Kind::private(prot & PROT_WRITE != 0);
    space().set(start, memory_end - start, kind);
    if memory_end > file_end {
        zero_fill(file_end, memory_end, prot, segment.p_filesz > 0)?;
    }
    Ok(())
}

/// Clears the rest of the last file page and maps zero pages behind it.
fn zero_fill(file_end: u64, memory_end: u64, prot: u32, has_file: bool) -> Result<(), Errno> {
    let fresh = if has_file {
        page_up(file_end)
    } else {
        page_down(file_end)
    };
    if has_file && prot & PROT_WRITE != 0 {
        // To the end of the page, as the kernel does: the loader's own allocator counts on it.
        let tail = fresh - file_end;
        // SAFETY: the tail of a private, writable page of this segment.
        unsafe { core::ptr::write_bytes(file_end as *mut u8, 0, crate::convert::size(tail)) };
    }
    if memory_end > fresh {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        // SAFETY: inside the reservation made by `place`.
        unsafe { sys::mmap(fresh, memory_end - fresh, prot, flags, -1, 0)? };
    }
    Ok(())
}

fn code_ranges(
    segments: &SegmentTable<'_, LittleEndian>,
    bias: u64,
    file: File,
) -> [Code; CODE_SEGMENTS] {
    let mut ranges = [Code::default(); CODE_SEGMENTS];
    let code = || {
        let segments = segments.iter();
        segments.filter(|s| s.p_type == PT_LOAD && s.p_flags & PF_X != 0)
    };
    let all_seen = code().count() <= CODE_SEGMENTS;
    for (range, segment) in ranges.iter_mut().zip(code()) {
        let begin = bias.wrapping_add(segment.p_vaddr);
        let start = page_down(begin);
        let len = page_up(begin.wrapping_add(segment.p_filesz)) - start;
        // Of what can be written the loader has written a part already, and the program will.
        let part = match segment.p_flags & PF_W {
            0 if all_seen => file.part(page_down(segment.p_offset), len),
            _ => Part::FLEETING,
        };
        *range = Code::new(start, len, part);
    }
    ranges
}

fn protection(flags: u32) -> u32 {
    // Code is readable: it is looked through, see the crate's `mmap`.
    let flags = if flags & PF_X != 0 {
        flags | PF_R
    } else {
        flags
    };
    let bit = |flag, prot| if flags & flag != 0 { prot } else { 0 };
    bit(PF_R, PROT_READ) | bit(PF_W, PROT_WRITE) | bit(PF_X, PROT_EXEC)
}

fn program_header_address(
    header: &FileHeader<LittleEndian>,
    segments: &SegmentTable<'_, LittleEndian>,
    bias: u64,
) -> u64 {
    segments
        .iter()
        .filter(|s| s.p_type == PT_LOAD)
        .find(|s| header.e_phoff >= s.p_offset && header.e_phoff - s.p_offset < s.p_filesz)
        .map_or(0, |s| {
            bias.wrapping_add(header.e_phoff - s.p_offset + s.p_vaddr)
        })
}

fn interpreter_path(
    fd: i32,
    segments: &SegmentTable<'_, LittleEndian>,
) -> Result<Option<([u8; PATH_BYTES], usize)>, Errno> {
    let Some(segment) = segments.iter().find(|s| s.p_type == PT_INTERP) else {
        return Ok(None);
    };
    let len = usize::try_from(segment.p_filesz).map_err(|_| NOT_EXECUTABLE)?;
    let mut path = [0; PATH_BYTES];
    let room = path.get_mut(..len).ok_or(NOT_EXECUTABLE)?;
    let read = sys::pread(fd, room, segment.p_offset)?;
    if read != len || room.last() != Some(&0) {
        return Err(NOT_EXECUTABLE);
    }
    Ok(Some((path, len)))
}

/// Rounds down to a page boundary.
pub(crate) const fn page_down(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Rounds up to a page boundary.
pub(crate) const fn page_up(address: u64) -> u64 {
    page_down(address.wrapping_add(PAGE - 1))
}

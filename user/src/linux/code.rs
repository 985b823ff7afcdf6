//! Code: that of a program and of its loader, which are there when it begins, and that of files,
//! which a loader maps.
//!
//! The host has looked through all code that it packed for `cpuid`, which answers differently on
//! each core. Wherever such code comes into memory the instruction is replaced by an undefined one
//! that programs do not have: so an exception at it tells what was there, whatever was mapped,
//! copied and taken out since. No other code comes into memory.

use core::fmt::Display;

use linux_raw_sys::errno::{EACCES, EBADF, EINVAL, ENOEXEC, ENOMEM};
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_SHARED, PROT_WRITE};
use rcoe_abi::Rights;
use rcoe_abi::bundle::{Program, Segment};

use super::arch::{REPLACED, TRAMPOLINE};
use super::files::Kind;
use super::machine::{Machine, PAGE};
use super::process::Process;
use super::space::{Range, Space};
use super::{Answer, Errno};
use crate::linux::arch::nr;

/// Where a program begins, and where the loader is that is begun in its place, or 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) entry: u64,
    pub(super) base: u64,
}

/// Puts a program, and its loader, if it has one, into the memory at hand, where nothing is.
///
/// # Errors
/// If there is not enough memory, or if nobody can make sense of it.
pub(super) fn begin<M: Machine>(
    process: &mut Process<'_, M>,
    program: &Program<'_>,
) -> Result<Image, Errno> {
    put(process, program, 0)?;
    put_trampoline(process)?;
    *process.space = Space::new(program.end);
    let Some(loader) = program.loader() else {
        return Ok(Image {
            entry: program.entry,
            base: 0,
        });
    };
    // It is where memory is mapped, as is all that it maps itself.
    let first = loader.segment(0).ok_or(Errno(ENOEXEC))?.address / PAGE * PAGE;
    let bytes = loader.end.checked_sub(first).ok_or(Errno(ENOEXEC))?;
    let base = process.space.room(&process.store, bytes)?.start;
    let shift = base.wrapping_sub(first);
    put(process, &loader, shift)?;
    Ok(Image {
        entry: loader.entry.wrapping_add(shift),
        base,
    })
}

/// Puts a program into memory, so much behind where it is laid out.
fn put<M: Machine>(
    process: &mut Process<'_, M>,
    program: &Program<'_>,
    shift: u64,
) -> Result<(), Errno> {
    let (damaged, full) = (|_| Errno(ENOEXEC), |_| Errno(ENOMEM));
    for segment in program.segments() {
        let address = segment.address.wrapping_add(shift);
        let first = address / PAGE * PAGE;
        let bytes = segment.bytes.checked_add(address - first);
        let range = Range::new(first, bytes.ok_or(Errno(ENOEXEC))?).map_err(damaged)?;
        let rights = Rights::from_word(segment.rights);
        let (store, machine) = (&mut process.store, &mut process.machine);
        Space::add(store, machine, range, rights).map_err(full)?;
        let content = segment.content;
        Space::put(store, machine, address, content, Rights::READ).map_err(full)?;
    }
    for address in program.identities() {
        replace(process, address.wrapping_add(shift))?;
    }
    Ok(())
}

/// Puts an undefined instruction where one identifies the processor. What is behind its first byte
/// stays.
fn replace<M: Machine>(process: &mut Process<'_, M>, address: u64) -> Result<(), Errno> {
    let [from, to] = REPLACED.ok_or(Errno(ENOEXEC))?;
    let mut found = [0];
    process.read(address, &mut found)?;
    if found != [from] {
        return Err(Errno(ENOEXEC));
    }
    let (store, machine) = (&mut process.store, &mut process.machine);
    Space::put(store, machine, address, &[to], Rights::READ)
}

/// Maps the code by which handlers return that name no way back, where the processor's programs
/// count on it.
fn put_trampoline<M: Machine>(process: &mut Process<'_, M>) -> Result<(), Errno> {
    let Some((address, code)) = TRAMPOLINE else {
        return Ok(());
    };
    let rights = Rights::READ.or(Rights::EXECUTE);
    let (store, machine) = (&mut process.store, &mut process.machine);
    Space::add(store, machine, Range::new(address, PAGE)?, rights)?;
    Space::put(store, machine, address, &code, Rights::READ)
}

/// A part of a file that is to be mapped.
#[derive(Clone, Copy)]
struct Part<'a> {
    program: Program<'a>,
    start: u64,
    end: u64,
}

impl<'a> Part<'a> {
    /// What there is of code: segments, and where they begin and end in the file.
    fn code(self) -> impl Iterator<Item = (Segment<'a>, u64, u64)> {
        let all = self.program.segments();
        let code = all.filter(|it| Rights::from_word(it.rights).contains(Rights::EXECUTE));
        code.filter_map(move |it| {
            let end = it.offset.saturating_add(it.content.len() as u64);
            let (from, to) = (it.offset.max(self.start), end.min(self.end));
            (from < to).then_some((it, from, to))
        })
    }
}

impl<'a, M: Machine> Process<'a, M> {
    /// Maps code: of a file, and such that the host has looked through. What is no code of the
    /// file's reads as zeroes.
    pub(super) fn map_code(&mut self, words: [u64; 6]) -> Answer {
        let part = match self.code_of(words)? {
            Some(part) if part.code().next().is_some() => part,
            _ => return self.refuse_code(),
        };
        let range = self.place(words)?;
        let rights = Rights::READ.or(Rights::EXECUTE);
        Space::add(&mut self.store, &mut self.machine, range, rights)?;
        for (segment, from, to) in part.code() {
            let within = |it: u64| usize::try_from(it - segment.offset).map_err(|_| Errno(ENOMEM));
            let content = &segment.content[within(from)?..within(to)?];
            let address = range.start + (from - part.start);
            let (store, machine) = (&mut self.store, &mut self.machine);
            Space::put(store, machine, address, content, Rights::READ)?;
            for identity in part.program.identities() {
                // Where it is in the file, if it is in this segment at all.
                let place = identity.wrapping_sub(segment.address);
                let place = place.wrapping_add(segment.offset);
                if (from..to).contains(&place) {
                    replace(self, range.start + (place - part.start))?;
                }
            }
        }
        Ok(range.start)
    }

    /// What is to be mapped, if that is of a file whose code the host knows.
    fn code_of(&mut self, words: [u64; 6]) -> Result<Option<Part<'a>>, Errno> {
        let [_, bytes, protection, flags, file, start] = words;
        let has = |bit: u32| flags & u64::from(bit) != 0;
        if has(MAP_ANONYMOUS) || has(MAP_SHARED) || protection & u64::from(PROT_WRITE) != 0 {
            return Ok(None);
        }
        let open = *self.files.of(file).map_err(|_| Errno(EBADF))?;
        let Ok(node) = open.node() else {
            return Ok(None);
        };
        if !start.is_multiple_of(PAGE) || bytes == 0 {
            return Err(Errno(EINVAL));
        }
        let node = self.files.node(node);
        let Kind::Packed(content) = node.kind else {
            return Ok(None);
        };
        let Some(program) = self.bundle.program_in(content) else {
            return Ok(None);
        };
        if program.segment(0).is_none() {
            let (path, why) = (node.path.bytes(), program.why);
            self.tell_code(format_args!(
                "the system sphere does not carry {}: {}",
                Readable(path),
                Readable(why)
            ));
            return Err(Errno(EACCES));
        }
        let end = start.saturating_add(bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX));
        Ok(Some(Part {
            program,
            start,
            end,
        }))
    }

    /// Nobody has looked for instructions in new code that differ between cores.
    pub(super) fn refuse_code(&mut self) -> Answer {
        self.tell_code(format_args!(
            "the system sphere does not carry code that a program makes: the program got EACCES"
        ));
        Err(Errno(EACCES))
    }

    fn tell_code(&mut self, text: core::fmt::Arguments<'_>) {
        self.tell_once(nr::__NR_mprotect.into(), text);
    }
}

/// Bytes that are mostly text.
pub(super) struct Readable<'a>(pub(super) &'a [u8]);

impl Display for Readable<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let chunks = self.0.utf8_chunks();
        chunks
            .into_iter()
            .try_for_each(|it| out.write_str(it.valid()))
    }
}

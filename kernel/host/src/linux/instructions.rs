//! Which bytes of a program are `cpuid`: the one instruction that answers differently on each core
//! and cannot be trapped.
//!
//! The personality puts an undefined instruction of the same length there, and answers for it. So
//! bytes may be replaced only if they are an instruction: functions, as far as the file says where
//! they are, and what is between them are decoded from their beginning, one instruction after the
//! other. Bytes that look like one and lie within another are left alone. Behind what cannot be
//! decoded it is not plain for a while where instructions begin; a program with such bytes there is
//! refused. Between functions that are known they are data: tables stand there, of libraries that
//! encrypt.
//!
//! Not covered: data between functions that looks like the instruction and can be decoded with all
//! that is near, and jumps into the middle of an instruction. One that is overlooked is found as
//! any difference between replicas.

use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, elf};
use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Opcode};

use super::elf::{Plan, Segment};
use super::functions::functions;

/// The instruction.
const IDENTITY: [u8; 2] = [0x0f, 0xa2];
/// Instructions in a row by which decoding is in step again.
const IN_STEP: usize = 32;
/// Longest instruction.
const LONGEST: usize = 15;
/// Bytes around what is no instruction that are taken for data, between functions.
const NEAR: usize = 4096;

/// Addresses of all such instructions, in order.
///
/// # Errors
/// If it is not plain what is one.
pub(crate) fn identities(data: &[u8], plan: &Plan) -> Result<Vec<u64>, String> {
    let mut found = Vec::new();
    let moved = |it: u64| it.saturating_add(plan.base);
    let functions = functions(data).into_iter();
    let functions: Vec<_> = functions.map(|it| (moved(it.0), moved(it.1))).collect();
    for segment in plan.segments.iter().filter(|it| it.rights & 4 != 0) {
        let content = content(data, segment);
        if content.windows(2).any(|bytes| bytes == IDENTITY) {
            search(data, segment, &functions, &mut found)?;
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn content<'a>(data: &'a [u8], segment: &Segment) -> &'a [u8] {
    let (offset, len) = segment.content;
    let place = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
    let end = place(offset).saturating_add(place(len));
    data.get(place(offset)..end).unwrap_or(&[])
}

/// Looks through all code of a segment.
fn search(
    data: &[u8],
    segment: &Segment,
    functions: &[(u64, u64)],
    found: &mut Vec<u64>,
) -> Result<(), String> {
    let code = content(data, segment);
    let sections = sections(data, segment);
    if sections.is_empty() {
        return Err(
            "it has bytes that may be CPUID where no section of code is: \
                    build it with section headers"
                .into(),
        );
    }
    for (start, end) in sections {
        let section = &code[start..end];
        let address = segment.address + start as u64;
        for piece in pieces(address, section.len(), functions) {
            let code = &section[piece.start..piece.end];
            if code.windows(2).any(|bytes| bytes == IDENTITY) {
                let walk = Walk::new(code);
                walk.judge(address + piece.start as u64, piece.is_between, found)?;
            }
        }
    }
    Ok(())
}

/// Sections of code within a segment, as places in its content.
fn sections(data: &[u8], segment: &Segment) -> Vec<(usize, usize)> {
    let (offset, len) = segment.content;
    let read = || {
        let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let all = header.section_headers(endian, data).ok()?;
        let code = all.iter().filter(|it| {
            let flags = it.sh_flags(endian).0;
            it.sh_type(endian) == elf::SHT_PROGBITS && flags & elf::SHF_EXECINSTR.0 != 0
        });
        let places = code.filter_map(|it| {
            let start = it.sh_offset(endian).checked_sub(offset)?;
            let end = start.checked_add(it.sh_size(endian))?;
            let place = |it: u64| usize::try_from(it).ok();
            (end <= len).then_some((place(start)?, place(end)?))
        });
        Some(places.collect::<Vec<_>>())
    };
    let mut places = read().unwrap_or_default();
    places.sort_unstable();
    // Sections that overlap are none.
    let apart = places.windows(2).all(|it| it[0].1 <= it[1].0);
    if apart { places } else { Vec::new() }
}

/// A part of a section: a function, or what is between two of those that are known.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    end: usize,
    is_between: bool,
}

/// The parts of a section of so many bytes at an address. If no function is known, it is one.
fn pieces(address: u64, len: usize, functions: &[(u64, u64)]) -> Vec<Piece> {
    let within =
        |it: u64| usize::try_from(it.saturating_sub(address)).map_or(len, |it| it.min(len));
    let known = functions.iter().map(|it| (within(it.0), within(it.1)));
    let (mut pieces, mut at) = (Vec::new(), 0);
    for (start, end) in known.filter(|it| it.0 < it.1).chain([(len, len)]) {
        for (start, end, is_between) in [(at, start, !functions.is_empty()), (start, end, false)] {
            if start < end {
                pieces.push(Piece {
                    start,
                    end,
                    is_between,
                });
            }
        }
        at = end;
    }
    pieces
}

/// What is met when code is decoded from its beginning: places of the instruction, those where it
/// is not plain, and those where there is no instruction at all.
#[derive(Debug, Default)]
struct Walk {
    met: Vec<usize>,
    unclear: Vec<usize>,
    none: Vec<usize>,
}

impl Walk {
    fn new(code: &[u8]) -> Self {
        let (decoder, mut walk) = (InstDecoder::default(), Self::default());
        let (mut at, mut in_step) = (0, IN_STEP);
        while at < code.len() {
            let window = &code[at..code.len().min(at + LONGEST)];
            let Ok(instruction) = decoder.decode_slice(window) else {
                if window.starts_with(&IDENTITY) {
                    walk.unclear.push(at);
                }
                walk.none.push(at);
                at += 1;
                in_step = 0;
                continue;
            };
            let len = usize::try_from(instruction.len().to_const()).unwrap_or(1);
            let len = len.max(1);
            if in_step < IN_STEP {
                let end = code.len().min(at + len + 1);
                if code[at..end].windows(2).any(|bytes| bytes == IDENTITY) {
                    walk.unclear.push(at);
                }
            } else if instruction.opcode() == Opcode::CPUID {
                // A prefix would make it longer; the personality counts on two bytes.
                match len == IDENTITY.len() {
                    true => walk.met.push(at),
                    false => walk.unclear.push(at),
                }
            }
            in_step += 1;
            at += len;
        }
        walk
    }

    /// Adds what is met in code at an address. Between functions that are known there are tables
    /// too: where anything near is no instruction, all is taken for data.
    fn judge(&self, address: u64, is_between: bool, found: &mut Vec<u64>) -> Result<(), String> {
        let unclear = self.unclear.first().filter(|_| !is_between);
        if let Some(&at) = unclear {
            return Err(format!(
                "it is not plain whether its code has CPUID at {:#x}, or data",
                address + at as u64
            ));
        }
        let is_near = |at: usize| self.none.iter().any(|none| none.abs_diff(at) < NEAR);
        let met = self.met.iter().filter(|&&at| !is_between || !is_near(at));
        found.extend(met.map(|&at| address + at as u64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[u8]) -> Result<Vec<u64>, String> {
        let mut found = Vec::new();
        let judged = Walk::new(code).judge(0x1000, false, &mut found);
        judged.map(|()| found)
    }

    #[test]
    fn an_instruction_is_found_and_what_lies_in_another_is_not() {
        // xor eax, eax; cpuid; mov eax, 0xa20f; ret
        let code = [0x31, 0xc0, 0x0f, 0xa2, 0xb8, 0x0f, 0xa2, 0, 0, 0xc3];
        assert_eq!(found(&code), Ok(vec![0x1002]));
        assert_eq!(found(&[0x90; 64]), Ok(vec![]));
    }

    #[test]
    fn behind_what_is_no_instruction_nothing_is_taken_for_one() {
        // 06 is none in this mode.
        let mut code = vec![0x06, 0x31, 0xc0, 0x0f, 0xa2, 0xc3];
        assert!(found(&code).unwrap_err().contains("CPUID at 0x1003"));
        code.splice(1..1, [0x90; IN_STEP]);
        assert_eq!(found(&code), Ok(vec![0x1003 + IN_STEP as u64]));
    }

    #[test]
    fn tables_between_functions_are_left_alone() {
        let all = pieces(
            0x1000,
            100,
            &[(0x1000, 0x1010), (0x1020, 0x1030), (0x2000, 0x2001)],
        );
        let parts: Vec<_> = all
            .iter()
            .map(|it| (it.start, it.end, it.is_between))
            .collect();
        let expected = [
            (0, 16, false),
            (16, 32, true),
            (32, 48, false),
            (48, 100, true),
        ];
        assert_eq!(parts, expected);
        assert!(pieces(0x1000, 9, &[]).iter().all(|it| !it.is_between));
        let mut table = vec![0x90; 9000];
        table[40..42].copy_from_slice(&IDENTITY);
        table[8000..8002].copy_from_slice(&IDENTITY);
        let between = |table: &[u8]| {
            let mut found = Vec::new();
            let judged = Walk::new(table).judge(0, true, &mut found);
            judged.map(|()| found)
        };
        assert_eq!(between(&table), Ok(vec![40, 8000]));
        table[50] = 0x06;
        assert_eq!(between(&table), Ok(vec![8000]));
        table[40..42].fill(0x06);
        table[52..54].copy_from_slice(&IDENTITY);
        assert_eq!(between(&table), Ok(vec![8000]));
    }

    #[test]
    fn one_with_a_prefix_is_refused() {
        assert!(found(&[0xf3, 0x0f, 0xa2, 0xc3]).is_err());
    }

    #[test]
    fn decoding_ends_whatever_the_bytes_are() {
        let mut seed = 5_u64;
        for _ in 0..2_000 {
            let code: Vec<u8> = (0..64)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    seed.to_be_bytes()[0]
                })
                .collect();
            let _ = found(&code);
        }
    }
}

//! Which bytes of a program are `cpuid`: the one instruction that answers differently on each core
//! and cannot be trapped.
//!
//! The personality puts an undefined instruction of the same length there, and answers for it. So
//! bytes may be replaced only if they are an instruction: sections of code are decoded from their
//! beginning, one instruction after the other. Bytes that look like one and lie within another are
//! left alone. Behind what cannot be decoded it is not plain for a while where instructions begin;
//! a program with such bytes there is refused.
//!
//! Not covered: data between functions that looks like the instruction and can be decoded, and
//! jumps into the middle of an instruction. One that is overlooked is found as any difference
//! between replicas.

use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, elf};
use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Opcode};

use super::elf::{Plan, Segment};

/// The instruction.
const IDENTITY: [u8; 2] = [0x0f, 0xa2];
/// Instructions in a row by which decoding is in step again.
const IN_STEP: usize = 32;
/// Longest instruction.
const LONGEST: usize = 15;

/// Addresses of all such instructions, in order.
///
/// # Errors
/// If it is not plain what is one.
pub(crate) fn identities(data: &[u8], plan: &Plan) -> Result<Vec<u64>, String> {
    let mut found = Vec::new();
    for segment in plan.segments.iter().filter(|it| it.rights & 4 != 0) {
        let content = content(data, segment);
        if content.windows(2).any(|bytes| bytes == IDENTITY) {
            search(data, segment, &mut found)?;
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
fn search(data: &[u8], segment: &Segment, found: &mut Vec<u64>) -> Result<(), String> {
    let code = content(data, segment);
    let mut rest = code.windows(2).filter(|bytes| *bytes == IDENTITY).count();
    for (start, end) in sections(data, segment) {
        let section = &code[start..end];
        let address = segment.address + start as u64;
        rest -= section
            .windows(2)
            .filter(|bytes| *bytes == IDENTITY)
            .count();
        decode(section, address, found)?;
    }
    if rest > 0 {
        return Err(
            "it has bytes that may be CPUID where no section of code is: \
                    build it with section headers"
                .into(),
        );
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

/// Decodes a section from its beginning.
fn decode(code: &[u8], address: u64, found: &mut Vec<u64>) -> Result<(), String> {
    let decoder = InstDecoder::default();
    let (mut at, mut in_step) = (0, IN_STEP);
    while at < code.len() {
        let window = &code[at..code.len().min(at + LONGEST)];
        let Ok(instruction) = decoder.decode_slice(window) else {
            at += 1;
            in_step = 0;
            doubt(&code[at - 1..], address + at as u64 - 1)?;
            continue;
        };
        let len = usize::try_from(instruction.len().to_const())
            .unwrap_or(1)
            .max(1);
        if in_step < IN_STEP {
            let end = code.len().min(at + len + 1);
            if code[at..end].windows(2).any(|bytes| bytes == IDENTITY) {
                return Err(unclear(address + at as u64));
            }
        } else if instruction.opcode() == Opcode::CPUID {
            // A prefix would make it longer; the personality counts on two bytes.
            if len != IDENTITY.len() {
                return Err(unclear(address + at as u64));
            }
            found.push(address + at as u64);
        }
        in_step += 1;
        at += len;
    }
    Ok(())
}

fn doubt(code: &[u8], address: u64) -> Result<(), String> {
    match code.starts_with(&IDENTITY) {
        true => Err(unclear(address)),
        false => Ok(()),
    }
}

fn unclear(address: u64) -> String {
    format!("it is not plain whether its code has CPUID at {address:#x}, or data")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[u8]) -> Result<Vec<u64>, String> {
        let mut found = Vec::new();
        decode(code, 0x1000, &mut found).map(|()| found)
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

//! What an instruction does to the flow of control, and the same instruction elsewhere.
//!
//! A window of code that a jump overwrites is executed in another place. What an instruction does
//! there must be what it does here: addresses relative to the instruction pointer are corrected,
//! and what leaves its own address behind (calls, x87 instructions) is refused, by name.
//!
//! Not covered: user-mode interrupts, 32-bit code.

use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec, register_class};

use crate::convert::low32;

/// Longest instruction.
pub(crate) const LONGEST: usize = 15;
/// Longest form of one instruction elsewhere.
pub(crate) const LONGEST_MOVED: usize = 16;

/// Why a replica cannot be stopped at an instruction by a jump in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is not in code that can be patched.
    NoCode,
    /// It belongs to the agent, the vDSO or a stub.
    NotTheProgram,
    /// It is no instruction, or one that is not understood.
    Unknown,
    /// It leaves its own address on the stack.
    Call,
    /// It enters the agent, where there is a point to stop at anyway.
    SystemCall,
    /// It traps, or may, and whoever emulates it goes by its address.
    Traps,
    /// It leaves its own address in the x87 state.
    X87,
    /// It is repeated, and has no place of its own in the midst.
    Repeated,
    /// A branch may lead into the bytes to be overwritten.
    InnerBranch,
    /// The block ends before there are five bytes.
    TooShort,
    /// What it names cannot be reached from a stub.
    OutOfReach,
    /// It holds an address or a constant, which the program may read and write where it has made
    /// its code.
    Constant,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To the next one.
    On,
    /// There, or to the next one.
    Either(u64),
    /// There.
    To(u64),
    /// Somewhere else.
    Away,
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    /// Bytes.
    pub(crate) len: u8,
    pub(crate) flow: Flow,
    /// Why it cannot be executed elsewhere.
    pub(crate) fixed: Option<Refused>,
    /// It holds a constant of at least four bytes, or where a call or a jump leads.
    pub(crate) holds: bool,
    /// It names memory relative to the instruction pointer; the offset of the displacement.
    relative: Option<u8>,
}

impl Decoded {
    /// The instruction that the code begins with, which stands at `at`.
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn new(code: &[u8], at: u64) -> Result<Self, Refused> {
        let code = &code[..code.len().min(LONGEST)];
        let decoder = InstDecoder::default();
        let found = decoder.decode_slice(code).map_err(|_| Refused::Unknown)?;
        let len = found.len().to_const();
        let bytes = usize::try_from(len).map_err(|_| Refused::Unknown)?;
        let len = u8::try_from(len).map_err(|_| Refused::Unknown)?;
        let relative = match names_relative(&found) {
            Some(displacement) => Some(
                displacement_offset(&code[..bytes], displacement, &found)
                    .ok_or(Refused::Unknown)?,
            ),
            None => None,
        };
        Ok(Self {
            len,
            flow: flow(&found, at + u64::from(len))?,
            fixed: fixed(&found, &code[..bytes]),
            holds: holds(&found),
            relative,
        })
    }

    /// Writes what does at `to` what these bytes do at `at`; how many bytes, and for a branch by a
    /// count where its two ways begin.
    ///
    /// # Errors
    /// It cannot be executed elsewhere, or not so far away.
    pub(crate) fn moved(
        &self,
        code: &[u8],
        at: u64,
        to: u64,
        out: &mut [u8; LONGEST_MOVED],
    ) -> Result<Moved, Refused> {
        if let Some(refused) = self.fixed {
            return Err(refused);
        }
        let bytes = &code[..usize::from(self.len)];
        match self.flow {
            Flow::To(target) => Ok(put(out, &[&[0xe9], &reach(to + 5, target)?])),
            Flow::Either(target) => branch(bytes, target, to, out),
            Flow::On | Flow::Away => {
                let moved = put(out, &[bytes]);
                if let Some(offset) = self.relative {
                    let place = usize::from(offset);
                    let old = word(bytes, place).ok_or(Refused::Unknown)?;
                    let next = at + u64::from(self.len);
                    let named = next.wrapping_add_signed(i64::from(old));
                    let new = reach(to + u64::from(self.len), named)?;
                    out[place..place + 4].copy_from_slice(&new);
                }
                Ok(moved)
            }
        }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) len: u8,
    /// Offsets within it of jumps: where the branch is not taken, and where it is.
    pub(crate) ways: Option<[u8; 2]>,
}

/// Puts parts in a row.
fn put(out: &mut [u8; LONGEST_MOVED], parts: &[&[u8]]) -> Moved {
    let mut len = 0;
    for part in parts {
        out[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    Moved {
        len: u8::try_from(len).expect("a short piece"),
        ways: None,
    }
}

/// A conditional branch with a long displacement.
fn branch(
    bytes: &[u8],
    target: u64,
    to: u64,
    out: &mut [u8; LONGEST_MOVED],
) -> Result<Moved, Refused> {
    let (opcode, prefixes) = match bytes {
        [before @ .., opcode @ 0x70..=0x7f, _] => (*opcode, before),
        [before @ .., 0x0f, opcode @ 0x80..=0x8f, _, _, _, _] => (*opcode - 0x10, before),
        [before @ .., opcode @ 0xe0..=0xe3, _] => {
            return counted(before, *opcode, target, to, out);
        }
        _ => return Err(Refused::Unknown),
    };
    // What stands before is a hint to the processor, if anything.
    if prefixes
        .iter()
        .any(|byte| !matches!(byte, 0x2e | 0x3e | 0xf2))
    {
        return Err(Refused::Unknown);
    }
    let displacement = reach(to + 6, target)?;
    Ok(put(out, &[&[0x0f, opcode + 0x10], &displacement]))
}

/// A branch that goes by a count has a short displacement only: it leads to a long one.
fn counted(
    prefixes: &[u8],
    opcode: u8,
    target: u64,
    to: u64,
    out: &mut [u8; LONGEST_MOVED],
) -> Result<Moved, Refused> {
    if prefixes.len() > 1 || prefixes.iter().any(|byte| *byte != 0x67) {
        return Err(Refused::Unknown);
    }
    let short = prefixes.len() + 2;
    let displacement = reach(to + short as u64 + 7, target)?;
    let parts: [&[u8]; 4] = [prefixes, &[opcode, 2, 0xeb, 5], &[0xe9], &displacement];
    let short = u8::try_from(short).expect("a short branch");
    Ok(Moved {
        ways: Some([short, short + 2]),
        ..put(out, &parts)
    })
}

/// The displacement that leads from behind an instruction to a target.
pub(crate) fn reach(next: u64, target: u64) -> Result<[u8; 4], Refused> {
    let distance = target.wrapping_sub(next).cast_signed();
    match i32::try_from(distance) {
        Ok(_) => Ok(low32(distance.cast_unsigned()).to_le_bytes()),
        Err(_) => Err(Refused::OutOfReach),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<i32> {
    let word = bytes.get(at..at + 4)?;
    Some(i32::from_le_bytes(word.try_into().ok()?))
}

fn operands(instruction: &Instruction) -> impl Iterator<Item = Operand> {
    let count = instruction.operand_count();
    (0..count).map(|index| instruction.operand(index))
}

/// The displacement of what it names relative to the instruction pointer.
fn names_relative(instruction: &Instruction) -> Option<i32> {
    operands(instruction).find_map(|operand| match operand {
        Operand::MemDeref { base } | Operand::MemDerefMasked { base, .. }
            if base == RegSpec::RIP =>
        {
            Some(0)
        }
        Operand::Disp { base, disp } | Operand::DispMasked { base, disp, .. }
            if base == RegSpec::RIP =>
        {
            Some(disp)
        }
        _ => None,
    })
}

/// Does it hold something that may be an address: where it jumps to or calls, or a constant? Where
/// a branch leads that depends on flags is nothing that anybody looks up.
fn holds(instruction: &Instruction) -> bool {
    let is_constant = |operand| {
        matches!(
            operand,
            Operand::ImmediateI32 { .. }
                | Operand::ImmediateU32 { .. }
                | Operand::ImmediateI64 { .. }
                | Operand::ImmediateU64 { .. }
        )
    };
    !is_conditional(instruction.opcode()) && operands(instruction).any(is_constant)
}

/// Where the displacement stands: what changes it there, and nothing else, changes what is named.
fn displacement_offset(code: &[u8], displacement: i32, found: &Instruction) -> Option<u8> {
    const OTHER: i32 = 0x1234_5678;
    let immediates = [0_usize, 1, 2, 4];
    immediates.into_iter().find_map(|behind| {
        let offset = code.len().checked_sub(4 + behind)?;
        if word(code, offset)? != displacement {
            return None;
        }
        let mut changed = [0; LONGEST];
        changed[..code.len()].copy_from_slice(code);
        let other = displacement ^ OTHER;
        changed[offset..offset + 4].copy_from_slice(&other.to_le_bytes());
        let again = InstDecoder::default()
            .decode_slice(&changed[..code.len()])
            .ok()?;
        let same = again.opcode() == found.opcode() && again.len() == found.len();
        let is_there = same && names_relative(&again) == Some(other);
        is_there.then(|| u8::try_from(offset).ok())?
    })
}

/// Where control goes after it; `next` is behind it.
fn flow(instruction: &Instruction, next: u64) -> Result<Flow, Refused> {
    let target = |operand: Operand| match operand {
        Operand::ImmediateI8 { imm } => Some(next.wrapping_add_signed(i64::from(imm))),
        Operand::ImmediateI32 { imm } => Some(next.wrapping_add_signed(i64::from(imm))),
        _ => None,
    };
    let direct = operands(instruction).next().and_then(target);
    Ok(match instruction.opcode() {
        Opcode::JMP | Opcode::CALL => direct.map_or(Flow::Away, Flow::To),
        opcode if is_conditional(opcode) => Flow::Either(direct.ok_or(Refused::Unknown)?),
        Opcode::RETURN
        | Opcode::RETF
        | Opcode::JMPF
        | Opcode::JMPE
        | Opcode::CALLF
        | Opcode::IRET
        | Opcode::IRETD
        | Opcode::IRETQ
        | Opcode::SYSRET
        | Opcode::SYSEXIT
        | Opcode::XBEGIN
        | Opcode::XABORT
        | Opcode::UD0
        | Opcode::UD1
        | Opcode::UD2 => Flow::Away,
        _ => Flow::On,
    })
}

fn is_conditional(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::JO
            | Opcode::JNO
            | Opcode::JB
            | Opcode::JNB
            | Opcode::JZ
            | Opcode::JNZ
            | Opcode::JA
            | Opcode::JNA
            | Opcode::JS
            | Opcode::JNS
            | Opcode::JP
            | Opcode::JNP
            | Opcode::JL
            | Opcode::JGE
            | Opcode::JLE
            | Opcode::JG
            | Opcode::JRCXZ
            | Opcode::JECXZ
            | Opcode::LOOP
            | Opcode::LOOPZ
            | Opcode::LOOPNZ
    )
}

/// Why it cannot be executed elsewhere, if it cannot.
fn fixed(instruction: &Instruction, code: &[u8]) -> Option<Refused> {
    Some(match instruction.opcode() {
        Opcode::CALL | Opcode::CALLF => Refused::Call,
        Opcode::SYSCALL | Opcode::SYSENTER => Refused::SystemCall,
        Opcode::INT
        | Opcode::INTO
        | Opcode::HLT
        | Opcode::UD0
        | Opcode::UD1
        | Opcode::UD2
        | Opcode::CPUID
        | Opcode::RDTSC
        | Opcode::RDTSCP
        | Opcode::RDPMC
        | Opcode::IN
        | Opcode::OUT
        | Opcode::INS
        | Opcode::OUTS
        | Opcode::CLI
        | Opcode::STI
        | Opcode::XBEGIN
        | Opcode::XEND
        | Opcode::XABORT
        | Opcode::JMPF
        | Opcode::JMPE
        | Opcode::RETF
        | Opcode::IRET
        | Opcode::IRETD
        | Opcode::IRETQ
        | Opcode::SYSRET
        | Opcode::SYSEXIT => Refused::Traps,
        _ if names_eip(instruction) => Refused::Unknown,
        _ => match opcode_byte(code)? {
            0xd8..=0xdf | 0x9b => Refused::X87,
            0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf if is_repeated(instruction) => {
                Refused::Repeated
            }
            0xcc | 0xcd | 0xf1 => Refused::Traps,
            _ => return None,
        },
    })
}

/// Does it name memory relative to half of the instruction pointer?
fn names_eip(instruction: &Instruction) -> bool {
    operands(instruction).any(|operand| {
        matches!(
            operand,
            Operand::MemDeref { base }
                | Operand::MemDerefMasked { base, .. }
                | Operand::Disp { base, .. }
                | Operand::DispMasked { base, .. }
                if base.class() == register_class::EIP
        )
    })
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.prefixes.rep_any()
}

/// The first byte behind the prefixes.
fn opcode_byte(code: &[u8]) -> Option<u8> {
    let is_prefix = |byte: &u8| {
        let legacy = matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        );
        legacy || matches!(byte, 0x40..=0x4f)
    };
    code.iter().copied().find(|byte| !is_prefix(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x5000_0000;

    /// The same instruction elsewhere, decoded again.
    fn moved(code: &[u8], to: u64) -> Result<(Instruction, Vec<u8>), Refused> {
        let found = Decoded::new(code, AT)?;
        assert_eq!(usize::from(found.len), code.len(), "{code:x?}");
        let mut out = [0; LONGEST_MOVED];
        let moved = found.moved(code, AT, to, &mut out)?;
        let bytes = out[..usize::from(moved.len)].to_vec();
        let again = InstDecoder::default().decode_slice(&bytes);
        Ok((again.expect("an instruction"), bytes))
    }

    #[test]
    fn what_is_named_relative_to_the_pointer_stays_the_same() {
        // Loads and stores with immediates of all lengths behind the displacement, and one of AVX.
        let all: [&[u8]; 6] = [
            &[0x48, 0x8b, 0x05, 0x10, 0x20, 0x30, 0x00],
            &[0xc6, 0x05, 0x10, 0x20, 0x30, 0x00, 0x10],
            &[0x66, 0x81, 0x3d, 0x10, 0x20, 0x30, 0x00, 0x10, 0x20],
            &[0x81, 0x3d, 0x10, 0x20, 0x30, 0x00, 0x10, 0x20, 0x30, 0x00],
            &[0xc5, 0xfd, 0x6f, 0x05, 0xf0, 0xff, 0xff, 0xff],
            &[0xff, 0x25, 0x00, 0x00, 0x00, 0x00],
        ];
        for code in all {
            let len = code.len() as u64;
            let plain = InstDecoder::default().decode_slice(code).expect("code");
            let named = |found: &Instruction, at: u64| {
                let displacement = names_relative(found).expect("relative");
                (at + len).wrapping_add_signed(i64::from(displacement))
            };
            for to in [AT - 0x123_4567, AT + 0x7000_0000] {
                let (again, bytes) = moved(code, to).expect("moved");
                assert_eq!(named(&again, to), named(&plain, AT), "{code:x?}");
                assert_eq!(again.opcode(), plain.opcode());
                let differing = bytes.iter().zip(code).filter(|(one, other)| one != other);
                assert!(differing.count() <= 4, "the displacement only");
            }
            let far = moved(code, AT + 0x1_0000_0000);
            assert_eq!(far.map(|(_, bytes)| bytes), Err(Refused::OutOfReach));
        }
    }

    #[test]
    fn branches_lead_to_where_they_led() {
        let all: [(&[u8], u64); 4] = [
            (&[0x74, 0x10], AT + 0x12),
            (&[0x0f, 0x8f, 0, 1, 0, 0], AT + 0x106),
            (&[0xeb, 0xfe], AT),
            (&[0xe9, 0, 1, 0, 0], AT + 0x105),
        ];
        for (code, target) in all {
            let to = AT + 0x10_0000;
            let (_, bytes) = moved(code, to).expect("moved");
            let flow = Decoded::new(&bytes, to).expect("code").flow;
            assert!(
                flow == Flow::To(target) || flow == Flow::Either(target),
                "{code:x?}"
            );
        }
        let (_, bytes) = moved(&[0xe3, 0x10], AT + 0x1000).expect("moved");
        assert_eq!(bytes[..5], [0xe3, 2, 0xeb, 5, 0xe9]);
        let jump = Decoded::new(&bytes[4..], AT + 0x1004).expect("code");
        assert_eq!(jump.flow, Flow::To(AT + 0x12));
    }

    #[test]
    fn what_leaves_its_address_behind_is_fixed() {
        let all: [(&[u8], Refused); 6] = [
            (&[0xff, 0xd0], Refused::Call),
            (&[0xdd, 0x00], Refused::X87),
            (&[0xf3, 0x48, 0xab], Refused::Repeated),
            (&[0x0f, 0x31], Refused::Traps),
            (&[0xf4], Refused::Traps),
            (&[0x67, 0x8b, 0x05, 0, 0, 0, 0], Refused::Unknown),
        ];
        for (code, why) in all {
            let refused = moved(code, AT + 0x1000).map(|(_, bytes)| bytes);
            assert_eq!(refused, Err(why), "{code:x?}");
        }
        // One that is not repeated, and a prefix that means something else.
        assert!(moved(&[0xaa], AT + 0x1000).is_ok());
        assert!(moved(&[0xf3, 0x0f, 0x10, 0xc1], AT + 0x1000).is_ok());
    }
}

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

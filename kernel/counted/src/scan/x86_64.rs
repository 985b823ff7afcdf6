//! Instructions of x86-64.

use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction};

use super::{BRANCH, FAR, Found, NO_CODE, REGISTER};
use crate::Arch;

/// What counts, without the place of the one that it adds, which follows.
const COUNT: [u8; 5] = [0x66, 0x44, 0x0f, 0xd4, 0x3d];
/// Its bytes.
const COUNT_BYTES: usize = COUNT.len() + 4;

/// What stands against it that this code is counted.
pub(super) fn find(start: u64, code: &[u8]) -> Option<Found> {
    let decoder = InstDecoder::default();
    let (mut at, mut counted) = (0, false);
    while at < code.len() {
        let place = start + at as u64;
        let Ok(instruction) = decoder.decode_slice(&code[at..]) else {
            return Some((place, NO_CODE));
        };
        let bytes = usize::try_from(instruction.len().to_const()).expect("few");
        let counts = bytes == COUNT_BYTES && code[at..].starts_with(&COUNT);
        if let Some(what) = look(&instruction, counts, counted) {
            return Some((place, what));
        }
        counted = counts;
        at += bytes;
    }
    None
}

fn look(instruction: &Instruction, counts: bool, counted: bool) -> Option<&'static str> {
    let mnemonic = instruction.opcode().to_string();
    if leaves(&mnemonic) {
        return Some(FAR);
    }
    if is_branch(&mnemonic) {
        return (!counted).then_some(BRANCH);
    }
    // Most instructions have no operand of the kind.
    let used = || !counts && Arch::X86_64.takes_register(&instruction.to_string());
    (writes_all(&mnemonic) || used()).then_some(REGISTER)
}

/// Does it write all vector registers, and names none?
fn writes_all(mnemonic: &str) -> bool {
    let begins = |word| mnemonic.starts_with(word);
    begins("fxrstor") || begins("xrstor") || mnemonic == "vzeroall"
}

/// Is it a branch, a call or a return within the program?
fn is_branch(mnemonic: &str) -> bool {
    let begins = |word| mnemonic.starts_with(word);
    begins("j") || begins("loop") || ["call", "ret"].contains(&mnemonic)
}

/// Does it go elsewhere in a way that no compiler has a program go?
fn leaves(mnemonic: &str) -> bool {
    let begins = |word| mnemonic.starts_with(word);
    let far = ["callf", "jmpf", "retf", "sysret", "sysexit", "xbegin"];
    begins("iret") || far.contains(&mnemonic)
}

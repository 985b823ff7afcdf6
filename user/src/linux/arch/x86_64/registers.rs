//! Registers of a thread.

use super::identity;
use crate::linux::Machine;

/// Words of a thread's registers: rax, rbx, rcx, rdx, rsi, rdi, rbp, r8 to r15, rip, flags, rsp.
pub const CALL_WORDS: usize = 18;
/// Words of a thread's floating-point state, as `fxsave` stores it.
pub const FLOAT_WORDS: usize = 64;
/// Where a call's number and its answer are among them.
const AX: usize = 0;
/// Where the next instruction, the flags and the stack pointer are.
pub(crate) const IP: usize = 15;
/// See [`IP`].
pub(super) const STATUS: usize = 16;
/// See [`IP`].
pub(crate) const SP: usize = 17;
/// The flags of a program that begins.
pub(crate) const FIRST_STATUS: (usize, u64) = (STATUS, 0x202);

/// Bytes of the instruction that makes a call.
pub(crate) const CALL_BYTES: u64 = 2;
/// What the processor is called.
pub(crate) const MACHINE: &[u8] = b"x86_64";
/// A floating-point state that is not zero there: all exceptions masked.
const FIRST_FLOATS: [(usize, u64); 2] = [(0, 0x037f), (3, 0x1f80)];

/// The floating-point state that programs and handlers begin with.
pub(crate) fn first_floats() -> [u64; FLOAT_WORDS] {
    let mut floats = [0; FLOAT_WORDS];
    for (index, word) in FIRST_FLOATS {
        floats[index] = word;
    }
    floats
}

/// Has a thread make its call again, which has this number.
pub(crate) const fn call_again(registers: &mut [u64; CALL_WORDS], number: u64) {
    registers[IP] = registers[IP].wrapping_sub(CALL_BYTES);
    registers[AX] = number;
}

/// Says where a thread's own data is: by a pointer that is no register of its calls.
pub(crate) const fn set_pointer(
    pointers: &mut [u64; 2],
    _registers: &mut [u64; CALL_WORDS],
    pointer: u64,
) {
    pointers[0] = pointer;
}

/// What a program is told that the processor has (`AT_HWCAP`).
pub(crate) fn features(machine: &impl Machine) -> u64 {
    let [_, _, _, features] = identity::of(machine, 1, 0);
    features.into()
}

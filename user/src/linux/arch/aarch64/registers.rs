//! Registers of a thread.

use crate::linux::Machine;

/// Words of a thread's registers: x0 to x30, then instruction pointer, processor state, stack
/// pointer, and the thread's own register (`tpidr_el0`).
pub const CALL_WORDS: usize = 35;
/// Words of a thread's floating-point state: 32 registers of two words, control, status.
pub const FLOAT_WORDS: usize = 66;
/// Where the next instruction, the state and the stack pointer are among them.
pub(crate) const IP: usize = 31;
/// See [`IP`].
pub(super) const STATUS: usize = 32;
/// See [`IP`].
pub(crate) const SP: usize = 33;
/// Where the frame of a function and its way back are.
pub(super) const FRAME: usize = 29;
pub(super) const LINK: usize = 30;
/// The thread's own register.
const OWN: usize = 34;
/// The state of a program that begins.
pub(crate) const FIRST_STATUS: (usize, u64) = (STATUS, 0);

/// Bytes of an instruction.
pub(crate) const CALL_BYTES: u64 = 4;
/// What the processor is called.
pub(crate) const MACHINE: &[u8] = b"aarch64";

/// What any processor has that the programs of the image run on, by its bit: floating point,
/// vectors, checksums, atomic instructions, multiplication with rounding.
pub(super) const FEATURES: [(u32, &str); 5] = [
    (0, "fp"),
    (1, "asimd"),
    (7, "crc32"),
    (8, "atomics"),
    (12, "asimdrdm"),
];

/// The floating-point state that programs and handlers begin with.
pub(crate) const fn first_floats() -> [u64; FLOAT_WORDS] {
    [0; FLOAT_WORDS]
}

/// Has a thread make its call again: number and arguments are where they were.
pub(crate) const fn call_again(registers: &mut [u64; CALL_WORDS], _number: u64) {
    registers[IP] = registers[IP].wrapping_sub(CALL_BYTES);
}

/// Says where a thread's own data is: by one of its registers.
pub(crate) const fn set_pointer(
    _pointers: &mut [u64; 2],
    registers: &mut [u64; CALL_WORDS],
    pointer: u64,
) {
    registers[OWN] = pointer;
}

/// What a program is told that the processor has (`AT_HWCAP`). That it may ask the processor itself
/// is not among it.
pub(crate) fn features(_machine: &impl Machine) -> u64 {
    FEATURES.iter().fold(0, |all, (bit, _)| all | 1 << bit)
}

//! AArch64: contexts and page table entries.

use rcoe_abi::Rights;

use crate::field;

/// Words of a thread's registers: general ones x0 to x30, then instruction pointer, processor
/// state, stack pointer, and the thread's own register (`tpidr_el0`).
pub const CONTEXT_WORDS: usize = 35;
/// Words of what stays in the processor until another thread runs: of the floating-point state 32
/// registers of two words, control, status; then whether it steps (`mdscr_el1`).
pub const FPU_WORDS: usize = 67;
/// Words of the floating-point state itself, which come first.
pub const FLOAT_WORDS: usize = 66;

/// Register that holds a system call's number: x8.
pub const NUMBER: usize = 8;
/// Register for a capability pointer or a badge: x0.
pub const CAP: usize = 0;
/// Register for a message's label and length: x1.
pub const INFO: usize = 1;
/// Registers for the first words of a message: x2 to x5.
pub const MESSAGE: [usize; 4] = [2, 3, 4, 5];
/// Registers for the arguments of another system's calls, whose number is where ours is: x0 to x5.
pub const CALL_ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
/// Registers for the arguments of a thread's first function: x0, x1.
pub const ARGUMENTS: [usize; 2] = [0, 1];
/// Bytes of the instruction that makes a system call.
pub const CALL_BYTES: u64 = 4;
/// Instruction pointer.
pub const IP: usize = 31;
/// Stack pointer.
pub const SP: usize = 33;

/// Words of a thread that say where its own data is: its own register.
pub const POINTERS: [usize; 1] = [34];

/// The processor's state.
pub const STATUS: usize = 32;
/// In it: one more instruction is executed before the exception that ends a step. The processor
/// clears it, so what remains to be done is the same wherever an interrupt comes.
pub const STEP: u64 = 1 << 21;
/// The exception that ends a step.
pub const STEP_VECTOR: u64 = 0x32;
/// The word of a thread that is 1 while it steps, for the processor.
pub const STEPPING: Option<usize> = Some(field::FPU + 66);
/// Bits of the state that nobody but the kernel sets.
pub const KERNEL_BITS: u64 = STEP;
/// What the kernel does not clear of the processor's state at an exit, because it would be at
/// another instruction in each replica: what a thread sets for itself (four conditions, and one
/// that is about speculation), and what is left of a step. All else is zero: no privileges, nothing
/// masked, 64 bits.
const OWN_STATE: u64 = 0xf << 28 | 1 << 12 | STEP;

/// Words of the floating-point state that are not zero at a thread's start: none.
pub const FPU_START: [(usize, u64); 0] = [];

/// Can the processor hold a floating-point state with these words? It holds any: what it does not
/// know of control and status it ignores.
pub fn holds_floats(_word: impl Fn(usize) -> u64) -> bool {
    true
}

/// Bytes of an instruction at most.
pub const CODE_BYTES: usize = 4;

/// No instruction repeats itself.
#[must_use]
pub const fn repetition(_code: &[Option<u8>; CODE_BYTES]) -> Option<u64> {
    None
}

/// Levels of page tables.
pub const LEVELS: usize = 4;
/// Entries of a table.
pub const ENTRIES: usize = 512;
/// The entry of a root table that marks it as one. The kernel has its own half of the address
/// space, so it leads nowhere.
pub const KERNEL_ENTRY: usize = 511;

const PRESENT: u64 = 1;
/// A table, or a page on the lowest level; without it, memory above that level.
const NEXT: u64 = 1 << 1;
/// The second kind of memory that the kernel sets: registers, neither cached nor written late.
const REGISTERS: u64 = 1 << 2;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const SHAREABLE: u64 = 0b11 << 8;
/// As if it had been used: the processor need not tell.
const ACCESS: u64 = 1 << 10;
/// The entry is of one address space only.
const OWN: u64 = 1 << 11;
const NO_KERNEL_EXECUTE: u64 = 1 << 53;
const NO_USER_EXECUTE: u64 = 1 << 54;
/// A bit that the processor leaves to us: what is read only until the first write is noted.
const WATCHED: u64 = 1 << 55;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// Makes a context harmless: a thread runs with interrupts on and no privileges, whatever somebody
/// wrote there.
pub fn start(context: &mut [u64; CONTEXT_WORDS]) {
    context[STATUS] &= OWN_STATE;
}

/// Which entry of a table of `level` (0 maps pages) leads to `address`.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "nine bits")]
pub const fn index(address: u64, level: usize) -> usize {
    (address >> (12 + 9 * level)) as usize & (ENTRIES - 1)
}

/// The entry that leads to another table.
#[must_use]
pub const fn table(physical: u64) -> u64 {
    physical & ADDRESS | PRESENT | NEXT
}

/// The entry that maps a page.
#[must_use]
pub const fn leaf(physical: u64, rights: Rights) -> u64 {
    let mut entry = physical & ADDRESS | PRESENT | NEXT | USER | SHAREABLE | ACCESS | OWN;
    if !rights.contains(Rights::WRITE) {
        entry |= READ_ONLY;
    }
    if !rights.contains(Rights::EXECUTE) {
        entry |= NO_USER_EXECUTE;
    }
    entry | NO_KERNEL_EXECUTE
}

/// The entry above the lowest level that maps memory itself: as much as a table there would.
#[must_use]
pub const fn large_leaf(physical: u64, rights: Rights) -> u64 {
    leaf(physical, rights) & !NEXT
}

/// As [`leaf`], of a page of registers, for reading.
#[must_use]
pub const fn register_leaf(physical: u64) -> u64 {
    leaf(physical, Rights::READ) | REGISTERS
}

/// Does the entry lead anywhere?
#[must_use]
pub const fn is_present(entry: u64) -> bool {
    entry & PRESENT != 0
}

/// Does an entry above the lowest level lead to another table?
#[must_use]
pub const fn is_table(entry: u64) -> bool {
    entry & (PRESENT | NEXT) == PRESENT | NEXT
}

/// Does it let programs write?
#[must_use]
pub const fn is_writable(entry: u64) -> bool {
    entry & READ_ONLY == 0 || entry & WATCHED != 0
}

/// If programs may have written what it maps: the entry by which it is noted when they do so again.
#[must_use]
pub const fn unwritten(entry: u64) -> Option<u64> {
    if entry & READ_ONLY == 0 {
        Some(entry | READ_ONLY | WATCHED)
    } else {
        None
    }
}

/// The entry of a page that a program has written.
#[cfg(test)]
pub(crate) const fn written(entry: u64) -> u64 {
    unused(entry)
}

/// If it kept a program from writing only for that to be noted: the entry that lets it.
#[must_use]
pub const fn noted(entry: u64) -> Option<u64> {
    if entry & WATCHED != 0 {
        Some(entry & !(READ_ONLY | WATCHED))
    } else {
        None
    }
}

/// The entry as it was written. The processor sets nothing in it, so it is the kernel that has a
/// first write noted.
#[must_use]
pub const fn unused(entry: u64) -> u64 {
    match noted(entry) {
        Some(entry) => entry,
        None => entry,
    }
}

/// Where it leads.
#[must_use]
pub const fn physical(entry: u64) -> u64 {
    entry & ADDRESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_hold_address_and_rights() {
        let entry = leaf(0x12_3000, Rights::READ);
        assert_eq!((physical(entry), is_present(entry)), (0x12_3000, true));
        assert_eq!(
            entry & (READ_ONLY | NO_USER_EXECUTE),
            READ_ONLY | NO_USER_EXECUTE
        );
        assert!(!is_writable(entry) && is_writable(leaf(0x1000, Rights::READ_WRITE)));
        let code = leaf(0x1000, Rights::READ.or(Rights::EXECUTE));
        assert_eq!(code & (READ_ONLY | NO_USER_EXECUTE), READ_ONLY);
        assert_eq!(physical(table(0x5000)), 0x5000);
        assert_eq!(unused(entry), entry);
        assert_eq!(index(0x7fff_f000, 0), 511);
        let large = large_leaf(0x4020_0000, Rights::READ);
        assert_eq!((physical(large), is_present(large)), (0x4020_0000, true));
        assert!(is_table(table(0x5000)) && !is_table(large) && !is_table(0));
        assert!(!is_writable(large) && is_writable(large_leaf(0, Rights::READ_WRITE)));
        assert_eq!(index(0x1_0000_0000, 2), 4);
    }

    #[test]
    fn the_first_write_is_noted() {
        let entry = leaf(0x1000, Rights::READ_WRITE);
        let watched = unwritten(entry).expect("it can be written");
        assert_eq!(watched & READ_ONLY, READ_ONLY);
        assert!(is_writable(watched) && physical(watched) == 0x1000);
        assert_eq!((unwritten(watched), noted(watched)), (None, Some(entry)));
        assert_eq!((unused(watched), noted(entry)), (entry, None));
        assert_eq!((written(watched), written(entry)), (entry, entry));
        assert_eq!(unwritten(leaf(0x1000, Rights::READ)), None);
    }

    #[test]
    fn no_program_runs_where_the_kernel_would() {
        for rights in 0..16 {
            let entry = leaf(0x1000, Rights::from_word(rights));
            assert_ne!(entry & NO_KERNEL_EXECUTE, 0, "{rights}");
            assert_ne!(entry & USER, 0, "{rights}");
            let large = large_leaf(0x20_0000, Rights::from_word(rights));
            assert_ne!(large & NO_KERNEL_EXECUTE, 0, "{rights}");
        }
    }

    #[test]
    fn nobody_gives_himself_privileges() {
        let mut context = [u64::MAX; CONTEXT_WORDS];
        start(&mut context);
        // Neither another level nor 32 bits, nor anything masked.
        assert_eq!(context[STATUS], 0xf << 28 | 1 << 21 | 1 << 12);
    }
}

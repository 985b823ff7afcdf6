//! AArch64: contexts and page table entries.

pub mod exclusive;

use rcoe_abi::{Rights, guest};

use crate::field;

/// Words of a thread's registers: general ones x0 to x30, then instruction pointer, processor
/// state, stack pointer, and the thread's own register (`tpidr_el0`).
pub const CONTEXT_WORDS: usize = 35;
/// Words of what stays in the processor until another thread runs: of the floating-point state 32
/// registers of two words, control, status; then whether it steps (`mdscr_el1`), whether it is a
/// virtual processor, and what it has as one.
pub const FPU_WORDS: usize = GUEST_FIRST + GUEST_WORDS;
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
/// The word of a thread that is 1 if it is a virtual processor.
pub const GUEST: Option<usize> = Some(field::FPU + 67);
/// Where what it has as one begins among the words that stay in the processor, and how many words
/// that are.
pub const GUEST_FIRST: usize = 68;
/// See [`GUEST_FIRST`].
pub const GUEST_WORDS: usize = guest::WORDS;
/// Words of a virtual processor that are not zero at its start: no translation, no caches.
pub const GUEST_START: [(usize, u64); 1] = [(guest::Word::Control as usize, 0x30d0_0800)];

/// Bits of the state that nobody but the kernel sets.
pub const KERNEL_BITS: u64 = STEP;
/// What the kernel does not clear of the processor's state at an exit, because it would be at
/// another instruction in each replica: what a thread sets for itself (four conditions, and one
/// that is about speculation), and what is left of a step. All else is zero: no privileges, nothing
/// masked, 64 bits.
const OWN_STATE: u64 = 0xf << 28 | 1 << 12 | STEP;
/// The same for a virtual processor, which has level 1 too, and what is masked there.
const GUEST_STATE: u64 = OWN_STATE | 0xf << 20 | 0xf << 6 | LEVEL_1 | OWN_STACK;
/// It is on level 1, not 0; and there with that level's own stack.
const LEVEL_1: u64 = 1 << 2;
const OWN_STACK: u64 = 1;

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
/// The entry of a root table that marks it as that of a guest's space. It leads nowhere: only the
/// first entry of such a table leads anywhere.
pub const GUEST_ENTRY: usize = 510;
/// What stands there.
pub const GUEST_MARK: u64 = 2;

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
/// Another one: the entry is of a guest's space, where some bits have another meaning.
const OF_GUEST: u64 = 1 << 56;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// In entries of a guest's space: ordinary memory, unless the guest says otherwise; it can be read;
/// it can be written, where the same bit of other entries says that it cannot.
const GUEST_MEMORY: u64 = 0xf << 2;
const GUEST_READ: u64 = 1 << 6;
const GUEST_WRITE: u64 = READ_ONLY;

/// Makes a context harmless: a thread runs with interrupts on and no privileges, whatever somebody
/// wrote there.
pub fn start(context: &mut [u64; CONTEXT_WORDS]) {
    context[STATUS] &= OWN_STATE;
}

/// The same for the context of a virtual processor: it runs on level 1 or 0.
pub fn start_guest(context: &mut [u64; CONTEXT_WORDS]) {
    context[STATUS] &= GUEST_STATE;
    if context[STATUS] & LEVEL_1 == 0 {
        // There is no such state.
        context[STATUS] &= !OWN_STACK;
    }
}

/// Can a virtual processor have these words? All registers but one are its own affair.
pub fn holds_guest(word: impl Fn(usize) -> u64) -> bool {
    word(guest::Word::Lines as usize) <= 1
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

/// The entry that maps in a guest's space what this one maps in a program's.
#[must_use]
pub const fn of_guest(leaf: u64) -> u64 {
    let kept = leaf & (ADDRESS | PRESENT | NEXT | SHAREABLE | ACCESS | NO_USER_EXECUTE);
    let entry = kept | OF_GUEST | GUEST_MEMORY | GUEST_READ;
    if is_writable(leaf) {
        entry | GUEST_WRITE
    } else {
        entry
    }
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
    can_write(entry) || entry & WATCHED != 0
}

/// Does it let programs write right now?
const fn can_write(entry: u64) -> bool {
    let bit = entry & READ_ONLY != 0;
    bit == (entry & OF_GUEST != 0)
}

/// If programs may have written what it maps: the entry by which it is noted when they do so again.
#[must_use]
pub const fn unwritten(entry: u64) -> Option<u64> {
    if can_write(entry) {
        Some(entry ^ READ_ONLY | WATCHED)
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
        Some((entry ^ READ_ONLY) & !WATCHED)
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
    fn entries_of_a_guest_have_the_rights_of_a_programs() {
        for rights in [
            Rights::READ,
            Rights::READ_WRITE,
            Rights::READ.or(Rights::EXECUTE),
            Rights::ALL,
        ] {
            for own in [leaf(0x12_3000, rights), large_leaf(0x4020_0000, rights)] {
                let entry = of_guest(own);
                assert_eq!(physical(entry), physical(own));
                assert_eq!(is_table(entry), is_table(own), "of the same level");
                assert_eq!(is_writable(entry), rights.contains(Rights::WRITE));
                let executes = entry & (NO_USER_EXECUTE | NO_KERNEL_EXECUTE) == 0;
                assert_eq!(executes, rights.contains(Rights::EXECUTE));
                // As the processor reads it: memory kind, read, write, shared, used.
                assert_eq!(entry >> 2 & 0xf, 0xf);
                assert_eq!(entry >> 6 & 1, 1);
                assert_eq!(entry >> 7 & 1 == 1, rights.contains(Rights::WRITE));
                assert_eq!(entry & (SHAREABLE | ACCESS), SHAREABLE | ACCESS);
                assert_eq!(entry & OWN, 0, "a bit that must be zero there");
            }
        }
    }

    #[test]
    fn the_first_write_of_a_guest_is_noted() {
        let entry = of_guest(leaf(0x1000, Rights::ALL));
        let watched = unwritten(entry).expect("it can be written");
        assert_eq!(
            watched & GUEST_WRITE,
            0,
            "the processor sees no right to write"
        );
        assert!(is_writable(watched) && physical(watched) == 0x1000);
        assert_eq!((unwritten(watched), noted(watched)), (None, Some(entry)));
        assert_eq!((unused(watched), noted(entry)), (entry, None));
        let constant = of_guest(leaf(0x1000, Rights::READ));
        assert_eq!((unwritten(constant), is_writable(constant)), (None, false));
    }

    #[test]
    fn a_virtual_processor_stays_below_the_kernel() {
        let levels = |status| {
            let mut context = [0; CONTEXT_WORDS];
            context[STATUS] = status;
            start_guest(&mut context);
            context[STATUS] & 0x1f
        };
        // Level 0, level 1 with either stack; what there is not, and levels 2 and 3.
        assert_eq!([0, 4, 5].map(levels), [0, 4, 5]);
        assert_eq!([1, 8, 9, 12, 13, 16, 31].map(levels), [0, 0, 0, 4, 5, 0, 5]);
        let mut context = [u64::MAX; CONTEXT_WORDS];
        start_guest(&mut context);
        // It masks what it likes to.
        assert_eq!(context[STATUS] >> 6 & 0xf, 0xf);
    }

    #[test]
    fn a_virtual_processor_has_one_line_that_is_up_or_down() {
        for (line, holds) in [(0, true), (1, true), (2, false), (u64::MAX, false)] {
            let lines = guest::Word::Lines as usize;
            let word = |index| if index == lines { line } else { u64::MAX };
            assert_eq!(holds_guest(word), holds, "{line}");
        }
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

//! x86-64: contexts and page table entries.

use rcoe_abi::{Rights, guest};

use crate::field;

/// Words of a thread's registers: general ones in the order rax, rbx, rcx, rdx, rsi, rdi, rbp, r8
/// to r15, then rip, rflags and rsp.
pub const CONTEXT_WORDS: usize = 18;
/// Words of what stays in the processor until another thread runs: the floating-point state
/// (`fxsave`), the bases of FS and GS, and four segment selectors in one word.
pub const FPU_WORDS: usize = 67;
/// Words of the floating-point state itself, which come first.
pub const FLOAT_WORDS: usize = 64;

/// Register that holds a system call's number.
pub const NUMBER: usize = 0;
/// Register for a capability pointer or a badge.
pub const CAP: usize = 5;
/// Register for a message's label and length.
pub const INFO: usize = 4;
/// Registers for the first words of a message: r10, r8, r9, r12.
pub const MESSAGE: [usize; 4] = [9, 7, 8, 11];
/// Registers for the arguments of another system's calls, whose number is where ours is: rdi, rsi,
/// rdx, r10, r8, r9.
pub const CALL_ARGUMENTS: [usize; 6] = [5, 4, 3, 9, 7, 8];
/// Registers for the arguments of a thread's first function: rdi, rsi.
pub const ARGUMENTS: [usize; 2] = [5, 4];
/// Bytes of the instruction that makes a system call.
pub const CALL_BYTES: u64 = 2;
/// Instruction pointer.
pub const IP: usize = 15;
/// Stack pointer.
pub const SP: usize = 17;

/// Words of a thread that say where its own data is: the bases of FS and GS.
pub const POINTERS: [usize; 2] = [field::FPU + 64, field::FPU + 65];

/// The flags.
pub const STATUS: usize = 16;
/// In them: an exception follows the next instruction.
pub const STEP: u64 = 1 << 8;
/// That exception.
pub const STEP_VECTOR: u64 = 1;
/// The word of a thread that is 1 while it steps, for the processor: the flags are enough.
pub const STEPPING: Option<usize> = None;
/// The word of a thread that is 1 if it is a virtual processor: none is.
pub const GUEST: Option<usize> = None;
/// Where what it had as one would begin, and how many words that would be.
pub const GUEST_FIRST: usize = FPU_WORDS;
/// See [`GUEST_FIRST`].
pub const GUEST_WORDS: usize = guest::WORDS;
/// Words of a virtual processor that are not zero at its start.
pub const GUEST_START: [(usize, u64); 0] = [];
/// In the flags: the instruction is executed again after a fault, so no breakpoint stops it.
pub const RESUME: u64 = 1 << 16;
/// Bits of the flags that nobody but the kernel sets: a thread's own instruction can set the first,
/// and is told of it once.
pub const KERNEL_BITS: u64 = STEP | RESUME;
/// Interrupts enabled, and the bit that is always set.
const START_FLAGS: u64 = 0x202;
/// Flags that the kernel does not clear at an exit, because it would be at another instruction in
/// each replica: those that a thread can set for itself, which are carry to overflow, stepping,
/// nested tasks and identification, and what the processor notes for a fault. All but alignment
/// checks: those would let the kernel reach programs' memory.
const OWN_FLAGS: u64 = 0xcd5 | STEP | 1 << 14 | RESUME | 1 << 21;

/// Words of the floating-point state that are not zero at a thread's start: all exceptions masked.
pub const FPU_START: [(usize, u64); 2] = [(0, 0x037f), (3, 0x1f80)];

/// Can the processor hold a floating-point state with these words? Restoring another one is a fault
/// of the kernel: of what says how vectors are computed with, most bits have to be zero.
pub fn holds_floats(word: impl Fn(usize) -> u64) -> bool {
    word(3) & 0xffff_0000 == 0
}

/// Bytes of an instruction at most.
pub const CODE_BYTES: usize = 15;

/// Bytes of the instruction that begins this code, if it is one that repeats itself: `rep` before
/// one about strings.
#[must_use]
pub fn repetition(code: &[Option<u8>; CODE_BYTES]) -> Option<u64> {
    const PREFIXES: [u8; 9] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0];
    let mut repeats = false;
    for (at, &byte) in code.iter().enumerate() {
        match byte? {
            0xf2 | 0xf3 => repeats = true,
            // Of several such bytes only one right before the operation counts.
            0x40..=0x4f => {}
            0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf if repeats => return Some(at as u64 + 1),
            prefix if PREFIXES.contains(&prefix) => {}
            _ => return None,
        }
    }
    None
}

/// Levels of page tables.
pub const LEVELS: usize = 4;
/// Entries of a table.
pub const ENTRIES: usize = 512;
/// The entry of a root table that maps the kernel.
pub const KERNEL_ENTRY: usize = 511;
/// The entry of a root table that would mark it as that of a guest's space, and what would stand
/// there.
pub const GUEST_ENTRY: usize = 510;
/// See [`GUEST_ENTRY`].
pub const GUEST_MARK: u64 = 2;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// Neither cached nor written late.
const UNCACHED: u64 = 1 << 3 | 1 << 4;
/// Above the lowest level: memory, not a table.
const LARGE: u64 = 1 << 7;
/// Bits that the processor sets: the entry was used, the page was written.
const USED: u64 = 1 << 5 | WRITTEN;
const WRITTEN: u64 = 1 << 6;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Makes a context harmless: a thread runs with interrupts on and no privileges, whatever somebody
/// wrote there, and at an address that the processor can have: else the kernel's exit would fault.
pub fn start(context: &mut [u64; CONTEXT_WORDS]) {
    context[STATUS] = context[STATUS] & OWN_FLAGS | START_FLAGS;
    context[IP] = canonical(context[IP]);
}

/// The same for the context of a virtual processor.
///
/// # Panics
/// There is none.
pub fn start_guest(_context: &mut [u64; CONTEXT_WORDS]) {
    unreachable!("no thread is a virtual processor");
}

/// Can a virtual processor have these words?
pub fn holds_guest(_word: impl Fn(usize) -> u64) -> bool {
    false
}

/// The address with these lower 48 bits whose others are like the highest of them.
const fn canonical(address: u64) -> u64 {
    const OTHERS: u32 = 16;
    ((address << OTHERS).cast_signed() >> OTHERS).cast_unsigned()
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
    physical & ADDRESS | PRESENT | WRITABLE | USER
}

/// The entry that maps a page.
#[must_use]
pub const fn leaf(physical: u64, rights: Rights) -> u64 {
    let mut entry = physical & ADDRESS | PRESENT | USER;
    if rights.contains(Rights::WRITE) {
        entry |= WRITABLE;
    }
    if !rights.contains(Rights::EXECUTE) {
        entry |= NO_EXECUTE;
    }
    entry
}

/// The entry above the lowest level that maps memory itself: as much as a table there would.
#[must_use]
pub const fn large_leaf(physical: u64, rights: Rights) -> u64 {
    leaf(physical, rights) | LARGE
}

/// The entry that maps in a guest's space what this one maps in a program's.
///
/// # Panics
/// There is no such space.
#[must_use]
pub fn of_guest(_leaf: u64) -> u64 {
    unreachable!("no space is a guest's");
}

/// As [`leaf`], of a page of registers, for reading.
#[must_use]
pub const fn register_leaf(physical: u64) -> u64 {
    leaf(physical, Rights::READ) | UNCACHED
}

/// Does the entry lead anywhere?
#[must_use]
pub const fn is_present(entry: u64) -> bool {
    entry & PRESENT != 0
}

/// Does an entry above the lowest level lead to another table?
#[must_use]
pub const fn is_table(entry: u64) -> bool {
    entry & (PRESENT | LARGE) == PRESENT
}

/// Does it let programs write?
#[must_use]
pub const fn is_writable(entry: u64) -> bool {
    entry & WRITABLE != 0
}

/// If programs may have written what it maps: the entry by which it is noted when they do so again.
#[must_use]
pub const fn unwritten(entry: u64) -> Option<u64> {
    let written = is_writable(entry) && entry & WRITTEN != 0;
    if written {
        Some(entry & !WRITTEN)
    } else {
        None
    }
}

/// The entry of a page that a program has written.
#[cfg(test)]
pub(crate) const fn written(entry: u64) -> u64 {
    entry | WRITTEN
}

/// If it kept a program from writing only for that to be noted: the entry that lets it. Here the
/// processor notes it.
#[must_use]
pub const fn noted(_entry: u64) -> Option<u64> {
    None
}

/// The entry as it was written, without what the processor has set in it.
#[must_use]
pub const fn unused(entry: u64) -> u64 {
    entry & !USED
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
    fn instructions_that_repeat_themselves_are_known_by_their_length() {
        let length = |bytes: &[u8]| {
            let mut code = [None; CODE_BYTES];
            for (place, &byte) in code.iter_mut().zip(bytes) {
                *place = Some(byte);
            }
            repetition(&code)
        };
        // movsb, stosq, scasb, movsw with addresses of 32 bits
        assert_eq!(length(&[0xf3, 0xa4, 0x90]), Some(2));
        assert_eq!(length(&[0xf3, 0x48, 0xab]), Some(3));
        assert_eq!(length(&[0xf2, 0xae]), Some(2));
        assert_eq!(length(&[0x67, 0x66, 0xf3, 0xa5]), Some(4));
        // movsb once, pause, ret, an addition of vectors, endbr64, and code that is cut off
        for code in [
            &[0xa4][..],
            &[0xf3, 0x90],
            &[0xf3, 0xc3],
            &[0xf3, 0x0f, 0x58, 0xc1],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0xf3],
            &[0xf3; CODE_BYTES],
        ] {
            assert_eq!(length(code), None, "{code:02x?}");
        }
    }

    #[test]
    fn entries_hold_address_and_rights() {
        let entry = leaf(0x12_3000, Rights::READ);
        assert_eq!((physical(entry), is_present(entry)), (0x12_3000, true));
        assert_eq!(entry & (WRITABLE | NO_EXECUTE), NO_EXECUTE);
        let code = leaf(0x1000, Rights::READ.or(Rights::EXECUTE));
        assert_eq!(code & (WRITABLE | NO_EXECUTE), 0);
        assert_eq!(index(0x7fff_f000, 0), 511);
        let large = large_leaf(0x4020_0000, Rights::READ);
        assert_eq!((physical(large), is_present(large)), (0x4020_0000, true));
        assert!(is_table(table(0x5000)) && !is_table(large) && !is_table(0));
        assert!(!is_writable(large) && is_writable(large_leaf(0, Rights::READ_WRITE)));
        assert_eq!(index(0x1_0000_0000, 2), 4);
    }

    #[test]
    fn a_page_counts_as_written_when_the_processor_says_so() {
        let entry = leaf(0x1000, Rights::READ_WRITE);
        assert_eq!(unwritten(entry), None);
        assert_eq!(unwritten(written(entry) | 1 << 5), Some(entry | 1 << 5));
        assert_eq!(unwritten(leaf(0x1000, Rights::READ) | USED), None);
    }

    #[test]
    fn nobody_gives_himself_privileges() {
        let mut context = [u64::MAX; CONTEXT_WORDS];
        start(&mut context);
        assert_eq!(context[IP], u64::MAX);
        // Neither I/O privilege nor other modes, nor the kernel's access to programs.
        assert_eq!(context[STATUS], 0x21_4fd7);
        for (written, kept) in [
            (0x7fff_ffff_f000, 0x7fff_ffff_f000),
            (0x8000_0000_0000, 0xffff_8000_0000_0000),
            (0x1234_0000_0000_1000, 0x1000),
        ] {
            context[IP] = written;
            start(&mut context);
            assert_eq!(context[IP], kept);
        }
    }
}

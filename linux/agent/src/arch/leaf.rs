//! Short work on the program's memory that ends where it meets a bad pointer.
//!
//! Intuition: work of any kind runs under a guard ([`guarded`](crate::arch::entry::guarded)), which
//! keeps all registers that a function may not change, since a fault cuts it short anywhere. For
//! sixty bytes that is as much as the work. The functions here are leaves, written by hand: they
//! change nothing but registers that callers expect to be changed, and do not touch the stack. So
//! whoever finds a fault within them goes on at an instruction that says so and returns.

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicU64;

use rcoe_core::Checksum;

/// What a leaf has found.
#[repr(C)]
pub(crate) struct Found {
    value: u64,
    /// 0, or not if it has met a bad pointer.
    faulted: u64,
}

impl Found {
    /// The same as found by other work, none of it if that has met a bad pointer.
    #[inline]
    pub(crate) fn of(value: Option<u64>) -> Self {
        Self {
            value: value.unwrap_or(0),
            faulted: u64::from(value.is_none()),
        }
    }

    /// The value, if no pointer was bad.
    #[inline(always)]
    pub(crate) fn get(self) -> Option<u64> {
        (self.faulted == 0).then_some(self.value)
    }
}

unsafe extern "C" {
    fn rcoe_leaf_start();
    fn rcoe_leaf_fault();
    fn rcoe_leaf_digest(from: u64, len: u64) -> Found;
    fn rcoe_leaf_copy(to: u64, from: u64, len: u64) -> Found;
    fn rcoe_leaf_half(from: u64) -> Found;
    fn rcoe_leaf_word(from: u64) -> Found;
    /// Not by the rules of C: see [`pair`].
    fn rcoe_leaf_pair();
    fn rcoe_leaf_start_of(from: u64) -> Found;
    fn rcoe_leaf_string_len(from: u64, limit: u64) -> Found;
    /// Not by the rules of C: see [`Room::put`].
    fn rcoe_leaf_put();
}

global_asm!(
    r#"
    .pushsection .text.rcoe_leaf, "ax", @progbits
    .globl rcoe_leaf_start
rcoe_leaf_start:

    // Each lane takes every other word; the last row may meet the one before it. At the end the
    // product of one lane is not turned: the half in which it has most of its words' bits meets the
    // one in which the other lane has fewest.
    .macro product state, word
    xor \state, qword ptr [\word]
    imul \state, r8
    .endm
    .macro lane state, word
    product \state, \word
    rol \state, 32
    .endm
    .macro row at
    lane rax, \at
    lane rdx, \at + 8
    lane rax, \at + 16
    product rdx, \at + 24
    .endm
    .globl rcoe_leaf_digest
    .type rcoe_leaf_digest, @function
rcoe_leaf_digest:
    mov rax, rsi
    movabs r8, 0xbf58476d1ce4e5b9
    mov rdx, r8
    lea rcx, [rdi + rsi - 32]
2:  row rdi
    rol rdx, 32
    add rdi, 32
    cmp rdi, rcx
    jb 2b
    row rcx
    xor rax, rdx
    xor edx, edx
    ret
    .size rcoe_leaf_digest, . - rcoe_leaf_digest

    // The last row may meet the one before it. Changes rdx, too, but no vector registers, which are
    // the program's.
    .macro copy_row
    .irp at, 0,16
    mov rdx, qword ptr [rsi + \at]
    mov r10, qword ptr [rsi + \at + 8]
    mov qword ptr [rdi + \at], rdx
    mov qword ptr [rdi + \at + 8], r10
    .endr
    .endm
    .macro copy_rows last
    lea rax, [rdi + rdx - 32]
    lea r11, [rsi + rdx - 32]
    cmp rdi, rax
    jae \last\()f
2:  copy_row
    add rsi, 32
    add rdi, 32
    cmp rdi, rax
    jb 2b
\last:
    mov rsi, r11
    mov rdi, rax
    copy_row
    .endm

    .globl rcoe_leaf_copy
    .type rcoe_leaf_copy, @function
rcoe_leaf_copy:
    copy_rows 3
    xor edx, edx
    ret
    .size rcoe_leaf_copy, . - rcoe_leaf_copy

    // From the last pair of words to the first. What is compared, from the first to the last, is
    // found by other registers than what is copied. rdx and rsi become the checksum's two sums,
    // which both begin as rcx; rcx is 0 at the end if all was the same.
    .macro compare_word at
    mov rdi, qword ptr [r9 + r11 + \at]
    add rdx, rdi
    xor rdi, qword ptr [r8 + r11 + \at]
    add rsi, rdx
    or rcx, rdi
    .endm
    .globl rcoe_leaf_put
    .type rcoe_leaf_put, @function
rcoe_leaf_put:
    lea r8, [rsi + rdx]
    lea r9, [rdi + rdx]
    mov r11, rdx
    neg r11
2:  mov rax, qword ptr [rsi + rdx - 16]
    mov r10, qword ptr [rsi + rdx - 8]
    mov qword ptr [rdi + rdx - 16], rax
    mov qword ptr [rdi + rdx - 8], r10
    sub rdx, 16
    jnz 2b
    mov rdx, rcx
    mov rsi, rcx
    xor ecx, ecx
4:  compare_word 0
    compare_word 8
    add r11, 16
    jnz 4b
    ret
    .size rcoe_leaf_put, . - rcoe_leaf_put

    .globl rcoe_leaf_half
    .type rcoe_leaf_half, @function
rcoe_leaf_half:
    mov eax, dword ptr [rdi]
    xor edx, edx
    ret
    .size rcoe_leaf_half, . - rcoe_leaf_half

    .globl rcoe_leaf_word
    .type rcoe_leaf_word, @function
rcoe_leaf_word:
    mov rax, qword ptr [rdi]
    xor edx, edx
    ret
    .size rcoe_leaf_word, . - rcoe_leaf_word

    .globl rcoe_leaf_pair
    .type rcoe_leaf_pair, @function
rcoe_leaf_pair:
    mov rax, qword ptr [rdi]
    mov rsi, qword ptr [rdi + 8]
    xor ecx, ecx
    ret
    .size rcoe_leaf_pair, . - rcoe_leaf_pair

    .globl rcoe_leaf_start_of
    .type rcoe_leaf_start_of, @function
rcoe_leaf_start_of:
    mov eax, dword ptr [rdi]
    movzx edx, word ptr [rdi + 4]
    shl rdx, 32
    or rax, rdx
    xor edx, edx
    ret
    .size rcoe_leaf_start_of, . - rcoe_leaf_start_of

    // Words in their places, so that none lies on two pages. In the first one the bytes before the
    // string count as others than NUL. A borrow leads to bits above that of the first NUL only.
    .globl rcoe_leaf_string_len
    .type rcoe_leaf_string_len, @function
rcoe_leaf_string_len:
    movabs r10, 0x0101010101010101
    movabs r11, 0x8080808080808080
    lea ecx, [8 * rdi]
    mov r9, -1
    shl r9, cl
    not r9
    mov r8, rdi
    and r8, -8
    or r9, qword ptr [r8]
2:  mov rdx, r9
    sub rdx, r10
    not r9
    and rdx, r9
    and rdx, r11
    jnz 3f
    add r8, 8
    mov rax, r8
    sub rax, rdi
    cmp rax, rsi
    jae 4f
    mov r9, qword ptr [r8]
    jmp 2b
3:  bsf rax, rdx
    shr eax, 3
    add rax, r8
    sub rax, rdi
4:  cmp rax, rsi
    cmova rax, rsi
    xor edx, edx
    ret
    .size rcoe_leaf_string_len, . - rcoe_leaf_string_len

    .globl rcoe_leaf_fault
    .type rcoe_leaf_fault, @function
rcoe_leaf_fault:
    mov edx, 1
    mov ecx, edx
    ret
    .popsection
    "#
);

/// Where a fault at this instruction goes on, if it is one of a leaf's.
pub(crate) fn landing(rip: u64) -> Option<u64> {
    let end = rcoe_leaf_fault as *const () as u64;
    (rcoe_leaf_start as *const () as u64..end)
        .contains(&rip)
        .then_some(end)
}

/// Lengths that [`digest_of`] is for. The work for longer ones grows faster than that of others.
pub(crate) const DIGESTED: core::ops::RangeInclusive<u64> = 32..=256;

/// Digest of so many bytes of the program, one of [`DIGESTED`]; none if they cannot be read. Each
/// bit of them is in it: it is one to one in each word.
#[inline(always)]
pub(crate) fn digest_of(from: u64, len: u64) -> Found {
    // SAFETY: it only reads, within the range as the length is none of the shorter ones; a bad
    // pointer faults, which leads to the other result.
    unsafe { rcoe_leaf_digest(from, len) }
}

/// Half a word of the program; none if it cannot be read.
#[inline(always)]
pub(crate) fn half(from: u64) -> Option<u64> {
    // SAFETY: it only reads; a bad pointer faults, which leads to the other result.
    unsafe { rcoe_leaf_half(from) }.get()
}

/// A word of the program; none if it cannot be read.
#[inline(always)]
pub(crate) fn word(from: u64) -> Option<u64> {
    // SAFETY: as above.
    unsafe { rcoe_leaf_word(from) }.get()
}

/// Two words of the program; none if they cannot be read.
#[inline(always)]
pub(crate) fn pair(from: u64) -> Option<[u64; 2]> {
    let (first, second, faulted): (u64, u64, u64);
    // SAFETY: it only reads; a bad pointer faults, which leads to another result, and changes rdx.
    // It changes no other registers than these.
    unsafe {
        asm!(
            "call {pair}",
            pair = sym rcoe_leaf_pair,
            in("rdi") from,
            out("rax") first, out("rsi") second, out("rcx") faulted, out("rdx") _,
        );
    }
    (faulted == 0).then_some([first, second])
}

/// The first six bytes of what the program has here, the first one lowest; none if they cannot be
/// read.
#[inline(always)]
pub(crate) fn start(from: u64) -> Option<u64> {
    // SAFETY: it only reads; a bad pointer faults, which leads to the other result.
    unsafe { rcoe_leaf_start_of(from) }.get()
}

/// Length of a terminated string of the program, without its NUL, at most `limit`, which is not 0;
/// none if it cannot be read.
#[inline(always)]
pub(crate) fn string_len(from: u64, limit: u64) -> Option<u64> {
    // SAFETY: as above; no page is touched but those of the string's bytes.
    unsafe { rcoe_leaf_string_len(from, limit) }.get()
}

/// Lengths that [`copy`] is for.
pub(crate) const COPIED: core::ops::RangeInclusive<usize> = 32..=512;

/// Copies so many bytes, one of [`COPIED`], between places of which one is the program's; none if
/// that cannot be.
///
/// # Safety
/// The other one is the caller's.
#[inline]
pub(crate) unsafe fn copy(to: u64, from: u64, len: usize) -> Option<()> {
    // SAFETY: forwarded from the caller; a bad pointer faults, which leads to the other result.
    let Found { faulted, .. } = unsafe { rcoe_leaf_copy(to, from, len as u64) };
    (faulted == 0).then_some(())
}

/// Bytes of two words.
const PAIR: usize = 2 * size_of::<u64>();

/// Cells that nobody reads yet, which hold an even number of words, and as many bytes as [`copy`]
/// is for.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a>(&'a [AtomicU64]);

impl<'a> Room<'a> {
    /// These cells, if they are so many, and hold so many bytes.
    #[inline(always)]
    pub(crate) fn of(cells: &'a [AtomicU64], bytes: usize) -> Option<Self> {
        const PAIRS: core::ops::RangeInclusive<usize> = 2..=32;
        const { assert!(*COPIED.start() == 32 && *COPIED.end() == 512) };
        // What is not a whole pair are the highest bits then.
        let pairs = bytes.rotate_right(PAIR.trailing_zeros());
        (PAIRS.contains(&pairs) && bytes == size_of_val(cells)).then_some(Self(cells))
    }

    /// Copies bytes of the program into the cells, as many as they hold, and compares what is there
    /// then with the program's memory: the checksum of the word `first` and the cells. None if they
    /// differ, or the memory cannot be read.
    #[inline(always)]
    pub(crate) fn put(self, from: u64, first: u64) -> Option<Checksum> {
        let len = size_of_val(self.0) as u64;
        let (different, a, b): (u64, u64, u64);
        // SAFETY: cells may be written through a shared reference, and only this replica writes
        // them; they are as many as the length needs; a bad source faults, which leads to another
        // result. It changes no other registers than these, and of memory only the cells.
        unsafe {
            asm!(
                "call {put}",
                put = sym rcoe_leaf_put,
                inout("rdi") self.0.as_ptr() => _,
                inout("rsi") from => b,
                inout("rdx") len => a,
                inout("rcx") first => different,
                out("rax") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        (different == 0).then(|| Checksum::of_sums(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_in_a_digest() {
        for len in [32, 33, 63, 64, 65, 96, 255, 256] {
            let mut bytes: Vec<u8> = (0..=255).cycle().take(len).collect();
            let digest = |bytes: &[u8]| digest_of(bytes.as_ptr() as u64, bytes.len() as u64).get();
            let healthy = digest(&bytes);
            assert!(healthy.is_some());
            for at in 0..8 * len {
                bytes[at / 8] ^= 1 << (at % 8);
                assert_ne!(digest(&bytes), healthy, "bit {at} of {len} bytes");
                bytes[at / 8] ^= 1 << (at % 8);
            }
            assert_eq!(digest(&bytes), healthy);
        }
        let words: Vec<u64> = (1..=32).map(|at| at * 0x0101_0203).collect();
        for len in [4, 5, 8, 31, 32] {
            let digest = |words: &[u64]| digest_of(words.as_ptr() as u64, 8 * len as u64).get();
            let healthy = digest(&words);
            for (first, second) in (0..len).flat_map(|it| (0..it).map(move |other| (it, other))) {
                let mut other = words.clone();
                other.swap(first, second);
                assert_ne!(
                    digest(&other),
                    healthy,
                    "{first} and {second} of {len} words"
                );
                for bit in 0..64 {
                    let mut other = words.clone();
                    other[first] ^= 1 << bit;
                    other[second] ^= 1 << bit;
                    assert_ne!(digest(&other), healthy, "bit {bit} of {first} and {second}");
                }
            }
        }
        assert_ne!(
            digest_of([0_u64; 9].as_ptr() as u64, 32).get(),
            digest_of([0_u64; 9].as_ptr() as u64, 64).get()
        );
    }

    #[test]
    fn what_is_copied_is_all_there() {
        let source: Vec<u8> = (0..=255).cycle().take(513).collect();
        for len in COPIED {
            let mut target = vec![0_u8; 513];
            // SAFETY: both are as long.
            let done = unsafe { copy(target.as_mut_ptr() as u64, source.as_ptr() as u64, len) };
            assert_eq!(done, Some(()));
            assert_eq!((&target[..len], target[len]), (&source[..len], 0));
        }
    }

    #[test]
    fn a_string_ends_at_its_first_nul_or_at_the_limit() {
        let mut bytes = [0xff_u8; 64];
        bytes[8..16].fill(0x80);
        bytes[16..24].fill(1);
        for from in 0..16 {
            for len in 0..40 {
                let mut bytes = bytes;
                bytes[..from].fill(0);
                bytes[from + len] = 0;
                bytes[from + len + 1] = 0x01;
                let start = bytes[from..].as_ptr() as u64;
                for limit in 1..50 {
                    let expected = Some(limit.min(len as u64));
                    assert_eq!(string_len(start, limit), expected, "{len} at {from}");
                }
            }
        }
    }

    #[test]
    fn words_are_read_where_they_stand() {
        let words = [0x0102_0304_0506_0708_u64, 9, 10];
        let at = words.as_ptr() as u64;
        assert_eq!(half(at), Some(0x0506_0708));
        assert_eq!(half(at + 4), Some(0x0102_0304));
        assert_eq!(word(at), Some(words[0]));
        assert_eq!(pair(at), Some([words[0], 9]));
        assert_eq!(pair(at + 8), Some([9, 10]));
    }

    #[test]
    fn a_start_is_six_bytes() {
        let bytes = *b"abcdefgh";
        let expected = u64::from_le_bytes(*b"abcdef\0\0");
        assert_eq!(start(bytes.as_ptr() as u64), Some(expected));
    }

    #[test]
    fn what_is_put_has_the_checksum_of_the_cells() {
        let source: Vec<u64> = (1..=64).map(|at| at * 0x0101_0203).collect();
        for words in (4..=64).step_by(2) {
            let cells: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
            let room = Room::of(&cells, 8 * words).expect("it is for so many");
            let found = room.put(source.as_ptr() as u64, 9);
            let expected = Checksum::EMPTY.add(9).add_all(&source[..words]);
            assert_eq!(found, Some(expected), "{words} words");
        }
    }

    #[test]
    fn room_is_an_even_number_of_words_and_neither_few_nor_many() {
        let cells: Vec<_> = (0..80).map(AtomicU64::new).collect();
        let fits = |len: &usize| Room::of(&cells[..*len], 8 * *len).is_some();
        assert!((0..80).filter(fits).eq((4..=64).step_by(2)));
        let short = |less: &usize| Room::of(&cells[..8], 64 - *less).is_some();
        assert!((0..64).filter(short).eq([0]));
    }

    #[test]
    fn what_does_not_stay_as_it_was_put_has_no_checksum() {
        let cells: Vec<_> = (0..16).map(AtomicU64::new).collect();
        // Copied over itself, one word on: the source is another one then.
        let from = (&raw const cells[1]) as u64;
        let room = Room::of(&cells[..8], 64).expect("it is for so many");
        assert_eq!(room.put(from, 0), None);
    }
}

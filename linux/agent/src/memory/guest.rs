//! The program's memory: touched only here, and only under a guard.
//!
//! A pointer of the program may be anything. Each access runs guarded, so that a bad one becomes
//! EFAULT, as the kernel would have it, instead of a fault of the agent.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::errno::EFAULT;
use rcoe_core::Checksum;

use crate::arch::bulk;
use crate::arch::digest::Digest;
use crate::arch::entry::{guarded, guarded_with};
use crate::arch::leaf;
use crate::arch::mem_functions::copy_forward;
use crate::convert::low32;

/// The program gave a pointer that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

impl Fault {
    /// The kernel's word for it.
    pub(crate) const RESULT: i64 = -(EFAULT as i64);
}

/// Types every bit pattern of which is a value.
///
/// # Safety
/// Implementors have no padding and no invalid patterns.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u8 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: arrays of such.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: integers without padding between them.
unsafe impl Plain for crate::arch::frames::SigInfo {}
// SAFETY: integers without padding between them.
unsafe impl Plain for crate::arch::frames::UContext {}

fn outcome(result: i64) -> Result<(), Fault> {
    if result == 0 { Ok(()) } else { Err(Fault) }
}

/// Copies out of the program's memory.
pub(crate) fn copy_in(to: &mut [u8], from: u64) -> Result<(), Fault> {
    outcome(guarded_with(
        [to.as_mut_ptr() as u64, from, to.len() as u64, 0],
        copy_bytes,
    ))
}

/// Copies into the program's memory.
pub(crate) fn copy_out(to: u64, from: &[u8]) -> Result<(), Fault> {
    // The source is ours. A destination outside of the agent's window, which `is_agent` keeps
    // programs from naming.
    outcome(guarded_with(
        [to, from.as_ptr() as u64, from.len() as u64, 0],
        copy_bytes,
    ))
}

/// Copies, between places one of which is the program's and the other the caller's.
extern "C" fn copy_bytes(to: u64, from: u64, len: u64, _: u64) -> i64 {
    // SAFETY: callers own the one place; of the program's a bad one faults, which the guard
    // catches.
    unsafe { copy_forward(to as *mut u8, from as *const u8, crate::convert::size(len)) };
    0
}

/// Can the first and the last of these bytes be written? They stay as they are.
pub(crate) fn ends_are_writable(address: u64, len: u64) -> bool {
    let Some(most) = len.checked_sub(1) else {
        return true;
    };
    let Some(last) = address.checked_add(most) else {
        return false;
    };
    let touched = guarded(|| {
        for at in [address, last] {
            // SAFETY: the byte keeps its value, whoever else changes it at the same moment; a bad
            // pointer faults, which the guard catches.
            unsafe { core::arch::asm!("lock or byte ptr [{}], 0", in(reg) at, options(nostack)) };
        }
        0
    });
    touched == 0
}

/// Writes zeroes.
pub(crate) fn fill_zero(mut to: u64, mut len: u64) -> Result<(), Fault> {
    const ZEROES: [u8; 256] = [0; 256];
    while len > 0 {
        let part = len.min(ZEROES.len() as u64);
        copy_out(to, &ZEROES[..crate::convert::size(part)])?;
        to += part;
        len -= part;
    }
    Ok(())
}

/// Copies from one place to another, either of which may be the program's.
pub(crate) fn copy_across(to: u64, from: u64, len: u64) -> Result<(), Fault> {
    outcome(guarded_with([to, from, len, 0], copy_bytes))
}

/// Copies out of the program's memory into published cells that nobody reads yet.
pub(crate) fn copy_to_cells(to: &[AtomicU64], from: u64, len: usize) -> Result<(), Fault> {
    assert!(len <= size_of_val(to));
    // Cells may be written through a shared reference, and only this replica writes them.
    let dest = to.as_ptr() as u64;
    outcome(guarded_with([dest, from, len as u64, 0], copy_bytes))
}

/// Copies out of the program's memory into published cells that nobody reads yet, and compares what
/// is there then with the program's memory, zeroes after its last byte: the checksum of the word
/// `first` and the cells. None if they differ, or the memory cannot be read.
pub(crate) fn copy_compared(
    to: &[AtomicU64],
    from: u64,
    len: usize,
    first: u64,
) -> Option<Checksum> {
    if to.len() != len.div_ceil(8) {
        return None;
    }
    let mut checksum = Checksum::EMPTY.add(first);
    let words = [
        to.as_ptr() as u64,
        from,
        len as u64,
        (&raw mut checksum) as u64,
    ];
    (guarded_with(words, compare_copied) == 0).then_some(checksum)
}

/// The body of [`copy_compared`]: 0 if nothing differs.
extern "C" fn compare_copied(cells: u64, from: u64, len: u64, checksum: u64) -> i64 {
    let (words, rest) = (crate::convert::size(len / 8), crate::convert::size(len % 8));
    let cells = cells as *const AtomicU64;
    let checksum = checksum as *mut Checksum;
    // SAFETY: the caller's cells, as many as the bytes take, and its checksum. Cells may be written
    // through a shared reference, and only this replica writes them; a bad source faults, which the
    // guard catches.
    let mut sum = unsafe {
        copy_forward(
            cells.cast_mut().cast(),
            from as *const u8,
            crate::convert::size(len),
        );
        *checksum
    };
    let source = black_box(from) as *const u64;
    let mut difference = 0;
    let mut compare = |at: usize, word: u64| {
        // SAFETY: one of the caller's cells.
        let there = unsafe { (*cells.add(at)).load(Relaxed) };
        difference |= there ^ word;
        sum = sum.add(there);
    };
    for at in 0..words {
        // SAFETY: the word was readable just before, and a bad pointer faults, which the guard
        // catches.
        compare(at, unsafe { source.add(at).read_unaligned() });
    }
    if rest != 0 {
        let mut word = [0; 8];
        // SAFETY: as above; `word` has eight bytes.
        unsafe { copy_forward(word.as_mut_ptr(), source.add(words).cast(), rest) };
        compare(words, u64::from_le_bytes(word));
    }
    // SAFETY: the caller's.
    unsafe { *checksum = sum };
    i64::from(difference != 0)
}

/// Copies bytes that lie in words into the program's memory.
///
/// # Panics
/// If they are more than the words hold.
#[inline(always)]
pub(crate) fn copy_from_words(to: u64, words: &[u64], len: usize) -> Result<(), Fault> {
    if leaf::COPIED.contains(&len) && len <= size_of_val(words) {
        // SAFETY: the words are the caller's, and no more are read.
        return unsafe { leaf::copy(to, words.as_ptr() as u64, len) }.ok_or(Fault);
    }
    copy_out(to, bytes_of(words, len))
}

/// Does the program's memory hold these bytes, which lie in words?
///
/// # Panics
/// If they are more than the words hold.
pub(crate) fn equals_words(from: u64, words: &[u64], len: usize) -> bool {
    equals(bytes_of(words, len), from)
}

fn bytes_of(words: &[u64], len: usize) -> &[u8] {
    assert!(len <= size_of_val(words));
    // SAFETY: words are eight bytes each, and bytes have no alignment.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), len) }
}

/// The checksum of `before` and of cells that are this replica's own to write.
pub(crate) fn checksum(cells: &[AtomicU64], before: Checksum) -> Checksum {
    // SAFETY: only this replica writes them, and nobody does meanwhile.
    let words = unsafe { core::slice::from_raw_parts(cells.as_ptr().cast::<u64>(), cells.len()) };
    bulk::add_all(before, words)
}

/// Do published cells begin with these bytes of the program?
#[inline(never)]
pub(crate) fn equals_cells(cells: &[AtomicU64], from: u64, len: usize) -> bool {
    /// Below this all the registers cost more than they save.
    const FEW: usize = 256;
    assert!(len <= size_of_val(cells));
    let row = crate::convert::size(bulk::ROW);
    let rows = if len < FEW { 0 } else { len / row * row };
    let at = cells.as_ptr() as u64;
    if rows != 0 && bulk::differ(at, from, rows as u64) {
        return false;
    }
    rest_equals(&cells[rows / 8..], from + rows as u64, len - rows)
}

/// The same word by word.
fn rest_equals(cells: &[AtomicU64], from: u64, len: usize) -> bool {
    let (words, rest) = (len / 8, len % 8);
    let differs = guarded(|| {
        let source = from as *const u64;
        let mut difference = 0;
        for (at, cell) in cells[..words].iter().enumerate() {
            // SAFETY: a bad pointer to the program faults, which the guard catches.
            difference |= cell.load(Relaxed) ^ unsafe { source.add(at).read_unaligned() };
        }
        if rest != 0 {
            let mut last = [0; 8];
            // SAFETY: as above; `last` has eight bytes.
            unsafe { copy_forward(last.as_mut_ptr(), source.add(words).cast(), rest) };
            difference |= cells[words].load(Relaxed) ^ u64::from_le_bytes(last);
        }
        i64::from(difference != 0)
    });
    differs == 0
}

/// Does the program's memory hold these bytes? An unreadable one does not.
pub(crate) fn equals(bytes: &[u8], from: u64) -> bool {
    let differs = guarded(|| {
        // SAFETY: a bad pointer faults, which the guard catches; nothing changes the bytes now.
        let theirs = unsafe { core::slice::from_raw_parts(from as *const u8, bytes.len()) };
        i64::from(theirs != bytes)
    });
    differs == 0
}

/// Reads a value of the program.
#[inline]
pub(crate) fn read<T: Plain>(from: u64) -> Result<T, Fault> {
    match size_of::<T>() {
        4 => as_value(&low32(leaf::half(from).ok_or(Fault)?)),
        8 => as_value(&leaf::word(from).ok_or(Fault)?),
        16 => as_value(&leaf::pair(from).ok_or(Fault)?),
        _ => read_larger(from),
    }
}

/// The same bits as a value of as many.
#[inline(always)]
fn as_value<S: Plain, T: Plain>(bits: &S) -> Result<T, Fault> {
    const { assert!(size_of::<S>() <= 16) };
    if size_of::<S>() != size_of::<T>() {
        return Err(Fault);
    }
    // SAFETY: as many bytes as were read, and every pattern is a value of a plain type.
    Ok(unsafe { (&raw const *bits).cast::<T>().read_unaligned() })
}

fn read_larger<T: Plain>(from: u64) -> Result<T, Fault> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the bytes are only written, and only read back below if all were.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    copy_in(bytes, from)?;
    // SAFETY: filled just now, and every pattern is a value of a plain type.
    Ok(unsafe { value.assume_init() })
}

/// Writes a value of the program.
///
/// # Errors
/// Not to be written, or the agent's own.
pub(crate) fn write<T: Plain>(to: u64, value: &T) -> Result<(), Fault> {
    if is_agent(to, size_of::<T>() as u64) {
        return Err(Fault);
    }
    // SAFETY: a plain type is just its bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    copy_out(to, bytes)
}

/// Digest of bytes of the program.
#[inline(always)]
pub(crate) fn digest(from: u64, len: u64) -> Result<u64, Fault> {
    // Both give the same two registers, which are looked at once.
    let found = if leaf::DIGESTED.contains(&len) {
        leaf::digest_of(from, len)
    } else {
        digest_apart(from, len)
    };
    found.get().ok_or(Fault)
}

#[inline(never)]
extern "C" fn digest_apart(from: u64, len: u64) -> leaf::Found {
    leaf::Found::of(digest_of_any(from, len).ok())
}

fn digest_of_any(from: u64, len: u64) -> Result<u64, Fault> {
    if len == 0 {
        return Ok(0);
    }
    if len > i64::MAX.cast_unsigned() {
        return Err(Fault);
    }
    let digest = Digest::fastest_for(len).of(from, crate::convert::size(len));
    digest.ok_or(Fault)
}

/// Length of a terminated string, without its NUL; at most `limit`, which is not 0.
pub(crate) fn string_len(from: u64, limit: u64) -> Result<u64, Fault> {
    leaf::string_len(from, limit).ok_or(Fault)
}

/// Bytes that [`start`] reads.
pub(crate) const START: usize = 6;

/// The first bytes of what is here, the first one lowest.
#[inline(always)]
pub(crate) fn start(from: u64) -> Result<u64, Fault> {
    leaf::start(from).ok_or(Fault)
}

/// Does this range touch the agent's own window?
pub(crate) fn is_agent(start: u64, len: u64) -> bool {
    let end = start.saturating_add(len);
    start < rcoe_linux_abi::AGENT_END as u64 && end > rcoe_linux_abi::AGENT_BASE as u64
}

/// Bytes below the agent's window that the program cannot map: what it hands to the kernel and
/// begins below ends there, as it does at any hole.
const GUARD: u64 = 4 << 30;

/// First address that the program cannot map, and how far that goes.
const RESERVED: u64 = rcoe_linux_abi::AGENT_BASE as u64 - GUARD;
const RESERVED_BYTES: u64 = rcoe_linux_abi::AGENT_END as u64 - RESERVED;

/// Is this address the agent's, or in the gap below it? No memory of the program is there.
#[inline]
pub(crate) const fn is_reserved(address: u64) -> bool {
    address.wrapping_sub(RESERVED) < RESERVED_BYTES
}

/// Does this range touch addresses that the program cannot map?
pub(crate) const fn meets_reserved(start: u64, len: u64) -> bool {
    start < RESERVED + RESERVED_BYTES && start.saturating_add(len) > RESERVED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_has_the_checksum_of_the_cells() {
        let source: Vec<u8> = (1..=64).collect();
        for len in 0..=source.len() {
            let cells = [const { AtomicU64::new(0) }; 8];
            let cells = &cells[..len.div_ceil(8)];
            let found = copy_compared(cells, source.as_ptr() as u64, len, 0);
            let mut words = source[..len].to_vec();
            words.resize(cells.len() * 8, 0);
            let expected = words.chunks(8).fold(Checksum::EMPTY, |sum, word| {
                sum.add(u64::from_le_bytes(word.try_into().expect("eight bytes")))
            });
            assert_eq!(found, Some(expected), "length {len}");
        }
    }

    #[test]
    fn cells_that_differ_in_a_bit_are_not_equal() {
        for len in [1, 7, 8, 63, 64, 65, 128, 255, 256, 257, 320, 331] {
            let mut bytes: Vec<u8> = (1..=250).cycle().take(len).collect();
            let mut padded = bytes.clone();
            padded.resize(len.next_multiple_of(8), 0);
            let (words, _) = padded.as_chunks();
            let word = |bytes: &[u8; 8]| AtomicU64::new(u64::from_le_bytes(*bytes));
            let cells: Vec<AtomicU64> = words.iter().map(word).collect();
            for at in 0..len {
                assert!(equals_cells(&cells, bytes.as_ptr() as u64, len));
                bytes[at] ^= 1 << (at % 8);
                assert!(
                    !equals_cells(&cells, bytes.as_ptr() as u64, len),
                    "{at} of {len}"
                );
                bytes[at] ^= 1 << (at % 8);
            }
        }
    }

    #[test]
    fn what_does_not_stay_as_it_was_copied_has_no_checksum() {
        let cells = [const { AtomicU64::new(7) }; 3];
        // Copied over itself, one word on: the source is another one then.
        cells[1].store(1, Relaxed);
        cells[2].store(2, Relaxed);
        let from = (&raw const cells[1]) as u64;
        assert_eq!(copy_compared(&cells[..2], from, 16, 0), None);
        // Bytes behind the last one that are not zero.
        let source = [3_u64];
        let cell = [AtomicU64::new(u64::MAX)];
        let from = source.as_ptr() as u64;
        assert_eq!(copy_compared(&cell, from, 5, 0), None);
    }
}

//! Which direct branches lead into a few bytes of code that are to be overwritten.
//!
//! Every byte of the mapping counts that could be the opcode of a branch, whether or not an
//! instruction begins there.
//!
//! Not covered: indirect branches.

use crate::arch::entry::guarded;
use crate::convert::{low32, size};

/// A half-open range of addresses.
type Range = core::ops::Range<u64>;

/// Could anything in `code` be a direct branch to an address in `window`, which is of at most eight
/// bytes?
pub(crate) fn branches_into(code: &Range, window: Range) -> bool {
    let verdict = guarded(|| {
        let near = long_branch(code, &window) || short_branch(code, &window);
        i64::from(near)
    });
    verdict != 0
}

/// Does a long branch lead into the window? Any four bytes that would, as a displacement, are a
/// suspicion; what stands before them must be the opcode of a branch.
fn long_branch(code: &Range, window: &Range) -> bool {
    /// Bytes looked at without a decision in between, so that the loop becomes vector code.
    const BLOCK: u64 = 1024;
    let mut at = code.start;
    while at + BLOCK + 4 <= code.end {
        let suspicious = (0..4).any(|phase| block_may_lead(at + phase, size(BLOCK), window));
        if suspicious && (at..at + BLOCK).any(|at| is_long_branch(at, code, window)) {
            return true;
        }
        at += BLOCK;
    }
    (at..code.end - 4).any(|at| is_long_branch(at, code, window))
}

/// Is there the displacement at `at` of a `call`, `jmp` or `jcc` into the window?
fn is_long_branch(at: u64, code: &Range, window: &Range) -> bool {
    let byte_before = |distance: u64| {
        let place = at
            .checked_sub(distance)
            .filter(|place| *place >= code.start);
        // SAFETY: mapped code; a hole faults, which the caller's guard catches.
        place.map_or(0, |place| unsafe { (place as *const u8).read() })
    };
    displacement_in(at, window)
        && (matches!(byte_before(1), 0xe8 | 0xe9)
            || (byte_before(2) == 0x0f && byte_before(1) & 0xf0 == 0x80))
}

/// Does the word at `at`, as a displacement, lead into the window?
fn displacement_in(at: u64, window: &Range) -> bool {
    // SAFETY: mapped code; a hole faults, which the caller's guard catches.
    let displacement = unsafe { (at as *const u32).read_unaligned() };
    let target = displacement.wrapping_add(low32(at)).wrapping_add(4);
    target.wrapping_sub(low32(window.start)) < low32(window.end - window.start)
}

/// Could any of the words in `len` bytes from `at` on, as displacements, lead to the window or
/// right behind it? Simple enough to become vector code.
fn block_may_lead(at: u64, len: usize, window: &Range) -> bool {
    const WIDTH_BITS: u32 = 3;
    debug_assert!(window.end - window.start <= 1 << WIDTH_BITS);
    // SAFETY: mapped code that nobody changes meanwhile; a hole faults, which the caller's guard
    // catches.
    let code = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let mut place = low32(at).wrapping_add(4).wrapping_sub(low32(window.start));
    let mut hits = 0;
    for word in code.chunks_exact(4) {
        let displacement = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hits |= u32::from(displacement.wrapping_add(place) >> WIDTH_BITS == 0);
        place = place.wrapping_add(4);
    }
    hits != 0
}

/// Does a short branch nearby lead into the window?
///
/// Any two bytes that look like one are only a suspicion; instructions are then decoded from
/// several starting points, which agree after a few.
fn short_branch(code: &Range, window: &Range) -> bool {
    /// Bytes within which decoding falls into step.
    const LEAD: u64 = 64;
    let from = window.start.saturating_sub(130).max(code.start);
    let to = (window.end + 130).min(code.end - 16);
    if !(from..to).any(|at| is_short_branch(at, window)) {
        return false;
    }
    let low = from.saturating_sub(LEAD).max(code.start);
    (0..4).any(|start| {
        let mut at = low + start;
        let mut found = false;
        while at < to && !found {
            found = at >= from && is_short_branch(at, window);
            at += crate::arch::instructions::length_at(at);
        }
        found
    })
}

/// Is there a short branch at `at` that leads into the window, if an instruction begins there?
fn is_short_branch(at: u64, window: &Range) -> bool {
    // SAFETY: mapped code; a hole faults, which the caller's guard catches.
    let [opcode, displacement] = unsafe { (at as *const [u8; 2]).read_unaligned() };
    let target = (at + 2).wrapping_add_signed(i64::from(displacement.cast_signed()));
    matches!(opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xeb) && window.contains(&target)
}

#[cfg(test)]
mod tests {
    use crate::arch::branches::branches_into;
    use crate::memory::nearby::jump;

    /// Code: `offset` is where the bytes go, the rest is `nop`.
    fn code(len: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut code = vec![0x90; len];
        for (offset, bytes) in parts {
            code[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
        code
    }

    /// Is a branch into bytes 4001 to 4004 of this code seen?
    fn seen(parts: &[(usize, &[u8])]) -> bool {
        let code = code(8192, parts);
        let start = code.as_ptr() as u64;
        branches_into(&(start..start + 8192), start + 4001..start + 4005)
    }

    #[test]
    fn branches_are_seen() {
        assert!(!seen(&[]));
        for target in 4001..4005_u64 {
            let near = u8::try_from(target - 3952).expect("near");
            assert!(seen(&[(3950, &[0x74, near])]), "je to {target}");
            for from in [0, 1001, 2002, 8000] {
                let mut long = jump(from as u64, target);
                assert!(seen(&[(from, &long)]), "jmp from {from} to {target}");
                long[0] = 0xe8;
                assert!(seen(&[(from, &long)]), "call from {from} to {target}");
            }
        }
        for target in [4000, 4005] {
            assert!(
                !seen(&[(0, &jump(0, target))]),
                "jmp to {target} is harmless"
            );
        }
    }

    #[test]
    fn constants_are_no_branches() {
        // mov $imm32,%edx, whose constant would lead into the window as a displacement.
        let displacement = jump(2000, 4002);
        let constant = [
            0xba,
            displacement[1],
            displacement[2],
            displacement[3],
            displacement[4],
        ];
        assert!(!seen(&[(2000, &constant)]));
        // mov $0x33740000,%eax, whose constant holds what would be a short branch.
        assert!(!seen(&[(3947, &[0xb8, 0, 0, 0x74, 0x33])]));
    }
}

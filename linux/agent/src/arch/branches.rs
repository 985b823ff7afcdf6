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

/// Tells which of these windows anything in `code` could be a direct branch into. All of them,
/// which stand in order, are looked for at once.
pub(crate) fn branches_into_each(code: &Range, windows: &[Range], mut hit: impl FnMut(usize)) {
    let [first, .., last] = windows else {
        for (index, window) in windows.iter().enumerate() {
            if branches_into(code, window.clone()) {
                hit(index);
            }
        }
        return;
    };
    let all = first.start..last.end;
    let done = guarded(|| {
        long_branches(code, &all, |target| {
            let into = windows.iter().position(|window| window.contains(&target));
            into.into_iter().for_each(&mut hit);
        });
        for (index, window) in windows.iter().enumerate() {
            if short_branch(code, window) {
                hit(index);
            }
        }
        0
    });
    if done != 0 {
        (0..windows.len()).for_each(hit);
    }
}

/// Tells where long branches lead to within the range.
fn long_branches(code: &Range, range: &Range, mut to: impl FnMut(u64)) {
    const BLOCK: u64 = 1024;
    let mut at = code.start;
    while at + 4 <= code.end {
        let len = BLOCK.min(code.end - at - 3);
        let whole = len == BLOCK && at + BLOCK + 7 <= code.end;
        if !whole || (0..4).any(|phase| block_leads_near(at + phase, size(BLOCK), range)) {
            for at in (at..at + len).filter(|at| is_long_branch(*at, code, range)) {
                // SAFETY: mapped code; a hole faults, which the caller's guard catches.
                let displacement = unsafe { (at as *const i32).read_unaligned() };
                to((at + 4).wrapping_add_signed(displacement.into()));
            }
        }
        at += len;
    }
}

/// Could any of the words in `len` bytes from `at` on, as displacements, lead into the range?
fn block_leads_near(at: u64, len: usize, range: &Range) -> bool {
    let span = low32(range.end - range.start);
    // SAFETY: mapped code that nobody changes meanwhile; a hole faults, which the caller's guard
    // catches.
    let code = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let mut place = low32(at).wrapping_add(4).wrapping_sub(low32(range.start));
    let mut hits = 0;
    for word in code.chunks_exact(4) {
        let displacement = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hits |= u32::from(displacement.wrapping_add(place) < span);
        place = place.wrapping_add(4);
    }
    hits != 0
}

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
    /// Bytes looked at without a decision in between.
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
/// right behind it?
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
    use crate::arch::branches::{branches_into, branches_into_each};
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
    fn branches_into_several_windows_are_told_apart() {
        let windows = [100..105, 3000..3005, 3005..3010, 7000..7008_u64];
        let hits = |parts: &[(usize, &[u8])]| {
            let code = code(8192, parts);
            let start = code.as_ptr() as u64;
            let windows = windows.clone().map(|it| start + it.start..start + it.end);
            let mut hits = Vec::new();
            branches_into_each(&(start..start + 8192), &windows, |hit| hits.push(hit));
            hits
        };
        assert_eq!(hits(&[]), []);
        for from in [0, 1021, 1024, 5000, 8180] {
            for (index, window) in windows.iter().enumerate() {
                let last = window.end - 1;
                let long = jump(from as u64, last);
                assert_eq!(hits(&[(from, &long)]), [index], "{from} to {last}");
            }
            assert_eq!(hits(&[(from, &jump(from as u64, 7008))]), [], "behind");
            assert_eq!(hits(&[(from, &jump(from as u64, 99))]), [], "in front");
            assert_eq!(hits(&[(from, &jump(from as u64, 2000))]), [], "between");
        }
        assert_eq!(hits(&[(3020, &[0x74, 0xeb])]), [1], "je to 3001");
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

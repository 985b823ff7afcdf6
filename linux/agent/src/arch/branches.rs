//! Which direct branches lead into a few bytes of code that are to be overwritten.
//!
//! Every byte of the mapping counts that could be the opcode of a branch, whether or not an
//! instruction begins there.
//!
//! Not covered: indirect branches.

use crate::arch::bulk;
use crate::arch::entry::guarded;
use crate::arch::recognise::ESCAPE;
use crate::convert::{low32, size};

/// A half-open range of addresses.
type Range = core::ops::Range<u64>;

/// Tells which of these windows anything in `code` could be a direct branch into. All of them,
/// which stand in order, are looked for at once.
pub(crate) fn branches_into_each(code: &Range, windows: &[Range], mut hit: impl FnMut(usize)) {
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
        return;
    };
    let all = first.start..last.end;
    let looked = long_branches(code, &all, |target| {
        let into = windows.iter().position(|window| window.contains(&target));
        into.into_iter().for_each(&mut hit);
    });
    let done = guarded(|| {
        for (index, window) in windows.iter().enumerate() {
            if short_branch(code, window) {
                hit(index);
            }
        }
        0
    });
    if !looked || done != 0 {
        (0..windows.len()).for_each(hit);
    }
}

/// Could anything in `code` be a direct branch to an address in `window`, which is of at most eight
/// bytes?
///
/// # Panics
/// If the window is longer.
pub(crate) fn branches_into(code: &Range, window: Range) -> bool {
    leads_into(code, &window) || guarded(|| i64::from(short_branch(code, &window))) != 0
}

/// Does a long branch lead into the window, or can some of the code not be read? Any four bytes
/// that would, as a displacement, are a suspicion; what stands before them must be the opcode of a
/// branch.
fn leads_into(code: &Range, window: &Range) -> bool {
    const WIDTH_BITS: u32 = 3;
    assert!(
        window.end - window.start <= 1 << WIDTH_BITS,
        "a window is short"
    );
    let mut at = code.start;
    loop {
        let blocks = (code.end - at).saturating_sub(3) / bulk::ROW;
        let Some(passed) = bulk::leads(at, blocks, window.start, WIDTH_BITS) else {
            return true;
        };
        at += passed * bulk::ROW;
        let end = match passed == blocks {
            true => code.end,
            false => at + bulk::ROW,
        };
        // A branch begins two bytes before its displacement at most.
        let first = at.saturating_sub(2).max(code.start);
        let found = guarded(|| {
            let mut near = first..end;
            i64::from(near.any(|at| long_branch(at, code, window).is_some()))
        });
        if found != 0 || end == code.end {
            return found != 0;
        }
        at = end;
    }
}

/// Tells where long branches lead to within the range; false if some of the code cannot be read.
fn long_branches(code: &Range, range: &Range, mut to: impl FnMut(u64)) -> bool {
    let mut at = code.start;
    while at < code.end {
        let mut marks = [0; bulk::BLOCKS];
        let blocks = size((code.end - at) / bulk::ROW).min(bulk::BLOCKS);
        let marks = &mut marks[..blocks];
        if !bulk::mark(at, &[CALL, JUMP, ESCAPE], &[], marks) {
            return false;
        }
        // Behind the last whole block all is looked at.
        let end = match blocks {
            0 => code.end,
            blocks => at + blocks as u64 * bulk::ROW,
        };
        let done = guarded(|| {
            let starts = (at..).step_by(size(bulk::ROW));
            for (mask, start) in marks.iter().zip(starts) {
                bulk::bits(*mask)
                    .filter_map(|bit| long_branch(start + bit, code, range))
                    .for_each(&mut to);
            }
            let rest = if marks.is_empty() { at..end } else { 0..0 };
            rest.filter_map(|at| long_branch(at, code, range))
                .for_each(&mut to);
            0
        });
        if done != 0 {
            return false;
        }
        at = end;
    }
    true
}

/// `call` and `jmp` with a displacement of four bytes, and the first byte of a `jcc` with one.
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;

/// Where the `call`, `jmp` or `jcc` at `at` leads to, if one could stand there, and it leads into
/// the range. To be called under a guard.
fn long_branch(at: u64, code: &Range, range: &Range) -> Option<u64> {
    // SAFETY: mapped code; a hole faults, which the caller's guard catches.
    let byte = |at: u64| unsafe { (at as *const u8).read() };
    let opcode = match byte(at) {
        CALL | JUMP => 1,
        ESCAPE if at + 1 < code.end && byte(at + 1) & 0xf0 == 0x80 => 2,
        _ => return None,
    };
    let displacement = at + opcode;
    if displacement + 4 > code.end || !displacement_in(displacement, range) {
        return None;
    }
    // SAFETY: as above.
    let distance = unsafe { (displacement as *const i32).read_unaligned() };
    Some((displacement + 4).wrapping_add_signed(distance.into()))
}

/// Does the word at `at`, as a displacement, lead into the window?
fn displacement_in(at: u64, window: &Range) -> bool {
    // SAFETY: mapped code; a hole faults, which the caller's guard catches.
    let displacement = unsafe { (at as *const u32).read_unaligned() };
    let target = displacement.wrapping_add(low32(at)).wrapping_add(4);
    target.wrapping_sub(low32(window.start)) < low32(window.end - window.start)
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
    use crate::convert::low32;
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
    fn in_a_text_of_branches_each_is_seen_wherever_it_leads() {
        // Branches of all kinds to places of their own, one after the other, and what is none.
        let mut text = vec![0x90_u8; 1 << 14];
        let mut state = 9_u32;
        let mut random = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        let mut targets = Vec::new();
        for at in (0..text.len() - 16).step_by(29) {
            let (from, to) = (at + random(8), random(text.len()));
            let opcode: &[u8] = match random(5) {
                0 => &[0xe8],
                1 => &[0xe9],
                2 => &[0x0f, 0x84],
                3 => &[0x0f, 0x8f],
                _ => &[0xba],
            };
            let end = from + opcode.len() + 4;
            let displacement = low32(to as u64).wrapping_sub(low32(end as u64));
            text[from..end - 4].copy_from_slice(opcode);
            text[end - 4..end].copy_from_slice(&displacement.to_le_bytes());
            if opcode != [0xba] {
                targets.push(to);
            }
        }
        let start = text.as_ptr() as u64;
        let code = start..start + text.len() as u64;
        let (mut seen, mut unseen) = (0, 0);
        for at in (0..text.len() - 8).step_by(5) {
            let led = targets.iter().any(|target| (at..at + 5).contains(target));
            let window = start + at as u64..start + at as u64 + 5;
            // Bytes of these displacements may be short branches, or opcodes, by accident.
            if led {
                assert!(branches_into(&code, window), "{at}");
                seen += 1;
            } else {
                unseen += u32::from(!branches_into(&code, window));
            }
        }
        assert!(seen > 200 && unseen > 1000, "{seen} {unseen}");
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

//! Where a dynamic loader has its system calls: side by side.
//!
//! A loader makes some twenty calls in every program that is executed, most of them at functions
//! that stand in one page. Rewriting them as the loader is mapped costs a copy of that page, which
//! is less than half of what the traps cost; where calls stand apart it would cost more.
//!
//! What is looked for is the whole shape that is rewritten, eight bytes, and several of them in a
//! page. So it is not asked in addition whether an instruction begins there.

use core::ops::Range;

use rcoe_linux_abi::PAGE;

use crate::arch::bulk;
use crate::arch::entry::guarded;
use crate::arch::recognise::ESCAPE;
use crate::convert::size;

/// Bytes of `syscall; cmp $-4095,%rax` (or -4096).
pub(super) const CALL: usize = 8;
/// So many in a page are worth a copy of it.
const FEW: usize = 6;
/// Most that are looked for in a page.
const MOST: usize = 32;

/// Does the code begin with a call that can be rewritten as one that is known to be executed?
pub(super) fn is_call(code: &[u8]) -> bool {
    matches!(
        code,
        [0x0f, 0x05, 0x48, 0x3d, 0x00 | 0x01, 0xf0, 0xff, 0xff, ..]
    )
}

/// Tells of the calls in pages of the code that have several, in order.
pub(super) fn calls(code: &Range<u64>, mut found: impl FnMut(u64)) {
    let mut page = code.start;
    while page < code.end {
        let end = (page + PAGE).min(code.end);
        let mut marks = [0; bulk::BLOCKS];
        // Each is asked for its byte and the next one.
        let marks = &mut marks[..size((end - page - 1) / bulk::ROW)];
        let mut places = [0; MOST];
        let mut count = 0;
        let readable = bulk::mark(page, &[ESCAPE], &[0x05], marks);
        let done = guarded(|| {
            // SAFETY: mapped code that nobody changes meanwhile; a hole faults, which the guard
            // catches.
            let code = unsafe { core::slice::from_raw_parts(page as *const u8, size(end - page)) };
            count = in_page(code, marks, &mut places);
            0
        });
        if readable && done == 0 && count >= FEW {
            places[..count].iter().for_each(|at| found(page + *at));
        }
        page = end;
    }
}

/// Offsets of the calls in a page, and how many they are. Where they could begin is marked, but in
/// what is left behind the last whole block.
fn in_page(code: &[u8], marks: &[u64], places: &mut [u64; MOST]) -> usize {
    let blocks = marks.iter().zip((0..).step_by(size(bulk::ROW)));
    let marked = blocks.flat_map(|(mask, start)| bulk::bits(*mask).map(move |bit| start + bit));
    let rest = marks.len() as u64 * bulk::ROW..code.len() as u64;
    let mut count = 0;
    for at in marked.chain(rest).filter(|at| is_call(&code[size(*at)..])) {
        if let Some(place) = places.get_mut(count) {
            *place = at;
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: [u8; CALL] = [0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff];

    /// Offsets of what is found in three pages that have calls here.
    fn found(places: &[usize]) -> Vec<u64> {
        let mut code = vec![0x90; 4 * size(PAGE)];
        let first = code.as_ptr().align_offset(size(PAGE));
        let code = &mut code[first..first + 3 * size(PAGE)];
        for at in places {
            code[*at..*at + CALL].copy_from_slice(&SHAPE);
        }
        let start = code.as_ptr() as u64;
        let mut found = Vec::new();
        calls(&(start..start + code.len() as u64), |at| {
            found.push(at - start)
        });
        found
    }

    #[test]
    fn calls_are_found_where_several_stand_in_a_page() {
        let several: Vec<usize> = (0..FEW).map(|at| 5000 + 48 * at).collect();
        let told: Vec<u64> = several.iter().map(|at| *at as u64).collect();
        assert_eq!(found(&several), told);
        assert_eq!(found(&several[1..]), [], "too few");
        let spread: Vec<usize> = several.iter().map(|at| at - 808).collect();
        assert!(spread[0] > 4096 && found(&spread).len() == FEW);
        let apart: Vec<usize> = (0..FEW).map(|at| 100 + 2000 * at).collect();
        assert_eq!(found(&apart), [], "in three pages");
    }

    #[test]
    fn what_lies_across_pages_is_left_alone() {
        let mut places: Vec<usize> = (0..FEW).map(|at| 4096 + 48 * at).collect();
        places.push(8192 - CALL + 1);
        assert_eq!(found(&places).len(), FEW);
    }

    #[test]
    fn other_shapes_are_no_calls() {
        assert!(is_call(&SHAPE));
        for at in 0..CALL {
            let mut other = SHAPE;
            other[at] ^= 0x10;
            assert!(!is_call(&other), "byte {at}");
        }
    }
}

//! Where code has bytes with which an instruction that is looked for could begin.
//!
//! A page is asked at once for all of them. Every byte is looked at a few times at most, whatever
//! it is: some candidates are frequent (fences), so no page is asked again for those that come
//! after the first.

use core::ops::Range;

use crate::arch::bulk;
use crate::arch::entry::guarded;
use crate::arch::recognise::{ESCAPE, Wanted, is_candidate, seconds};
use crate::convert::size;

/// Where a search has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    At(u64),
    End,
    /// Memory ends early.
    Hole,
}

/// Goes through code from one candidate to the next.
pub(super) struct Candidates {
    /// Nothing before is of interest.
    at: u64,
    end: u64,
    /// Candidates in the blocks from `marked` on, of which the first `count` are known.
    marks: [u64; bulk::BLOCKS],
    marked: u64,
    count: usize,
    /// The block that comes next.
    block: usize,
    /// Memory ends early: the rest is looked at one by one.
    hole: bool,
}

impl Candidates {
    pub(super) const fn new(code: Range<u64>) -> Self {
        Self {
            at: code.start,
            end: code.end,
            marks: [0; bulk::BLOCKS],
            marked: code.start,
            count: 0,
            block: 0,
            hole: false,
        }
    }

    /// The next candidate.
    pub(super) fn next(&mut self, wanted: Wanted) -> Next {
        // A loop for each, so that what is looked for is fixed in it.
        if wanted.counter {
            self.search::<true>(wanted.doubts())
        } else {
            self.search::<false>(wanted.doubts())
        }
    }

    /// What was found goes up to here.
    pub(super) fn skip_to(&mut self, at: u64) {
        self.at = self.at.max(at);
    }

    /// `doubts`: the end of the code may hide something.
    fn search<const COUNTER: bool>(&mut self, doubts: bool) -> Next {
        let wanted = Wanted {
            cpuid: true,
            counter: COUNTER,
            no_cpuid: false,
        };
        loop {
            if let Some(at) = self.take() {
                return Next::At(at);
            }
            if self.at + 2 > self.end {
                break;
            }
            if self.hole || !self.ask(wanted) {
                match self.walk(wanted) {
                    Next::End => {}
                    next => return next,
                }
            }
        }
        if doubts && self.ends_within() {
            let at = self.at;
            self.at += 1;
            return Next::At(at);
        }
        Next::End
    }

    /// The next of the candidates that are known.
    fn take(&mut self) -> Option<u64> {
        while self.block < self.count {
            let mask = &mut self.marks[self.block];
            let start = self.marked + self.block as u64 * bulk::ROW;
            let Some(bit) = bulk::bits(*mask).next() else {
                self.block += 1;
                self.at = self.at.max(start + bulk::ROW);
                continue;
            };
            *mask &= *mask - 1;
            if start + bit >= self.at {
                self.at = start + bit + 1;
                return Some(start + bit);
            }
        }
        None
    }

    /// Finds out where candidates are in the blocks that come next; false if too little is left
    /// for one, or memory ends there.
    fn ask(&mut self, wanted: Wanted) -> bool {
        // A candidate is two bytes.
        let whole = size((self.end - self.at - 1) / bulk::ROW).min(bulk::BLOCKS);
        let marks = &mut self.marks[..whole];
        self.hole = !bulk::mark(self.at, &[ESCAPE], seconds(wanted), marks);
        let known = whole != 0 && !self.hole;
        (self.marked, self.block) = (self.at, 0);
        self.count = if known { whole } else { 0 };
        // Each byte as the first and as the second of two.
        effort::look(2 * whole as u64 * bulk::ROW);
        known
    }

    /// Looks at the rest one by one; [`Next::End`] if there is no candidate.
    fn walk(&mut self, wanted: Wanted) -> Next {
        let (from, end) = (self.at, self.end - 1);
        let mut found = Next::Hole;
        guarded(|| {
            for at in from..end {
                effort::look(2);
                // SAFETY: mapped code; a hole faults, which the guard catches.
                let pair = unsafe { (at as *const u16).read_unaligned() };
                if is_candidate(pair, wanted) {
                    found = Next::At(at);
                    return 0;
                }
            }
            found = Next::End;
            0
        });
        match found {
            Next::At(at) => self.at = at + 1,
            Next::End | Next::Hole => self.at = from.max(end),
        }
        found
    }

    /// Is the last byte the first of a candidate, of which nobody knows how it goes on?
    fn ends_within(&self) -> bool {
        let (at, end) = (self.at, self.end);
        // SAFETY: mapped code; a hole faults, which the guard catches.
        let begins = || i64::from(unsafe { (at as *const u8).read() } == ESCAPE);
        at < end && guarded(begins) == 1
    }
}

/// What looking through code costs: counted in tests only.
pub(super) mod effort {
    #[cfg(test)]
    std::thread_local! {
        static LOOKED: core::cell::Cell<[u64; 2]> = const { core::cell::Cell::new([0; 2]) };
    }

    /// So many bytes are looked at.
    #[inline]
    pub(crate) fn look(bytes: u64) {
        add([bytes, 0]);
    }

    /// An instruction is decoded.
    #[inline]
    pub(crate) fn decode() {
        add([0, 1]);
    }

    #[cfg(not(test))]
    #[inline]
    const fn add(_: [u64; 2]) {}

    #[cfg(test)]
    fn add([bytes, instructions]: [u64; 2]) {
        LOOKED.set({
            let [all_bytes, all_instructions] = LOOKED.get();
            [all_bytes + bytes, all_instructions + instructions]
        });
    }

    /// Bytes and instructions that this thread has looked at since it was last asked.
    #[cfg(test)]
    pub(crate) fn take() -> [u64; 2] {
        LOOKED.replace([0; 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::size;

    const ALL: Wanted = Wanted {
        cpuid: true,
        counter: true,
        no_cpuid: false,
    };
    const NO_COUNTER: Wanted = Wanted {
        cpuid: true,
        counter: false,
        no_cpuid: false,
    };
    const NO_DOUBT: Wanted = Wanted {
        cpuid: false,
        counter: false,
        no_cpuid: false,
    };
    /// Bytes of a text whose search is counted.
    const TEXT: usize = 1 << 20;
    /// Times that each byte of a text may be looked at: as the first and as the second of two.
    const TIMES: u64 = 2;

    /// The code of this program.
    fn own_code() -> &'static [u8] {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains(" r-xp ") && line.ends_with(own.to_str().unwrap()));
        let (start, rest) = line.unwrap().split_once('-').unwrap();
        let end = rest.split(' ').next().unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        // SAFETY: mapped, readable, and never changed while this program runs.
        unsafe { std::slice::from_raw_parts(start as *const u8, end - start) }
    }

    /// Where candidates in the code are.
    fn all(code: &[u8], wanted: Wanted) -> Vec<usize> {
        let start = code.as_ptr() as u64;
        let mut candidates = Candidates::new(start..start + code.len() as u64);
        let next = || match candidates.next(wanted) {
            Next::At(at) => Some(size(at - start)),
            Next::End => None,
            Next::Hole => panic!("all of it is there"),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn candidates_are_found_wherever_they_begin() {
        for at in (0..40).chain(500..530).chain(1520..1535) {
            let mut code = vec![0x90; 1537];
            code[at..at + 2].copy_from_slice(&[0x0f, 0x31]);
            assert_eq!(all(&code, ALL), [at]);
            assert_eq!(all(&code, NO_COUNTER), []);
            code[at + 1] = 0xa2;
            assert_eq!(all(&code, NO_COUNTER), [at]);
        }
    }

    #[test]
    fn each_of_many_candidates_is_found() {
        for distance in [2, 3, 7, 509, 511, 512, 513, 1024] {
            let mut code = vec![0x90; 4099];
            let places: Vec<usize> = (0..code.len() - 1).step_by(distance).collect();
            for &at in &places {
                code[at..at + 2].copy_from_slice(&[0x0f, 0x31]);
            }
            assert_eq!(all(&code, ALL), places, "{distance}");
        }
    }

    #[test]
    fn in_real_code_the_same_is_found_as_by_each_byte() {
        let code = &own_code()[..2 << 20];
        for wanted in [ALL, NO_COUNTER] {
            let pairs = code.windows(2).enumerate();
            let each = pairs
                .filter(|(_, pair)| is_candidate(u16::from_le_bytes([pair[0], pair[1]]), wanted));
            let each: Vec<usize> = each.map(|(at, _)| at).collect();
            assert!(each.len() > 10 || !wanted.counter, "{}", each.len());
            for skipped in [0, 1, 63] {
                let later = each.iter().filter(|at| **at >= skipped);
                let later: Vec<usize> = later.map(|at| at - skipped).collect();
                assert_eq!(all(&code[skipped..], wanted), later);
            }
        }
    }

    #[test]
    fn code_that_ends_within_a_candidate_has_one() {
        assert_eq!(all(&[0x90, 0x90, 0x0f], ALL), [2]);
        assert_eq!(all(&[0x90, 0x0f, 0x90], ALL), []);
        assert_eq!(all(&[0x90, 0x90, 0x0f], NO_COUNTER), [2]);
        assert_eq!(all(&[0x90, 0x90, 0x0f], NO_DOUBT), []);
    }

    /// Bytes looked at in a text that is this again and again, and candidates.
    fn effort_of(unit: &[u8]) -> (u64, usize) {
        let code = unit.repeat(TEXT / unit.len());
        effort::take();
        let found = all(&code, ALL).len();
        let [bytes, instructions] = effort::take();
        assert_eq!(instructions, 0, "candidates are only found here");
        (bytes, found)
    }

    #[test]
    fn each_byte_is_looked_at_a_few_times_however_many_candidates_there_are() {
        let block = size(bulk::ROW);
        for distance in [2, 4, 16, 64, block - 1, block, block + 1, 8 * block, TEXT] {
            let mut unit = vec![0x90; distance];
            // At the end, so that all of a block is looked at one by one.
            unit[distance - 2..].copy_from_slice(&[0x0f, 0xae]);
            let (bytes, found) = effort_of(&unit);
            assert_eq!(found, TEXT / distance);
            let most = TIMES * TEXT as u64 + 4 * bulk::ROW;
            assert!(bytes <= most, "every {distance}: {bytes} of {most}");
            assert!(bytes >= TEXT as u64, "every {distance}: {bytes}");
        }
        let (bytes, found) = effort_of(&[0x90]);
        assert_eq!(found, 0);
        assert!(bytes <= 2 * TEXT as u64 + 4 * bulk::ROW, "{bytes}");
    }
}

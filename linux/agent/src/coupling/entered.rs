//! Whether branches lead into a few bytes of the program's code, and what is known of that already.
//!
//! To find out takes a look at all code of a mapping, hundreds of microseconds. Replicas are
//! stopped at the same few places again and again, and wait for each other meanwhile. So what was
//! found out is kept, for code that was mapped to be executed only, until any such mapping comes or
//! goes.
//!
//! Contract: what is known is what a look would find: the program does not write there, and whoever
//! does so for it counts that as a change ([`crate::arch::rewrite::Rewriter::changes`]). The
//! agent's own jumps in that code lead out of it.

use core::ops::Range;

use crate::arch::branches::branches_into;
use crate::coupling::place::Surroundings;
use crate::one_thread::OneThread;

/// Places that are known.
const KNOWN: usize = 64;

/// What a look has found.
#[derive(Clone, Copy)]
struct Answer {
    /// The bytes, and the mapping; 0 if there was no look.
    start: u64,
    end: u64,
    code: [u64; 2],
    /// When that was.
    changes: u64,
    is_entered: bool,
}

struct Answers {
    all: [Answer; KNOWN],
    /// The oldest, which goes next.
    next: usize,
}

#[unsafe(link_section = ".bss.own.1")]
static ANSWERS: OneThread<Answers> = OneThread::new(Answers::NONE);

impl Answers {
    const NONE: Self = Self {
        all: [Answer {
            start: 0,
            end: 0,
            code: [0; 2],
            changes: 0,
            is_entered: false,
        }; KNOWN],
        next: 0,
    };

    /// What was found, or is found by this look, which is kept then.
    fn get(&mut self, wanted: &Answer, look: impl FnOnce() -> bool) -> bool {
        let is_it = |known: &&Answer| {
            (known.start, known.end) == (wanted.start, wanted.end)
                && (known.code, known.changes) == (wanted.code, wanted.changes)
        };
        if let Some(known) = self.all.iter().find(is_it) {
            return known.is_entered;
        }
        let is_entered = look();
        self.all[self.next % KNOWN] = Answer {
            is_entered,
            ..*wanted
        };
        self.next = (self.next + 1) % KNOWN;
        is_entered
    }
}

/// Could anything in the code around be a direct branch into these bytes?
pub(super) fn is_entered(bytes: Range<u64>, around: &Surroundings<'_>) -> bool {
    let wanted = around.changes.map(|changes| Answer {
        start: bytes.start,
        end: bytes.end,
        code: [around.code.start, around.code.end],
        changes,
        is_entered: false,
    });
    let look = || branches_into(&around.code, bytes);
    let Some(wanted) = wanted else {
        return look();
    };
    // SAFETY: one kernel thread, and a look comes back here no more.
    let answers = unsafe { &mut *ANSWERS.get() };
    answers.get(&wanted, look)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(start: u64, changes: u64) -> Answer {
        Answer {
            start,
            end: start + 4,
            code: [0x1000, 0x9000],
            changes,
            is_entered: false,
        }
    }

    #[test]
    fn a_place_is_looked_at_once_until_code_changes() {
        let mut answers = Answers::NONE;
        let mut looks = 0;
        let mut get = |wanted: &Answer, found| {
            answers.get(wanted, || {
                looks += 1;
                found
            })
        };
        assert!(get(&wanted(0x2000, 1), true));
        assert!(get(&wanted(0x2000, 1), false), "it is known");
        assert!(!get(&wanted(0x2001, 1), false), "another place");
        assert!(!get(&wanted(0x2000, 2), false), "the code has changed");
        let mut other = wanted(0x2000, 1);
        other.code[1] += 0x1000;
        assert!(!get(&other, false), "another mapping");
        assert_eq!(looks, 4);
    }

    #[test]
    fn the_oldest_place_goes_if_there_is_no_room() {
        let mut answers = Answers::NONE;
        let places = 0x2000..=0x2000 + KNOWN as u64;
        for start in places {
            assert!(answers.get(&wanted(start, 1), || true));
        }
        assert!(!answers.get(&wanted(0x2000, 1), || false));
        assert!(answers.get(&wanted(0x2000 + KNOWN as u64, 1), || false));
    }
}

//! The bytes that a primary read last, where its siblings can read them.
//!
//! A few parts are filled in turn. One is filled again only when every sibling has taken a record
//! that came after all of those whose bytes are in it; then nobody asks for them any more. Until
//! then the primary waits, as it does for room in the ring: bytes in the ring instead would cost
//! all of them more than the wait, and leave somebody as far behind as before.
//!
//! They lie where a primary that can be replaced puts what it receives from streams, which never
//! happens in the same group.

use rcoe_core::Replica;
use rcoe_linux_abi::INTAKE_BYTES;

use crate::protocol::env::LinuxEnv;

/// Bytes of a part.
pub(super) const CHUNK: usize = 128 * 1024;
const PARTS: usize = 4;
const _: () = assert!(PARTS * CHUNK <= INTAKE_BYTES);

/// In which part this place is. Whoever has taken the first record of one has taken all those of
/// the part before.
pub(super) const fn part_of(place: usize) -> usize {
    place / CHUNK
}

/// What is kept where.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    /// The part that is being filled.
    part: usize,
    /// Bytes in it.
    used: usize,
    /// Where in the stream the record after the last one of each part begins; 0 if it has none.
    ends: [u64; PARTS],
}

impl Kept {
    pub(super) const NOTHING: Self = Self {
        part: 0,
        used: 0,
        ends: [0; PARTS],
    };

    /// Primary: a place for so many bytes, awaited, and room for a record of so many words; none
    /// if this replica has to halt.
    pub(super) fn place(
        &mut self,
        replica: &mut Replica<'_, LinuxEnv>,
        length: usize,
        words: usize,
    ) -> Option<usize> {
        self.place_if(length, |end| {
            end < replica.position() && replica.await_passing(end, words).is_ok()
        })
    }

    fn place_if(
        &mut self,
        length: usize,
        mut have_passed: impl FnMut(u64) -> bool,
    ) -> Option<usize> {
        if length > CHUNK {
            return None;
        }
        if self.used + length > CHUNK {
            let next = (self.part + 1) % PARTS;
            if self.ends[next] != 0 && !have_passed(self.ends[next]) {
                return None;
            }
            self.part = next;
            self.used = 0;
        }
        Some(self.part * CHUNK + self.used)
    }

    /// Primary: so many bytes are there, and their record is published.
    pub(super) fn filled(&mut self, replica: &Replica<'_, LinuxEnv>, length: usize) {
        self.used += length.next_multiple_of(64);
        self.ends[self.part] = replica.position();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of this length are kept at this place; their record ends there.
    fn keep(kept: &mut Kept, length: usize, end: u64, passed: u64) -> Option<usize> {
        let place = kept.place_if(length, |end| passed > end)?;
        kept.used += length;
        kept.ends[kept.part] = end;
        Some(place)
    }

    #[test]
    fn nothing_is_overwritten_that_somebody_may_ask_for() {
        let mut kept = Kept::NOTHING;
        let length = CHUNK / 2;
        for at in 0..2 * PARTS {
            let end = 10 * at as u64 + 10;
            assert_eq!(keep(&mut kept, length, end, 0), Some(at * length));
        }
        for passed in [0, 10, 19, 20] {
            assert_eq!(keep(&mut kept, length, 90, passed), None, "{passed}");
        }
        assert_eq!(keep(&mut kept, length, 90, 21), Some(0));
        assert_eq!(keep(&mut kept, length, 100, 21), Some(length));
        assert_eq!(keep(&mut kept, length, 110, 40), None);
        assert_eq!(keep(&mut kept, length, 110, 41), Some(CHUNK));
    }

    #[test]
    fn who_has_come_to_a_part_is_done_with_the_one_before() {
        let mut kept = Kept::NOTHING;
        let mut told = usize::MAX;
        let mut passed = 0;
        for at in 1..20 * PARTS as u64 {
            // The primary finds room, though the follower tells only of each part's first record.
            let place = keep(&mut kept, CHUNK / 3, 10 * at, passed).expect("room");
            if part_of(place) != told {
                told = part_of(place);
                passed = 10 * at;
            }
        }
    }

    #[test]
    fn what_is_longer_than_a_part_is_not_kept() {
        let mut kept = Kept::NOTHING;
        assert_eq!(keep(&mut kept, CHUNK + 1, 10, 0), None);
        assert_eq!(keep(&mut kept, CHUNK, 10, 0), Some(0));
        assert_eq!(keep(&mut kept, 1, 20, 0), Some(CHUNK));
    }
}

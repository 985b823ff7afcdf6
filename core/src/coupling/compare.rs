//! Whether two replicas that cannot read each other's memory are in the same state.
//!
//! Registers are compared word by word with those of the target. All else is areas: the vector
//! state, and pages. Replicas were equal at the last event, so only pages can differ that one of
//! them has written since; each names its own in a list, and both take a digest of the *union*,
//! with the numbers of the pages in it. So a page that is missing in one's view of a list makes
//! digests differ, never alike. Of more than two, all then do so once more over the lists of all.
//! The list itself is compared with a second look at what was written.
//!
//! If digests differ, a list of digests by area tells in which, and the words of that area which
//! word: it joins what the search compares, see [`Stub`].
//!
//! Not covered: a page that was changed without being written, which no list names.

use super::board::{PAGES, REGISTERS, SHEET};
use super::time::Standing;
use crate::digest;
use crate::guards::{Bug, Guards};

/// The area of the vector state.
pub const VECTORS: u64 = u64::MAX;

/// In a list of pages: more were written than it can name. Its digest is that of all memory.
pub const EVERYTHING: u64 = u64::MAX - 1;

/// Words beside registers that a search compares.
pub const EXTRA: usize = 24;

/// The replica's own state, at the place where it is stopped.
pub trait Machine {
    /// Where it is.
    fn standing(&self) -> Standing;

    /// Its registers, normalised, in an order that is the same in all replicas.
    fn registers(&self, out: &mut [u64]);

    /// The pages written since the last event, or the last point that was agreed on, in ascending
    /// order; and how many. `None` if they are more than `list` holds.
    fn written(&mut self, list: &mut [u64]) -> Option<usize>;

    /// [`list_digest`] of them, from another look at what was written; `None` as above.
    fn seal(&mut self, room: usize) -> Option<u64>;

    /// Copies the words of an area; how many. None for [`EVERYTHING`].
    fn area(&self, area: u64, out: &mut [u64]) -> usize;

    /// The smaller area for whose content this word of an area stands; `None` if the word is
    /// content itself. A list may name areas of many pages, the words of which are digests.
    fn within(&self, area: u64, at: usize) -> Option<u64>;

    /// A digest of an area's content, where the sphere has a faster one than that of its words: all
    /// replicas have it then, for the same areas.
    fn content(&self, _area: u64) -> Option<u64> {
        None
    }

    /// A digest of all memory that the program can write.
    fn everything(&self) -> u64;
}

/// The digest of a list of pages.
#[must_use]
pub fn list_digest(list: &[u64]) -> u64 {
    list.iter()
        .fold(list.len() as u64, |all, &page| digest(all, page))
}

/// What a replica looks for while it runs: registers, and words by which it was refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stub {
    /// The target's registers.
    pub registers: [u64; REGISTERS],
    /// How many of them count.
    pub count: usize,
    extra: [Extra; EXTRA],
    used: usize,
    /// Digest of all that is looked for.
    seal: u64,
}

/// A word of an area that has this value at the target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Extra {
    /// Which area.
    pub area: u64,
    /// Which of its words.
    pub at: usize,
    /// What it has to be.
    pub value: u64,
}

impl Stub {
    pub(crate) fn new(registers: &[u64; REGISTERS], count: usize) -> Self {
        let mut stub = Self {
            registers: *registers,
            count,
            extra: [Extra::default(); EXTRA],
            used: 0,
            seal: 0,
        };
        stub.seal = stub.digest();
        stub
    }

    fn digest(&self) -> u64 {
        let registers = self.registers[..self.count].iter().copied();
        let extra = self.extra().iter();
        let extra = extra.flat_map(|it| [it.area, it.at as u64, it.value]);
        registers.chain(extra).fold(0, digest)
    }

    /// Is what is looked for still what was meant? A search with damage finds nothing.
    pub(crate) fn is_whole(&self) -> bool {
        self.seal == self.digest()
    }

    /// The words beside registers.
    #[must_use]
    pub fn extra(&self) -> &[Extra] {
        &self.extra[..self.used]
    }

    /// Takes a word in, the oldest but one going if there is no room.
    pub(crate) fn refine(&mut self, word: Extra) {
        if self.extra().contains(&word) {
            return;
        }
        let at = self.used.min(EXTRA - 1);
        self.extra[at] = word;
        self.used = at + 1;
        self.seal = self.digest();
    }

    /// Flips one bit of it, for fault injection.
    pub fn flip(&mut self, word: usize, bit: u32) {
        let all = self.count + self.used;
        match (word % all).checked_sub(self.count) {
            None => self.registers[word % all] ^= 1 << bit,
            Some(at) => self.extra[at].value ^= 1 << bit,
        }
    }
}

/// Looks up what was written; `None` if two looks in a row differ again and again.
pub(crate) fn sealed(
    machine: &mut impl Machine,
    list: &mut [u64],
    guards: Guards,
) -> Option<usize> {
    /// Looks before a replica takes itself for broken.
    const LOOKS: usize = 3;
    (0..LOOKS).find_map(|_| {
        let found = machine.written(list);
        let digest = found.map(|count| list_digest(&list[..count]));
        let same = digest == machine.seal(list.len()) || guards.off(Bug::ListUnsealed);
        let count = found.unwrap_or_else(|| {
            list[0] = EVERYTHING;
            1
        });
        same.then_some(count)
    })
}

/// The vectors and the pages of both lists, each once.
pub(crate) struct Union {
    areas: [u64; 2 * PAGES + 1],
    count: usize,
}

impl Union {
    pub(crate) fn of(one: &[u64], other: &[u64], guards: Guards) -> Self {
        let mut union = Self {
            areas: [0; 2 * PAGES + 1],
            count: 0,
        };
        if !guards.off(Bug::VectorsUncompared) {
            union.add(VECTORS);
        }
        if guards.off(Bug::MemoryUncompared) {
            return union;
        }
        let all = [one, other]
            .iter()
            .any(|list| list.first() == Some(&EVERYTHING));
        if all {
            union.add(EVERYTHING);
            return union;
        }
        let (mut one, mut other) = (one, other);
        while let Some(&next) = one.first().into_iter().chain(other.first()).min() {
            union.add(next);
            one = behind(one, next);
            other = behind(other, next);
        }
        union
    }

    fn add(&mut self, area: u64) {
        self.areas[self.count] = area;
        self.count += 1;
    }

    pub(crate) fn areas(&self) -> &[u64] {
        &self.areas[..self.count]
    }
}

/// The list without `page` at its begin. A damaged list is in no order, and still gets shorter.
fn behind(list: &[u64], page: u64) -> &[u64] {
    match list.split_first() {
        Some((&first, rest)) if first == page => rest,
        _ => list,
    }
}

/// The digest of one area with its number.
pub(crate) fn area_digest(machine: &impl Machine, area: u64) -> u64 {
    let head = digest(0x6172_6561, area);
    if area == EVERYTHING {
        return digest(head, machine.everything());
    }
    if let Some(content) = machine.content(area) {
        return digest(head, content);
    }
    let mut words = [0; SHEET];
    let len = machine.area(area, &mut words);
    words[..len]
        .iter()
        .fold(head, |all, &word| digest(all, word))
}

/// The digest of the state: registers, and all areas of the union.
pub(crate) fn state_digest(machine: &impl Machine, registers: &[u64], union: &Union) -> u64 {
    each_digest(machine, registers, union, |_, _| {})
}

/// The same, with the digest of each area told by its place in the union.
pub(crate) fn each_digest(
    machine: &impl Machine,
    registers: &[u64],
    union: &Union,
    mut tell: impl FnMut(usize, u64),
) -> u64 {
    let head = registers.iter().fold(0, |all, &word| digest(all, word));
    let areas = union.areas().iter().enumerate();
    areas.fold(head, |all, (at, &area)| {
        let one = area_digest(machine, area);
        tell(at, one);
        digest(all, one)
    })
}

/// A word by which an area differs from the target's: not the first, where counters of outer loops
/// often are, but the last, and by parity of `turn` the one in the middle.
pub(crate) fn differing(
    machine: &impl Machine,
    area: u64,
    target: &[u64],
    turn: u8,
) -> Option<Extra> {
    let mut words = [0; SHEET];
    let len = machine.area(area, &mut words).min(target.len());
    let differs = |&at: &usize| words[at] != target[at];
    let count = (0..len).filter(differs).count();
    let pick = if turn & 2 == 0 {
        count.checked_sub(1)?
    } else {
        count / 2
    };
    let at = (0..len).filter(differs).nth(pick)?;
    Some(Extra {
        area,
        at,
        value: target[at],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_hold_each_page_once_and_end_for_damaged_lists() {
        let union = |one: &[u64], other: &[u64]| {
            let union = Union::of(one, other, Guards::ON);
            union.areas().to_vec()
        };
        assert_eq!(union(&[1, 4], &[2, 4, 9]), [VECTORS, 1, 2, 4, 9]);
        assert_eq!(union(&[], &[]), [VECTORS]);
        assert_eq!(union(&[1], &[EVERYTHING]), [VECTORS, EVERYTHING]);
        assert_eq!(union(&[9, 1], &[2]).len(), 4);
        let full: [u64; PAGES] = core::array::from_fn(|at| at as u64);
        let other = full.map(|page| page + 1000);
        assert_eq!(union(&full, &other).len(), 2 * PAGES + 1);
    }

    #[test]
    fn a_stub_takes_words_up_to_its_room() {
        let mut stub = Stub::new(&[0; REGISTERS], 4);
        for at in 0..40 {
            let word = Extra {
                area: 1,
                at,
                value: 7,
            };
            stub.refine(word);
            stub.refine(word);
            assert_eq!(stub.extra().len(), (at + 1).min(EXTRA));
            assert_eq!(stub.extra().last(), Some(&word));
        }
    }
}

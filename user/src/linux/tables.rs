//! Page tables of address spaces: which there are, and which are free to be put elsewhere.
//!
//! A space keeps the few that most programs need. One that has more when nothing is mapped in it
//! any more gives all of them to whoever needs one next: programs that come and go may use pages
//! anywhere.

use rcoe_abi::Error;

use super::tasks::MEMORIES;

/// Most tables that a space keeps for the next program.
const FEW: u64 = 24;

/// Lists of tables, by their slots: a link leads to the next one, which was put there before.
#[derive(Debug)]
pub(crate) struct Tables {
    /// One more than the next slot of the list, counted from the first one, or 0.
    links: &'static mut [u64],
    first: u64,
    free: u64,
    spaces: [List; MEMORIES],
}

#[derive(Clone, Copy, Debug, Default)]
struct List {
    head: u64,
    count: u64,
}

impl Tables {
    /// No tables: they will be in slots from `first` on, as many as there are links.
    pub(crate) fn new(links: &'static mut [u64], first: u64) -> Self {
        Self {
            links,
            first,
            free: 0,
            spaces: [List::default(); MEMORIES],
        }
    }

    /// Is there a slot of this number?
    pub(crate) fn has(&self, slot: u64) -> bool {
        slot - self.first < self.links.len() as u64
    }

    fn link(&mut self, number: u64) -> &mut u64 {
        let at = usize::try_from(number);
        &mut self.links[at.unwrap_or(usize::MAX)]
    }

    /// A table that is mapped nowhere, if there is one.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let number = self.free.checked_sub(1)?;
        self.free = *self.link(number);
        Some(self.first + number)
    }

    /// A table is mapped nowhere.
    pub(crate) fn give(&mut self, slot: u64) {
        let number = slot - self.first;
        *self.link(number) = self.free;
        self.free = number + 1;
    }

    /// A table is mapped in a space.
    pub(crate) fn hold(&mut self, space: usize, slot: u64) {
        let number = slot - self.first;
        *self.link(number) = self.spaces[space].head;
        self.spaces[space].head = number + 1;
        self.spaces[space].count += 1;
    }

    /// Nothing is mapped in a space: gives its tables, if they are many, the last one first, so
    /// that none is taken out before those below it. `unmap` takes out that in a slot.
    ///
    /// # Errors
    /// The first of `unmap`.
    pub(crate) fn leave(
        &mut self,
        space: usize,
        mut unmap: impl FnMut(u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.spaces[space].count <= FEW {
            return Ok(());
        }
        while let Some(number) = self.spaces[space].head.checked_sub(1) {
            let slot = self.first + number;
            unmap(slot)?;
            self.spaces[space].head = *self.link(number);
            self.spaces[space].count -= 1;
            self.give(slot);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    fn tables() -> Tables {
        Tables::new(Box::leak(vec![0; 64].into_boxed_slice()), 100)
    }

    #[test]
    fn a_space_keeps_few_tables_and_gives_many_the_last_one_first() {
        let mut tables = tables();
        for slot in 100..100 + FEW {
            tables.hold(1, slot);
        }
        let leave = |tables: &mut Tables, space| {
            let mut unmapped = Vec::new();
            let done = tables.leave(space, |slot| {
                unmapped.push(slot);
                Ok(())
            });
            assert_eq!(done, Ok(()));
            unmapped
        };
        assert_eq!(leave(&mut tables, 1), [0; 0]);
        assert_eq!(tables.take(), None);
        tables.hold(2, 130);
        tables.hold(1, 100 + FEW);
        let all: Vec<u64> = (100..=100 + FEW).rev().collect();
        assert_eq!(leave(&mut tables, 1), all);
        assert_eq!(leave(&mut tables, 1), [0; 0]);
        let mut taken: Vec<u64> = core::iter::from_fn(|| tables.take()).collect();
        taken.sort_unstable();
        assert_eq!(taken, all.into_iter().rev().collect::<Vec<u64>>());
    }

    #[test]
    fn one_that_cannot_be_taken_out_stays() {
        let mut tables = tables();
        for slot in 100..130 {
            tables.hold(0, slot);
        }
        let failed = tables.leave(0, |slot| match slot {
            128 => Err(Error::IllegalOperation),
            _ => Ok(()),
        });
        assert_eq!(failed, Err(Error::IllegalOperation));
        assert_eq!((tables.take(), tables.take()), (Some(129), None));
        assert!(tables.has(163) && !tables.has(164));
    }
}

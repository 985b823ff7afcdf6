//! Where instructions of a program are rewritten.

use crate::arch::recognise::Found;
use crate::arch::tsc::Ranges;
use crate::lifetime::{PerProgram, Program};

/// Most rewritten instructions in one program. Others are left as they are, and the user is told.
pub(super) const SITES: usize = 4096;

/// `hlt`, which traps, and `nop`: the first two bytes of what is rewritten.
pub(super) const PLANTED: [u8; 2] = [0xf4, 0x90];

/// Rewritten instructions of this program: address and [`Found::pack`], without gaps, since
/// replicas are compared byte by byte. Zeroes are none.
#[repr(C)]
pub(crate) struct Traps {
    count: usize,
    /// Not 0: one that reads the counter may have been overlooked.
    distrusted: u64,
    /// Where there is code.
    pub(crate) code: Ranges,
    sites: [[u64; 2]; SITES],
}

impl PerProgram for Traps {
    /// Nothing is rewritten, and nobody has found a reason to distrust the code.
    fn in_program(&mut self, _: &Program) {
        let Self {
            sites,
            count,
            code,
            distrusted,
        } = self;
        sites[..*count].fill([0; 2]);
        *count = 0;
        code.clear();
        *distrusted = 0;
    }
}

impl Traps {
    /// May one that reads the counter have been overlooked?
    pub(crate) const fn is_distrusted(&self) -> bool {
        self.distrusted != 0
    }

    /// One may be, from here on.
    pub(crate) const fn distrust(&mut self) {
        self.distrusted = 1;
    }

    /// What was rewritten at this address.
    pub(super) fn find(&self, address: u64) -> Option<Found> {
        self.sites[..self.count]
            .iter()
            .find(|[at, _]| *at == address)
            .map(|[_, what]| Found::unpack(*what))
    }

    /// Is there room for this one?
    pub(super) fn has_room(&self, address: u64) -> bool {
        self.count < SITES || self.find(address).is_some()
    }

    /// Something was rewritten there.
    ///
    /// # Panics
    /// If there is no room.
    pub(super) fn add(&mut self, address: u64, what: Found) {
        if let Some(known) = self.sites[..self.count]
            .iter_mut()
            .find(|[at, _]| *at == address)
        {
            known[1] = what.pack();
            return;
        }
        self.sites[self.count] = [address, what.pack()];
        self.count += 1;
    }

    /// Address and kind of each.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, Found)> {
        let sites = self.sites[..self.count].iter();
        sites.map(|&[at, what]| (at, Found::unpack(what)))
    }

    /// What begins in `len` bytes is at `new` as well; false if there is no room for all of it.
    /// Bytes may come back, so the old addresses stay.
    pub(super) fn moved(&mut self, start: u64, len: u64, new: u64) -> bool {
        let known = self.count;
        let mut all = true;
        for index in 0..known {
            let [at, what] = self.sites[index];
            if at.wrapping_sub(start) < len {
                let address = new.wrapping_add(at - start);
                let room = self.has_room(address);
                all &= room;
                if room {
                    self.add(address, Found::unpack(what));
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Box<Traps> {
        let layout = std::alloc::Layout::new::<Traps>();
        // SAFETY: zeroes are no sites; the layout is its own.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast::<Traps>()) }
    }

    #[test]
    fn what_moves_is_found_at_both_places() {
        let mut traps = none();
        traps.add(0x1010, Found::Random(3));
        traps.add(0x1ff0, Found::Counter(2));
        traps.add(0x2000, Found::Cpuid);
        assert!(traps.moved(0x1000, 0x1000, 0x8000));
        let places = [
            (0x1010, Some(Found::Random(3))),
            (0x8010, Some(Found::Random(3))),
            (0x8ff0, Some(Found::Counter(2))),
            (0x2000, Some(Found::Cpuid)),
            (0x9000, None),
        ];
        for (at, what) in places {
            assert_eq!(traps.find(at), what, "{at:x}");
        }
        assert_eq!(traps.all().count(), 5);
    }

    #[test]
    fn what_finds_no_room_when_it_moves_is_told() {
        let mut traps = none();
        (0..SITES as u64 - 1).for_each(|at| traps.add(0x1000 + at, Found::Cpuid));
        assert!(traps.moved(0x1000, 1, 0x1_0000));
        assert!(!traps.moved(0x1000, 2, 0x2_0000));
        assert!(traps.moved(0x1000, 1, 0x1_0000), "it is there");
    }
}

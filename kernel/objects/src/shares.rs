//! Which pages of device memory are mapped where, and which threads know who is the primary. What
//! they are for is told in [`crate::shared`].

use rcoe_abi::Rights;

use crate::Ref;
use crate::cap::Mapping;
use crate::digest::Checksum;

/// Most mappings at a time.
pub(crate) const SHARES: usize = 16;
/// Most threads that are told whether theirs is the primary.
const DRIVERS: usize = 8;

/// A mapping of a page of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) page: u32,
    pub(crate) rights: Rights,
    pub(crate) mapping: Mapping,
    /// Whose page it is: that of the primary when it was mapped, or when its driver last met.
    pub(crate) primary: u64,
}

impl Share {
    pub(crate) const NONE: Self = Self {
        page: 0,
        rights: Rights::NONE,
        mapping: Mapping {
            asid: 0,
            address: 0,
        },
        primary: 0,
    };

    pub(crate) const fn is_none(&self) -> bool {
        self.mapping.asid == 0
    }
}

/// All mappings of device memory, and the threads that know.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) all: [Share; SHARES],
    /// Threads that were told whether theirs is the primary.
    pub(crate) drivers: [Ref; DRIVERS],
}

impl Shares {
    pub(crate) const fn new() -> Self {
        Self {
            all: [Share::NONE; SHARES],
            drivers: [Ref::NONE; DRIVERS],
        }
    }

    /// A thread ends.
    pub(crate) fn forget_driver(&mut self, tcb: Ref) {
        for driver in &mut self.drivers {
            if *driver == tcb {
                *driver = Ref::NONE;
            }
        }
    }

    /// The place of a thread among those that know, or one that is free.
    pub(crate) fn place_of(&self, tcb: Ref) -> Option<usize> {
        let find = |sought: Ref| self.drivers.iter().position(|&driver| driver == sought);
        find(tcb).or_else(|| find(Ref::NONE))
    }

    /// Threads that were told whether theirs is the primary.
    pub(crate) fn drivers(&self) -> impl Iterator<Item = Ref> {
        self.drivers.iter().filter_map(|driver| driver.some())
    }

    pub(crate) fn sum(&self, sum: &mut Checksum) {
        for share in &self.all {
            let mapping = share.mapping;
            sum.words(&[u64::from(mapping.asid), mapping.address, share.primary]);
            sum.word(u64::from(share.page) << 8 | share.rights.word());
        }
        for driver in &self.drivers {
            sum.word(u64::from(driver.units()));
        }
    }

    /// Its mapping of a page.
    pub(crate) fn of(&self, page: u32, mapping: Mapping) -> Option<usize> {
        let is = |share: &Share| share.page == page && share.mapping == mapping;
        self.all.iter().position(is)
    }
}

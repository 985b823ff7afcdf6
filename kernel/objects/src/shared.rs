//! Mappings shared between replicas (EDCC'15, IV-D; DSN'19, III-E): pages of device memory in the
//! address spaces of drivers.
//!
//! A page of transfer memory is mapped at the same address in all replicas, and it is one page: the
//! primary's, which the primary alone can write. So a driver can have its primary's replica put
//! input there, or a device store it there, and all read it without a copy by the kernel. A page of
//! registers is seen, for reading, by the primary alone; for the others it is blank.
//!
//! Every replica has transfer memory of its own and nobody writes another's, so neither a faulty
//! follower nor a primary that was removed can spoil what the present one gives.
//!
//! *Whose* page it is changes where a driver says, not when the primary is lost: at
//! [`rcoe_abi::Label::SharedMeet`], where all replicas are at one point of the trace. In between
//! they read what they were reading, though its writer may be gone. A driver meets before its
//! primary writes and again before all read; if the generation changed in between, what was written
//! may be half of it, and they begin again.
//!
//! The second word of a meeting's answer says whether this replica is the primary. It is the one
//! answer that differs between replicas, so the capability is for drivers, which are trusted to let
//! nothing but the content of the page depend on it. What is in the page is outside the sphere
//! until a driver adds it to the trace, as in the papers: followers that read it differently are
//! found, a primary that wrote something wrong is not.

use rcoe_abi::{Error, Label, Rights, layout};
use rcoe_core::mix;

use crate::arch;
use crate::cap::Mapping;
use crate::kernel::Kernel;
use crate::request::{Answer, Arguments};
use crate::shares::{SHARES, Share};
use crate::sphere::{Sphere, kind};
use crate::{Cap, Ref};

/// What is to be done: checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Make a capability to one of the pages that `source` stands for.
    Make {
        source: Ref,
        to: Ref,
        cap: Cap,
    },
    Map {
        slot: Ref,
        share: Share,
    },
    Unmap {
        slot: Ref,
    },
    Meet {
        place: usize,
    },
}

/// Is this page of device memory transfer memory?
const fn is_transfer(page: u32) -> bool {
    let page = page as u64;
    layout::DMA_PAGE <= page && page < layout::DMA_PAGE + layout::DMA_PAGES
}

impl<S: Sphere> Kernel<'_, S> {
    /// What making a capability to one of these pages asks.
    pub(crate) fn decode_device_frame(
        &self,
        message: Arguments,
        (first, last): (u32, u32),
    ) -> Result<Operation, Error> {
        let [page, pointer] = self.arguments(message)?;
        let page = u32::try_from(page).map_err(|_| Error::RangeError)?;
        if page > last - first {
            return Err(Error::RangeError);
        }
        let to = self.vacant_slot(message, pointer)?;
        let page = first + page;
        let rights = if is_transfer(page) {
            Rights::READ_WRITE
        } else {
            Rights::READ
        };
        let cap = Cap::Shared {
            page,
            rights,
            mapping: Mapping::default(),
        };
        Ok(Operation::Make {
            source: message.slot,
            to,
            cap,
        })
    }

    /// What a message asks of such a page.
    pub(crate) fn decode_shared(
        &self,
        message: Arguments,
        label: Label,
    ) -> Result<Operation, Error> {
        let slot = message.slot;
        let Cap::Shared {
            page,
            rights,
            mapping,
        } = self.cap(slot)
        else {
            return Err(Error::InvalidCapability);
        };
        match label {
            Label::SharedMeet => {
                let place = self.shares.place_of(message.tcb);
                let place = place.ok_or(Error::NotEnoughMemory)?;
                return Ok(Operation::Meet { place });
            }
            Label::FrameUnmap => return Ok(Operation::Unmap { slot }),
            Label::FrameMap => {}
            _ => return Err(Error::IllegalOperation),
        }
        let [space, address, wanted] = self.arguments(message)?;
        let (root, asid) = self.space(message.tcb, space, address)?;
        let rights = rights.and(Rights::from_word(wanted));
        // A guest never meets anybody.
        if !rights.contains(Rights::READ) || self.is_guest_space(root) {
            return Err(Error::AccessDenied);
        }
        if mapping.asid != 0 {
            return Err(Error::DeleteFirst);
        }
        self.check_vacant(root, address, 0)?;
        if !self.shares.all.iter().any(Share::is_none) {
            return Err(Error::NotEnoughMemory);
        }
        let share = Share {
            page,
            rights,
            mapping: Mapping { asid, address },
            primary: self.sphere.primary(),
        };
        Ok(Operation::Map { slot, share })
    }

    /// Does it, for `caller`.
    pub(crate) fn invoke_shared(&mut self, caller: Ref, operation: Operation) -> Answer {
        match operation {
            Operation::Make { source, to, cap } => self.insert_derived(to, cap, source),
            Operation::Map { slot, share } => self.map_shared(slot, share),
            Operation::Unmap { slot } => {
                let Cap::Shared {
                    page,
                    rights,
                    mapping,
                } = self.cap(slot)
                else {
                    panic!("decoding found such a page");
                };
                self.unmap_shared(page, mapping);
                let mapping = Mapping::default();
                let cap = Cap::Shared {
                    page,
                    rights,
                    mapping,
                };
                self.set_cap(slot, cap);
            }
            Operation::Meet { place } => return Answer::two(self.meet(caller, place), 1),
        }
        Answer::NOTHING
    }

    fn map_shared(&mut self, slot: Ref, share: Share) {
        let Cap::Shared { page, rights, .. } = self.cap(slot) else {
            panic!("decoding found such a page");
        };
        let mapping = share.mapping;
        let root = self.root_of(mapping).expect("decoding found the space");
        let table = self.walk(root, mapping.address, 0);
        let table = table.expect("decoding found the table");
        if let Some(number) = self.shares.of(page, mapping) {
            // One whose table or space was taken away since.
            self.shares.all[number] = Share::NONE;
        }
        let place = self.shares.all.iter_mut().find(|place| place.is_none());
        *place.expect("decoding found a place") = share;
        // What joins the trace is the page: where it is may differ.
        let entry = self.entry(&share, self.leads(&share));
        self.set_entry(table, mapping.address, 0, entry);
        let cap = Cap::Shared {
            page,
            rights,
            mapping,
        };
        self.set_cap(slot, cap);
    }

    /// Is this replica the one that writes it?
    fn leads(&self, share: &Share) -> bool {
        let own = self.sphere.own();
        share.primary == own && self.sphere.primary() == own
    }

    /// The entry that maps it in the primary, or in another replica. It is never executable.
    fn entry(&self, share: &Share, leads: bool) -> u64 {
        let place = self.sphere.device_page(share.page, share.primary);
        match (is_transfer(share.page), leads) {
            (true, true) => arch::leaf(place, share.rights.and(Rights::READ_WRITE)),
            (true, false) => arch::leaf(place, Rights::READ),
            (false, true) => arch::register_leaf(place),
            (false, false) => arch::register_leaf(self.sphere.blank_page()),
        }
    }

    /// The table entry that maps it, if it is still there: table and entry.
    fn entry_place(&self, share: &Share) -> Option<(Ref, usize)> {
        let root = self.root_of(share.mapping)?;
        let table = self.walk(root, share.mapping.address, 0).ok()?;
        let index = arch::index(share.mapping.address, 0);
        let entry = self.mem.get(table, index);
        let known = [false, true].map(|leads| self.entry(share, leads));
        let there = !share.is_none() && known.contains(&arch::unused(entry));
        there.then_some((table, index))
    }

    /// Takes a page out of the space that a capability remembers, if it is still there.
    pub(crate) fn unmap_shared(&mut self, page: u32, mapping: Mapping) {
        if mapping.asid == 0 {
            return;
        }
        let Some(number) = self.shares.of(page, mapping) else {
            return;
        };
        let share = self.shares.all[number];
        self.shares.all[number] = Share::NONE;
        if let Some((table, _)) = self.entry_place(&share) {
            self.set_entry(table, mapping.address, 0, 0);
            self.sphere.flush();
        }
    }

    /// All replicas meet: generation, and whether this one is the primary. The pages in the
    /// caller's space are those of the present primary from here on.
    fn meet(&mut self, caller: Ref, place: usize) -> [u64; 2] {
        self.shares.drivers[place] = caller;
        self.sphere.vote();
        let (primary, generation) = (self.sphere.primary(), self.sphere.generation());
        self.sphere.event(kind::INPUT, mix(generation) ^ primary);
        if let Cap::VSpace { asid, .. } = self.cap(Self::vspace_slot(caller)) {
            self.aim(asid, primary);
        }
        [generation, u64::from(primary == self.sphere.own())]
    }

    /// Does a thread run whose way does not depend on who is the primary? Replicas that run such a
    /// thread can come to one instruction.
    #[must_use]
    pub fn may_race(&self) -> bool {
        let current = self.current;
        !current.is_none() && !self.shares.drivers.contains(&current)
    }

    fn aim(&mut self, asid: u16, primary: u64) {
        for number in 0..SHARES {
            let share = self.shares.all[number];
            if share.mapping.asid != asid {
                continue;
            }
            let place = self.entry_place(&share);
            let share = Share { primary, ..share };
            self.shares.all[number] = share;
            self.renew(place, &share);
            if let Some((table, _)) = place {
                self.tell_entry(table, share.mapping.address, 0);
            }
        }
    }

    fn renew(&mut self, place: Option<(Ref, usize)>, share: &Share) {
        let entry = self.entry(share, self.leads(share));
        if let Some((table, index)) = place
            && arch::unused(self.mem.get(table, index)) != entry
        {
            self.mem.set(table, index, entry);
            self.sphere.flush();
        }
    }

    /// A copy: its entries are those of another replica.
    pub(crate) fn aim_all(&mut self) {
        for number in 0..SHARES {
            let share = self.shares.all[number];
            let place = self.entry_place(&share);
            self.renew(place, &share);
        }
    }

    /// What an entry counts as that maps device memory: the same in all replicas.
    pub(crate) fn shared_page(&self, entry: u64) -> Option<u64> {
        let entry = arch::unused(entry);
        let share = self.shares.all.iter().find(|share| {
            // One that was lost and is back does not write before its driver meets.
            let known = |leads| self.entry(share, leads) == entry;
            !share.is_none() && (known(false) || known(self.leads(share)))
        })?;
        // For followers all registers are one page.
        let page = is_transfer(share.page).then_some(share.page);
        Some(u64::from(page.unwrap_or(u32::MAX)) << 8 | 2)
    }
}

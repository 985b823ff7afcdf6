//! Frames and page tables: mapping them into address spaces ([`crate::space`]), and unmapping them.

use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, Label, Rights};

use crate::cap::{Mapping, frame_bits};
use crate::kernel::Kernel;
use crate::request::{Answer, Arguments};
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// What is to be done: checked. `cap` is what the slot holds then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    MapFrame {
        slot: Ref,
        root: Ref,
        rights: Rights,
        cap: Cap,
    },
    MapTable {
        slot: Ref,
        root: Ref,
        level: usize,
        cap: Cap,
    },
    Unmap {
        slot: Ref,
    },
}

impl<S: Sphere> Kernel<'_, S> {
    /// The root table and number of a space, for mapping at `address`.
    pub(crate) fn space(&self, tcb: Ref, pointer: u64, address: u64) -> Result<(Ref, u16), Error> {
        let (_, Cap::VSpace { obj, asid }) = self.lookup_cap(tcb, pointer)? else {
            return Err(Error::InvalidCapability);
        };
        if !address.is_multiple_of(PAGE) {
            return Err(Error::AlignmentError);
        }
        if address >= self.end_of_space(obj) {
            return Err(Error::RangeError);
        }
        Ok((obj, asid))
    }

    /// What a message asks of a frame.
    pub(crate) fn decode_frame(
        &self,
        message: Arguments,
        label: Label,
    ) -> Result<Operation, Error> {
        let slot = message.slot;
        let Cap::Frame {
            obj,
            level,
            rights,
            mapping,
        } = self.cap(slot)
        else {
            return Err(Error::InvalidCapability);
        };
        match label {
            Label::FrameUnmap => return Ok(Operation::Unmap { slot }),
            Label::FrameMap => {}
            _ => return Err(Error::IllegalOperation),
        }
        let [space, address, wanted] = self.arguments(message)?;
        let (root, asid) = self.space(message.tcb, space, address)?;
        if !address.is_multiple_of(1 << frame_bits(level)) {
            return Err(Error::AlignmentError);
        }
        let granted = rights.and(Rights::from_word(wanted));
        // A guest sees to itself.
        let allowed = self.sphere.allows(granted) || self.is_guest_space(root);
        if !granted.contains(Rights::READ) || !allowed {
            return Err(Error::AccessDenied);
        }
        if mapping.asid != 0 {
            return Err(Error::DeleteFirst);
        }
        self.check_vacant(root, address, level as usize)?;
        let mapping = Mapping { asid, address };
        let cap = Cap::Frame {
            obj,
            level,
            rights,
            mapping,
        };
        Ok(Operation::MapFrame {
            slot,
            root,
            rights: granted,
            cap,
        })
    }

    /// What a message asks of a page table.
    pub(crate) fn decode_table(
        &self,
        message: Arguments,
        label: Label,
    ) -> Result<Operation, Error> {
        let slot = message.slot;
        let Cap::Table { obj, mapping, .. } = self.cap(slot) else {
            return Err(Error::InvalidCapability);
        };
        match label {
            Label::TableUnmap => return Ok(Operation::Unmap { slot }),
            Label::TableMap => {}
            _ => return Err(Error::IllegalOperation),
        }
        let [space, address] = self.arguments(message)?;
        let (root, asid) = self.space(message.tcb, space, address)?;
        if mapping.asid != 0 {
            return Err(Error::DeleteFirst);
        }
        let level = self.missing_level(root, address)?;
        let mapping = Mapping { asid, address };
        let cap = Cap::Table {
            obj,
            level: u32::try_from(level).map_err(|_| Error::RangeError)?,
            mapping,
        };
        Ok(Operation::MapTable {
            slot,
            root,
            level,
            cap,
        })
    }

    /// Does it.
    pub(crate) fn invoke_frame(&mut self, operation: Operation) -> Answer {
        match operation {
            Operation::MapFrame {
                slot,
                root,
                rights,
                cap,
            } => {
                if let Cap::Frame {
                    obj,
                    level,
                    mapping,
                    ..
                } = cap
                {
                    self.map_frame(root, mapping.address, (obj, level), rights);
                    self.set_cap(slot, cap);
                }
            }
            Operation::MapTable {
                slot,
                root,
                level,
                cap,
            } => {
                if let Cap::Table { obj, mapping, .. } = cap {
                    self.map_table(root, mapping.address, level, obj);
                    self.set_cap(slot, cap);
                }
            }
            Operation::Unmap { slot } => self.unmap(slot),
        }
        Answer::NOTHING
    }

    /// Takes what is mapped out of its space, and forgets where it was.
    fn unmap(&mut self, slot: Ref) {
        let unmapped = Mapping::default();
        let cap = match self.cap(slot) {
            Cap::Frame {
                obj,
                level,
                rights,
                mapping,
            } => {
                self.unmap_frame(obj, level, mapping);
                Cap::Frame {
                    obj,
                    level,
                    rights,
                    mapping: unmapped,
                }
            }
            Cap::Table {
                obj,
                level,
                mapping,
            } => {
                self.unmap_table(obj, level, mapping);
                Cap::Table {
                    obj,
                    level: 0,
                    mapping: unmapped,
                }
            }
            other => unreachable!("decoding found {other:?} mapped"),
        };
        self.set_cap(slot, cap);
    }
}

//! What copying or minting makes of a capability, of whatever kind.

use rcoe_abi::{Error, Rights};

use crate::cap::Mapping;
use crate::cnode::guarded;
use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{Cap, Ref, device, port};

impl<S: Sphere> Kernel<'_, S> {
    /// The capability that copying or minting makes of `cap`.
    pub(crate) fn derive(
        &self,
        slot: Ref,
        cap: Cap,
        rights: u64,
        badge: Option<u64>,
    ) -> Result<Cap, Error> {
        let mask = Rights::from_word(rights);
        match cap {
            Cap::Untyped { .. } if self.has_children(slot) => Err(Error::RevokeFirst),
            // Its place in an address space is one, so is its capability.
            Cap::Table { .. } | Cap::IrqControl => Err(Error::IllegalOperation),
            Cap::Endpoint {
                obj,
                rights,
                badge: old,
            } => Ok(Cap::Endpoint {
                obj,
                rights: rights.and(mask),
                badge: new_badge(old, badge)?,
            }),
            Cap::Notification {
                obj,
                rights,
                badge: old,
            } => Ok(Cap::Notification {
                obj,
                rights: rights.and(mask),
                badge: new_badge(old, badge)?,
            }),
            Cap::Frame {
                obj, level, rights, ..
            } => Ok(Cap::Frame {
                obj,
                level,
                rights: rights.and(mask),
                mapping: Mapping::default(),
            }),
            Cap::Shared { page, rights, .. } => Ok(Cap::Shared {
                page,
                rights: rights.and(mask),
                mapping: Mapping::default(),
            }),
            Cap::CNode { obj, bits, .. } if badge.is_some() => guarded(obj, bits, badge),
            Cap::Ports { first, last } if badge.is_some() => port::narrowed(first, last, badge),
            Cap::Devices { first, last } => device::narrowed(first, last, badge),
            other => Ok(other),
        }
    }
}

/// A badge is given once.
fn new_badge(old: u64, wanted: Option<u64>) -> Result<u64, Error> {
    match wanted {
        Some(badge) if old == 0 => Ok(badge),
        Some(_) => Err(Error::IllegalOperation),
        None => Ok(old),
    }
}

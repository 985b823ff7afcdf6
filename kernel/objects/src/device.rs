//! Device memory: registers of memory-mapped devices, and frames that devices write into.
//!
//! A device is outside the sphere and there is one of it, so the primary alone touches it (DSN'19,
//! III-E). What is read reaches all replicas as one value (`FT_Mem_Access`); what is written is
//! voted first. A device that moves data itself writes into the *primary's* frame, from where a
//! replication gives it to all (`FT_Mem_Rep`). Programs see no physical address, so the kernel
//! writes that of a frame into the device's register, each primary its own; which primary's it was
//! is the *generation*, by which a driver learns that it must begin again with a new primary.
//!
//! Not covered: there is no unit that would keep a device to the memory it was told of. A driver
//! that writes numbers of its own into an address register harms the primary, as in the papers.

use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, Label, Rights};
use rcoe_core::mix;

use crate::decode::Arguments;
use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// What is to be done: checked. A place is a byte of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read {
        place: u64,
        width: u8,
        repeatable: bool,
    },
    Write {
        place: u64,
        width: u8,
        value: u64,
    },
    /// Of the device's going to read `words`, first and number.
    WriteAddress {
        place: u64,
        width: u8,
        frame: Ref,
        at: u64,
        words: (usize, usize),
    },
    /// Words of a frame, first and number.
    Replicate {
        frame: Ref,
        words: (usize, usize),
        generation: u64,
    },
}

/// Fewer pages: first and last in the halves of the badge.
pub(crate) fn narrowed(first: u32, last: u32, badge: Option<u64>) -> Result<Cap, Error> {
    let Some(badge) = badge else {
        return Ok(Cap::Devices { first, last });
    };
    let [a, b, c, d, e, f, g, h] = badge.to_le_bytes();
    let (from, to) = (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    );
    if from < first || to > last || from > to {
        return Err(Error::RangeError);
    }
    Ok(Cap::Devices {
        first: from,
        last: to,
    })
}

/// Where in device memory `offset` from page `first` on is, for an access of `width` bytes.
fn place_of((first, last): (u32, u32), offset: u64, width: u64) -> Result<(u64, u8), Error> {
    let (1 | 2 | 4 | 8) = width else {
        return Err(Error::InvalidArgument);
    };
    if !offset.is_multiple_of(width) {
        return Err(Error::AlignmentError);
    }
    if offset >= (u64::from(last - first) + 1) * PAGE {
        return Err(Error::RangeError);
    }
    let width = u8::try_from(width).map_err(|_| Error::RangeError)?;
    Ok((u64::from(first) * PAGE + offset, width))
}

/// Words of a frame, first and number, from bytes.
fn words_of(at: u64, bytes: u64) -> Result<(usize, usize), Error> {
    if !at.is_multiple_of(8) || !bytes.is_multiple_of(8) {
        return Err(Error::AlignmentError);
    }
    let end = at.checked_add(bytes).ok_or(Error::RangeError)?;
    if at >= PAGE || end > PAGE {
        return Err(Error::RangeError);
    }
    let number = |bytes: u64| usize::try_from(bytes / 8).map_err(|_| Error::RangeError);
    Ok((number(at)?, number(bytes)?))
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a message asks of device memory with these pages.
    pub(crate) fn decode_device(
        &self,
        message: Arguments,
        label: Label,
        pages: (u32, u32),
    ) -> Result<Access, Error> {
        let [offset, width] = self.arguments(message)?;
        let (place, width) = place_of(pages, offset, width)?;
        match label {
            Label::DeviceRead => Ok(Access::Read {
                place,
                width,
                repeatable: message.len > 2 && self.word(message.tcb, 2) == 1,
            }),
            Label::DeviceWrite => {
                let [_, _, value] = self.arguments(message)?;
                if width < 8 && value >> (8 * width) != 0 {
                    return Err(Error::RangeError);
                }
                Ok(Access::Write {
                    place,
                    width,
                    value,
                })
            }
            Label::DeviceWriteAddress => self.decode_address(message, place, width),
            _ => Err(Error::IllegalOperation),
        }
    }

    fn decode_address(&self, message: Arguments, place: u64, width: u8) -> Result<Access, Error> {
        let [_, _, pointer, at, bytes] = self.arguments(message)?;
        if width < 4 {
            return Err(Error::InvalidArgument);
        }
        let (_, Cap::Frame { obj, rights, .. }) = self.lookup_cap(message.tcb, pointer)? else {
            return Err(Error::InvalidCapability);
        };
        // Nothing keeps a device from writing where it was to read.
        if !rights.contains(Rights::READ_WRITE) {
            return Err(Error::AccessDenied);
        }
        Ok(Access::WriteAddress {
            place,
            width,
            frame: obj,
            at,
            words: words_of(at, bytes)?,
        })
    }

    /// What a message asks of the frame `obj`.
    pub(crate) fn decode_replicate(
        &self,
        message: Arguments,
        obj: Ref,
        rights: Rights,
    ) -> Result<Access, Error> {
        let [at, bytes, generation] = self.arguments(message)?;
        if !rights.contains(Rights::READ_WRITE) {
            return Err(Error::AccessDenied);
        }
        let words = words_of(at, bytes)?;
        if words.1 == 0 {
            return Err(Error::RangeError);
        }
        Ok(Access::Replicate {
            frame: obj,
            words,
            generation,
        })
    }

    /// Does it; the word that it is answered with, if any.
    pub(crate) fn access(&mut self, access: Access) -> Option<u64> {
        match access {
            Access::Read {
                place,
                width,
                repeatable,
            } => Some(self.sphere.device_read(place, width, repeatable)),
            Access::Write {
                place,
                width,
                value,
            } => {
                self.sphere.device_write(place, width, value);
                None
            }
            Access::WriteAddress {
                place,
                width,
                frame,
                at,
                words: (first, len),
            } => {
                let words = self.mem.words(frame, first, len).iter();
                let content = words.fold(len as u64, |digest, &word| mix(digest ^ word));
                let digest = mix(content ^ u64::from(frame.units()).rotate_left(16) ^ at);
                let offset = frame.bytes() + at;
                self.sphere
                    .device_write_address(place, width, offset, digest);
                Some(self.sphere.generation())
            }
            Access::Replicate {
                frame,
                words: (first, len),
                generation,
            } => {
                let words = self.mem.words_mut(frame, first, len);
                Some(u64::from(self.sphere.replicate(words, generation)))
            }
        }
    }
}

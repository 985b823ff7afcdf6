//! Device memory: registers of memory-mapped devices, and memory that devices move data to and
//! from.
//!
//! A device is outside the sphere and there is one of it, so the primary alone touches it (DSN'19,
//! III-E). What is read reaches all replicas as one value (`FT_Mem_Access`); what is written is
//! voted first.
//!
//! A device that moves data itself reaches *transfer memory* only, which no partition contains and
//! every replica has for itself. What it is to fetch is copied there from a frame, in every
//! replica, and joins the trace. What it stored into the primary's goes from there into a frame of
//! all (`FT_Mem_Rep`). Programs are given no physical address: the kernel writes that of the
//! primary's transfer memory into the device's register, and whoever reads the register gets what
//! it holds as one value for all. Which primary's it was is the *generation*, by which a driver
//! learns that it must begin again with a new primary. Where a device finds addresses in transfer
//! memory itself, as in descriptors, each kernel stores there where its own is, and what joins the
//! trace is the place and what it leads to.
//!
//! Not covered: there is no unit that would keep a device to the memory it was told of. A driver
//! that writes numbers of its own into an address register harms the machine, as in the papers.

use core::ops::Range;

use rcoe_abi::layout::{DMA_PAGE, DMA_PAGES};
use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, Label, Rights};

use crate::cap::frame_bits;
use crate::kernel::Kernel;
use crate::memory::UNIT;
use crate::request::{Answer, Arguments};
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// What is to be done: checked. A place is a byte of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read {
        place: u64,
        width: u8,
        repeatable: bool,
    },
    Write {
        place: u64,
        width: u8,
        value: u64,
        repeatable: bool,
    },
    WriteAddress {
        place: u64,
        width: u8,
        target: u64,
        repeatable: bool,
    },
    StoreAddress {
        place: u64,
        target: u64,
    },
    CopyOut(Block),
    CopyIn {
        block: Block,
        generation: u64,
    },
}

/// Transfer memory, and words of a frame: first and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    place: u64,
    frame: Ref,
    first: usize,
    len: usize,
}

/// Transfer memory, in bytes of device memory.
const TRANSFER: Range<u64> = DMA_PAGE * PAGE..(DMA_PAGE + DMA_PAGES) * PAGE;

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

/// Where in device memory `offset` from the first of these pages on is.
fn place_of((first, last): (u32, u32), offset: u64) -> Result<u64, Error> {
    if offset >= (u64::from(last - first) + 1) * PAGE {
        return Err(Error::RangeError);
    }
    Ok(u64::from(first) * PAGE + offset)
}

/// A register's width, if there is such a register at `offset`.
fn width_of(offset: u64, width: u64) -> Result<u8, Error> {
    let (1 | 2 | 4 | 8) = width else {
        return Err(Error::InvalidArgument);
    };
    if !offset.is_multiple_of(width) {
        return Err(Error::AlignmentError);
    }
    u8::try_from(width).map_err(|_| Error::RangeError)
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a message asks of device memory with these pages.
    pub(crate) fn decode_device(
        &self,
        message: Arguments,
        label: Label,
        pages: (u32, u32),
    ) -> Result<Operation, Error> {
        let [offset, width] = self.arguments(message)?;
        let place = place_of(pages, offset)?;
        match label {
            Label::DeviceRead => Ok(Operation::Read {
                place,
                width: width_of(offset, width)?,
                repeatable: self.is_repeatable(message, 2),
            }),
            Label::DeviceWrite => {
                let [_, _, value] = self.arguments(message)?;
                let width = width_of(offset, width)?;
                if width < 8 && value >> (8 * width) != 0 {
                    return Err(Error::RangeError);
                }
                Ok(Operation::Write {
                    place,
                    width,
                    value,
                    repeatable: self.is_repeatable(message, 3),
                })
            }
            Label::DeviceWriteAddress => {
                let [_, _, target] = self.arguments(message)?;
                let (width, target) = (width_of(offset, width)?, place_of(pages, target)?);
                let is_stored = TRANSFER.contains(&place);
                if width < if is_stored { 8 } else { 4 } {
                    return Err(Error::InvalidArgument);
                }
                if !TRANSFER.contains(&target) {
                    return Err(Error::RangeError);
                }
                if is_stored {
                    return Ok(Operation::StoreAddress { place, target });
                }
                Ok(Operation::WriteAddress {
                    place,
                    width,
                    target,
                    repeatable: self.is_repeatable(message, 3),
                })
            }
            Label::DeviceCopyOut => {
                let block = self.decode_block(message, place, Rights::READ)?;
                Ok(Operation::CopyOut(block))
            }
            Label::DeviceCopyIn => {
                let [_, _, _, _, generation] = self.arguments(message)?;
                let block = self.decode_block(message, place, Rights::READ_WRITE)?;
                Ok(Operation::CopyIn { block, generation })
            }
            _ => Err(Error::IllegalOperation),
        }
    }

    /// Transfer memory from `place` on, and part of a frame; each lies in one page.
    fn decode_block(&self, message: Arguments, place: u64, needed: Rights) -> Result<Block, Error> {
        let [_, pointer, at, bytes] = self.arguments(message)?;
        let (
            _,
            Cap::Frame {
                obj, level, rights, ..
            },
        ) = self.lookup_cap(message.tcb, pointer)?
        else {
            return Err(Error::InvalidCapability);
        };
        if !rights.contains(needed) {
            return Err(Error::AccessDenied);
        }
        if [place, at, bytes]
            .iter()
            .any(|part| !part.is_multiple_of(8))
        {
            return Err(Error::AlignmentError);
        }
        let fits = |from: u64| from.checked_add(bytes).is_some_and(|end| end <= PAGE);
        let whole = 1 << frame_bits(level);
        let apart = [at, place].iter().any(|from| !fits(from % PAGE));
        if bytes == 0 || !TRANSFER.contains(&place) || at >= whole || apart {
            return Err(Error::RangeError);
        }
        let words = |bytes: u64| usize::try_from(bytes / 8).map_err(|_| Error::RangeError);
        Ok(Block {
            place,
            frame: obj,
            first: words(at)?,
            len: words(bytes)?,
        })
    }

    /// Does it.
    pub(crate) fn invoke_device(&mut self, operation: Operation) -> Answer {
        match operation {
            Operation::Read {
                place,
                width,
                repeatable,
            } => Answer::one(self.sphere.device_read(place, width, repeatable)),
            Operation::Write {
                place,
                width,
                value,
                repeatable,
            } => {
                self.sphere.device_write(place, width, value, repeatable);
                Answer::NOTHING
            }
            Operation::WriteAddress {
                place,
                width,
                target,
                repeatable,
            } => {
                self.sphere
                    .device_write_address(place, width, target, repeatable);
                Answer::one(self.sphere.generation())
            }
            Operation::StoreAddress { place, target } => {
                self.sphere.store_address(place, target);
                Answer::one(self.sphere.generation())
            }
            Operation::CopyOut(block) => {
                let words = self.mem.words(block.frame, block.first, block.len);
                self.sphere.copy_out(block.place, words);
                Answer::NOTHING
            }
            Operation::CopyIn { block, generation } => {
                let place = u64::try_from(block.first * 8).expect("a part of a frame");
                self.own_page(Ref::from_bytes((block.frame.bytes() + place) / UNIT * UNIT));
                let words = self.mem.words_mut(block.frame, block.first, block.len);
                let good = self.sphere.copy_in(block.place, words, generation);
                Answer::one(u64::from(good))
            }
        }
    }
}

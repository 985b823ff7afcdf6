//! I/O ports: the primary alone touches them. What is read reaches all replicas as one value, what
//! is written is voted first.

use core::ops::RangeInclusive;

use rcoe_abi::{Error, Label, MAX_MESSAGE};

use crate::kernel::Kernel;
use crate::request::{Answer, Arguments};
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// Most bytes of one output.
const OUTPUT_MAX: usize = 8 * (MAX_MESSAGE - 2);

/// What is to be done: checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    In {
        port: u16,
        width: u8,
        repeatable: bool,
    },
    Out {
        port: u16,
        width: u8,
        value: u32,
        repeatable: bool,
    },
    OutBytes {
        port: u16,
        len: usize,
    },
}

/// Fewer ports: first and last in the low two 16-bit parts of the badge.
pub(crate) fn narrowed(first: u16, last: u16, badge: Option<u64>) -> Result<Cap, Error> {
    let badge = badge.unwrap_or_default();
    let (from, to) = ((badge & 0xffff) as u16, (badge >> 16 & 0xffff) as u16);
    if from < first || to > last || from > to || badge >> 32 != 0 {
        return Err(Error::RangeError);
    }
    Ok(Cap::Ports {
        first: from,
        last: to,
    })
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a message asks of these ports.
    pub(crate) fn decode_ports(
        &self,
        message: Arguments,
        label: Label,
        range: RangeInclusive<u16>,
    ) -> Result<Operation, Error> {
        let [port, width] = self.arguments(message)?;
        let port = u16::try_from(port).map_err(|_| Error::RangeError)?;
        if label == Label::PortOutBytes {
            let len = usize::try_from(width).map_err(|_| Error::RangeError)?;
            if !range.contains(&port) || len > OUTPUT_MAX || len > (message.len - 2) * 8 {
                return Err(Error::RangeError);
            }
            return Ok(Operation::OutBytes { port, len });
        }
        let width = match width {
            1 | 2 | 4 => u8::try_from(width).map_err(|_| Error::RangeError)?,
            _ => return Err(Error::InvalidArgument),
        };
        let last = port
            .checked_add(u16::from(width) - 1)
            .ok_or(Error::RangeError)?;
        if !range.contains(&port) || !range.contains(&last) {
            return Err(Error::RangeError);
        }
        match label {
            Label::PortIn => Ok(Operation::In {
                port,
                width,
                repeatable: self.is_repeatable(message, 2),
            }),
            Label::PortOut => {
                let [_, _, value] = self.arguments(message)?;
                let value = u32::try_from(value).map_err(|_| Error::RangeError)?;
                Ok(Operation::Out {
                    port,
                    width,
                    value,
                    repeatable: self.is_repeatable(message, 3),
                })
            }
            _ => Err(Error::IllegalOperation),
        }
    }

    /// Does it, for `caller`.
    pub(crate) fn invoke_port(&mut self, caller: Ref, operation: Operation) -> Answer {
        match operation {
            Operation::In {
                port,
                width,
                repeatable,
            } => Answer::one(u64::from(self.sphere.port_in(port, width, repeatable))),
            Operation::Out {
                port,
                width,
                value,
                repeatable,
            } => {
                self.sphere.port_out(port, width, value, repeatable);
                Answer::NOTHING
            }
            Operation::OutBytes { port, len } => {
                let mut bytes = [0; OUTPUT_MAX];
                for (index, chunk) in bytes[..len].chunks_mut(8).enumerate() {
                    let word = self.word(caller, index + 2).to_le_bytes();
                    chunk.copy_from_slice(&word[..chunk.len()]);
                }
                self.sphere.port_out_bytes(port, &bytes[..len]);
                Answer::NOTHING
            }
        }
    }
}

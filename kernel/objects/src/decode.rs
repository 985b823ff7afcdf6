//! Decoding: from a message to an [`Invocation`]. Checks everything, changes nothing.

use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, Label, Rights, ThreadFlags, layout};

use crate::cap::{Mapping, frame_bits};
use crate::device::Access;
use crate::kernel::Kernel;
use crate::retype::Retype;
use crate::sched::PRIORITIES;
use crate::shared::Share;
use crate::sphere::{IRQ_LINES, Sphere};
use crate::tcb::field;
use crate::{Cap, Ref};

/// Most bytes of one output.
pub(crate) const OUTPUT_MAX: usize = 8 * (rcoe_abi::MAX_MESSAGE - 2);

/// What is to be done: every check has been made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Invocation {
    Retype(Retype),
    /// Put `cap`, derived from that in `from`, into `to`.
    Derive {
        from: Ref,
        to: Ref,
        cap: Cap,
    },
    Move {
        from: Ref,
        to: Ref,
    },
    Delete {
        slot: Ref,
    },
    Revoke {
        slot: Ref,
    },
    Configure {
        tcb: Ref,
        cspace: (Ref, Cap),
        vspace: (Ref, Cap),
        buffer: (Ref, Cap),
        handler: u64,
    },
    SetTable {
        tcb: Ref,
        from: Ref,
        cap: Cap,
    },
    SetPriority {
        tcb: Ref,
        priority: u64,
    },
    WriteRegisters {
        tcb: Ref,
        words: [u64; 4],
    },
    ReadRegisters {
        tcb: Ref,
    },
    SetFlags {
        tcb: Ref,
        flags: ThreadFlags,
    },
    WritePointers {
        tcb: Ref,
        pointers: [u64; 2],
    },
    WriteContext {
        tcb: Ref,
    },
    CopyFloats {
        from: Ref,
        to: Ref,
    },
    ReadFloats {
        tcb: Ref,
    },
    WriteFloats {
        tcb: Ref,
    },
    Resume {
        tcb: Ref,
    },
    Suspend {
        tcb: Ref,
    },
    Bind {
        tcb: Ref,
        notification: Ref,
    },
    MapFrame {
        slot: Ref,
        root: Ref,
        rights: Rights,
        cap: Cap,
    },
    UnmapFrame {
        slot: Ref,
    },
    MapTable {
        slot: Ref,
        root: Ref,
        level: usize,
        cap: Cap,
    },
    UnmapTable {
        slot: Ref,
    },
    MakeIrq {
        control: Ref,
        line: u32,
        to: Ref,
    },
    SetIrq {
        line: u32,
        source: Ref,
    },
    AckIrq {
        line: u32,
    },
    ClearIrq {
        line: u32,
    },
    Device(Access),
    MakeShared {
        source: Ref,
        to: Ref,
        cap: Cap,
    },
    MapShared {
        slot: Ref,
        share: Share,
    },
    Meet {
        place: usize,
    },
    PortIn {
        port: u16,
        width: u8,
        repeatable: bool,
    },
    PortOut {
        port: u16,
        width: u8,
        value: u32,
        repeatable: bool,
    },
    PortOutBytes {
        port: u16,
        len: usize,
    },
}

/// A message under inspection.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    pub(crate) tcb: Ref,
    pub(crate) slot: Ref,
    pub(crate) len: usize,
}

impl<S: Sphere> Kernel<'_, S> {
    /// What the message of `tcb` asks of the capability in `slot`.
    pub(crate) fn decode(&self, tcb: Ref, slot: Ref) -> Result<Invocation, Error> {
        let info = self.info(tcb);
        let label = Label::from_label(info.label()).ok_or(Error::IllegalOperation)?;
        let message = Arguments {
            tcb,
            slot,
            len: info.len(),
        };
        match self.cap(slot) {
            Cap::Untyped { .. } if label == Label::UntypedRetype => {
                let words = self.arguments(message)?;
                self.decode_retype(slot, tcb, words).map(Invocation::Retype)
            }
            Cap::CNode { obj, bits, .. } => self.decode_cnode(message, label, obj, bits),
            Cap::Tcb { obj } => self.decode_tcb(message, label, obj),
            Cap::Frame { .. } => self.decode_frame(message, label),
            Cap::Table { .. } => self.decode_table(message, label),
            Cap::IrqControl if label == Label::IrqControlGet => self.decode_irq_control(message),
            Cap::Irq { line } => self.decode_irq(message, label, line),
            Cap::Devices { first, last } if label == Label::DeviceFrame => {
                self.decode_device_frame(message, (first, last))
            }
            Cap::Shared { .. } => self.decode_shared(message, label),
            Cap::Devices { first, last } => self
                .decode_device(message, label, (first, last))
                .map(Invocation::Device),
            Cap::Ports { first, last } => self.decode_ports(message, label, first..=last),
            _ => Err(Error::IllegalOperation),
        }
    }

    /// The first `N` words of a message that must have as many.
    pub(crate) fn arguments<const N: usize>(&self, message: Arguments) -> Result<[u64; N], Error> {
        if message.len < N {
            return Err(Error::IllegalOperation);
        }
        Ok(core::array::from_fn(|index| self.word(message.tcb, index)))
    }

    fn decode_cnode(
        &self,
        message: Arguments,
        label: Label,
        obj: Ref,
        bits: u32,
    ) -> Result<Invocation, Error> {
        let [index] = self.arguments(message)?;
        if index >= 1 << bits {
            return Err(Error::RangeError);
        }
        let to = obj.slot(u32::try_from(index).map_err(|_| Error::RangeError)?);
        match label {
            Label::CNodeDelete => return Ok(Invocation::Delete { slot: to }),
            Label::CNodeRevoke => return Ok(Invocation::Revoke { slot: to }),
            Label::CNodeCopy | Label::CNodeMint | Label::CNodeMove => {}
            _ => return Err(Error::IllegalOperation),
        }
        let [_, pointer] = self.arguments(message)?;
        let (from, cap) = self.lookup_cap(message.tcb, pointer)?;
        if !self.is_empty(to) {
            return Err(Error::DeleteFirst);
        }
        let cap = match label {
            Label::CNodeMove => return Ok(Invocation::Move { from, to }),
            Label::CNodeCopy => {
                let [_, _, rights] = self.arguments(message)?;
                self.derive(from, cap, rights, None)?
            }
            _ => {
                let [_, _, rights, badge] = self.arguments(message)?;
                self.derive(from, cap, rights, Some(badge))?
            }
        };
        Ok(Invocation::Derive { from, to, cap })
    }

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
            Cap::Ports { first, last } if badge.is_some() => narrowed(first, last, badge),
            Cap::Devices { first, last } => crate::device::narrowed(first, last, badge),
            other => Ok(other),
        }
    }

    fn decode_tcb(&self, message: Arguments, label: Label, tcb: Ref) -> Result<Invocation, Error> {
        match label {
            Label::TcbConfigure => self.decode_configure(message, tcb),
            Label::TcbSetTable => {
                let [pointer, guard] = self.arguments(message)?;
                let (from, Cap::CNode { obj, bits, .. }) = self.lookup_cap(message.tcb, pointer)?
                else {
                    return Err(Error::InvalidCapability);
                };
                let cap = guarded(obj, bits, Some(guard))?;
                Ok(Invocation::SetTable { tcb, from, cap })
            }
            Label::TcbSetPriority => {
                let [priority] = self.arguments(message)?;
                let own = self.mem.get(message.tcb, field::PRIORITY);
                if priority >= PRIORITIES || priority > own {
                    return Err(Error::RangeError);
                }
                Ok(Invocation::SetPriority { tcb, priority })
            }
            Label::TcbWriteRegisters => {
                let words = self.arguments(message)?;
                Ok(Invocation::WriteRegisters { tcb, words })
            }
            Label::TcbReadRegisters => Ok(Invocation::ReadRegisters { tcb }),
            Label::TcbSetFlags
            | Label::TcbWritePointers
            | Label::TcbWriteContext
            | Label::TcbCopyFloats
            | Label::TcbReadFloats
            | Label::TcbWriteFloats => self.decode_manner(message, label, tcb),
            Label::TcbResume => Ok(Invocation::Resume { tcb }),
            Label::TcbSuspend => Ok(Invocation::Suspend { tcb }),
            Label::TcbBindNotification => {
                let [pointer] = self.arguments(message)?;
                match self.lookup_cap(message.tcb, pointer)? {
                    (_, Cap::Notification { obj, rights, .. })
                        if rights.contains(Rights::READ)
                            && !self.is_bound(obj)
                            && self.held(tcb, field::BOUND).is_none() =>
                    {
                        Ok(Invocation::Bind {
                            tcb,
                            notification: obj,
                        })
                    }
                    _ => Err(Error::InvalidCapability),
                }
            }
            _ => Err(Error::IllegalOperation),
        }
    }

    fn decode_configure(&self, message: Arguments, tcb: Ref) -> Result<Invocation, Error> {
        let [cspace, vspace, buffer, handler] = self.arguments(message)?;
        let (cspace_slot, Cap::CNode { obj, bits, .. }) = self.lookup_cap(message.tcb, cspace)?
        else {
            return Err(Error::InvalidCapability);
        };
        // A pointer in the thread's space is just a slot number: the rest of it is guard.
        let cspace = Cap::CNode {
            obj,
            bits,
            guard_bits: crate::lookup::POINTER_BITS - bits,
            guard: 0,
        };
        let (vspace_slot, vspace @ Cap::VSpace { .. }) = self.lookup_cap(message.tcb, vspace)?
        else {
            return Err(Error::InvalidCapability);
        };
        let (
            buffer_slot,
            Cap::Frame {
                obj, level, rights, ..
            },
        ) = self.lookup_cap(message.tcb, buffer)?
        else {
            return Err(Error::InvalidCapability);
        };
        if !rights.contains(Rights::READ_WRITE) {
            return Err(Error::AccessDenied);
        }
        let buffer = Cap::Frame {
            obj,
            level,
            rights,
            mapping: Mapping::default(),
        };
        Ok(Invocation::Configure {
            tcb,
            cspace: (cspace_slot, cspace),
            vspace: (vspace_slot, vspace),
            buffer: (buffer_slot, buffer),
            handler,
        })
    }

    /// The root table and number of a space, for mapping at `address`.
    pub(crate) fn space(&self, tcb: Ref, pointer: u64, address: u64) -> Result<(Ref, u16), Error> {
        let (_, Cap::VSpace { obj, asid }) = self.lookup_cap(tcb, pointer)? else {
            return Err(Error::InvalidCapability);
        };
        if !address.is_multiple_of(PAGE) {
            return Err(Error::AlignmentError);
        }
        if address >= layout::USER_END {
            return Err(Error::RangeError);
        }
        Ok((obj, asid))
    }

    fn decode_frame(&self, message: Arguments, label: Label) -> Result<Invocation, Error> {
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
            Label::FrameUnmap => return Ok(Invocation::UnmapFrame { slot }),
            Label::FrameMap => {}
            _ => return Err(Error::IllegalOperation),
        }
        let [space, address, wanted] = self.arguments(message)?;
        let (root, asid) = self.space(message.tcb, space, address)?;
        if !address.is_multiple_of(1 << frame_bits(level)) {
            return Err(Error::AlignmentError);
        }
        let granted = rights.and(Rights::from_word(wanted));
        if !granted.contains(Rights::READ) || !self.sphere.allows(granted) {
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
        Ok(Invocation::MapFrame {
            slot,
            root,
            rights: granted,
            cap,
        })
    }

    fn decode_table(&self, message: Arguments, label: Label) -> Result<Invocation, Error> {
        let slot = message.slot;
        let Cap::Table { obj, mapping, .. } = self.cap(slot) else {
            return Err(Error::InvalidCapability);
        };
        match label {
            Label::TableUnmap => return Ok(Invocation::UnmapTable { slot }),
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
        Ok(Invocation::MapTable {
            slot,
            root,
            level,
            cap,
        })
    }

    fn decode_irq_control(&self, message: Arguments) -> Result<Invocation, Error> {
        let [line, pointer] = self.arguments(message)?;
        let line = u32::try_from(line).map_err(|_| Error::RangeError)?;
        if line >= IRQ_LINES {
            return Err(Error::RangeError);
        }
        let to = self.lookup(message.tcb, pointer)?;
        if !self.is_empty(to) {
            return Err(Error::DeleteFirst);
        }
        Ok(Invocation::MakeIrq {
            control: message.slot,
            line,
            to,
        })
    }

    fn decode_irq(&self, message: Arguments, label: Label, line: u32) -> Result<Invocation, Error> {
        match label {
            Label::IrqAck => Ok(Invocation::AckIrq { line }),
            Label::IrqClear => Ok(Invocation::ClearIrq { line }),
            Label::IrqSetNotification => {
                let [pointer] = self.arguments(message)?;
                match self.lookup_cap(message.tcb, pointer)? {
                    (source, Cap::Notification { rights, .. })
                        if rights.contains(Rights::WRITE) =>
                    {
                        Ok(Invocation::SetIrq { line, source })
                    }
                    _ => Err(Error::InvalidCapability),
                }
            }
            _ => Err(Error::IllegalOperation),
        }
    }

    fn decode_ports(
        &self,
        message: Arguments,
        label: Label,
        range: core::ops::RangeInclusive<u16>,
    ) -> Result<Invocation, Error> {
        let [port, width] = self.arguments(message)?;
        let port = u16::try_from(port).map_err(|_| Error::RangeError)?;
        if label == Label::PortOutBytes {
            let len = usize::try_from(width).map_err(|_| Error::RangeError)?;
            if !range.contains(&port) || len > OUTPUT_MAX || len > (message.len - 2) * 8 {
                return Err(Error::RangeError);
            }
            return Ok(Invocation::PortOutBytes { port, len });
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
            Label::PortIn => Ok(Invocation::PortIn {
                port,
                width,
                repeatable: self.is_repeatable(message, 2),
            }),
            Label::PortOut => {
                let [_, _, value] = self.arguments(message)?;
                let value = u32::try_from(value).map_err(|_| Error::RangeError)?;
                Ok(Invocation::PortOut {
                    port,
                    width,
                    value,
                    repeatable: self.is_repeatable(message, 3),
                })
            }
            _ => Err(Error::IllegalOperation),
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

/// A table with a guard: number of bits in the low six bits of the badge, value above.
fn guarded(obj: Ref, bits: u32, badge: Option<u64>) -> Result<Cap, Error> {
    let badge = badge.unwrap_or_default();
    let (guard_bits, guard) = ((badge & 63) as u32, badge >> 6);
    if guard_bits + bits > crate::lookup::POINTER_BITS || guard >> guard_bits != 0 {
        return Err(Error::InvalidArgument);
    }
    Ok(Cap::CNode {
        obj,
        bits,
        guard_bits,
        guard,
    })
}

/// Fewer ports: first and last in the low two 16-bit parts of the badge.
fn narrowed(first: u16, last: u16, badge: Option<u64>) -> Result<Cap, Error> {
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

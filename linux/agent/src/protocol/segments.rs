//! Which of the program's memory a call may fill, noted before the call and judged after it.
//!
//! How far the host came before it met a pointer that it cannot write to (EFAULT) is not told, nor,
//! where it tells of the pieces before, how far it came in the one in which it met that. All that
//! it may have filled goes to the other replicas then: what it did not fill is alike anyway. So
//! does what a call that receives several messages may have filled of the first that it does not
//! count. Nothing goes to them of memory that is not there, whatever the result says of it.
//!
//! Not covered: a fault after more than [`piece::BEFORE_FAULT`]; one of a piece of more than a
//! page, in a range that ends in memory that is there; one in memory that is there but cannot be
//! written, behind what the result tells of; a message that is received into the header of a later
//! one.

use core::ops::Range;

use rcoe_linux_abi::PAGE;
use rcoe_linux_syscalls::{Arg, Buffer, Resolved, Valid};

use crate::calls::Call;
use crate::convert::low32;
use crate::memory::guest::{self, Fault};
use crate::protocol::arguments::{IOV_MAX, is_refused, nested};
use crate::protocol::segments::piece::{Message, Rule, Segment, Walk};
use crate::sys::numbers::EINVAL;

mod piece;

/// Most segments of one call; a longer vector is refused by the kernel as well.
const SEGMENTS: usize = 2 * crate::convert::size(IOV_MAX) + 64;

/// The pieces of the present call. Zeroes are none.
#[repr(C)]
pub(crate) struct Segments {
    count: usize,
    /// A length word is negative, which the host refuses (EINVAL) only when it comes to write the
    /// address: `recvfrom` has filled its buffer by then.
    refused: bool,
    list: [Segment; SEGMENTS],
}

/// Bytes of the longest address of a socket, `struct sockaddr_storage`.
const ADDRESS: u64 = 128;

/// The largest length that is not negative as the host sees it.
const NOT_NEGATIVE: u64 = i32::MAX as u64;

/// What a call has filled, if that is simple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// It fills no memory.
    Nothing,
    /// This range, if it can be read.
    One(Range<u64>),
    /// Several pieces, or [`Segments::settle`] has to look closer.
    Many,
}

/// The length that this word of the program tells; none is no room.
fn room_told(pointer: u64) -> Result<u64, Fault> {
    match pointer {
        0 => Ok(0),
        pointer => Ok(guest::read::<u32>(pointer)?.into()),
    }
}

impl Segments {
    #[cfg(test)]
    const fn new() -> Self {
        const NONE: Segment = Segment {
            address: 0,
            capacity: 0,
            rule: Rule::Always,
            filled: 0,
        };
        Self {
            list: [NONE; SEGMENTS],
            count: 0,
            refused: false,
        }
    }

    #[inline(always)]
    fn push(&mut self, address: u64, capacity: u64, rule: Rule) {
        if address == 0 || capacity == 0 {
            return;
        }
        if let Some(slot) = self.list.get_mut(self.count) {
            *slot = Segment {
                address,
                capacity,
                rule,
                filled: 0,
            };
            self.count += 1;
        }
    }

    /// Notes what `call` may fill.
    ///
    /// # Errors
    /// A structure of the program that cannot be read.
    #[inline(always)]
    pub(crate) fn prepare(&mut self, call: &Call) -> Result<(), Fault> {
        self.prepare_known::<false>(call, call.what)
    }

    /// The same; what the call is is known to who compiles this if `KNOWN`.
    ///
    /// # Errors
    /// As [`Segments::prepare`].
    #[inline(always)]
    pub(crate) fn prepare_known<const KNOWN: bool>(
        &mut self,
        call: &Call,
        what: &Resolved,
    ) -> Result<(), Fault> {
        self.count = 0;
        self.refused = false;
        if what.writes == 0 {
            return Ok(());
        }
        let Some(buffer) = what.buffer else {
            return if KNOWN {
                self.prepare_each(call, what)
            } else {
                self.prepare_others(call)
            };
        };
        let Buffer {
            at,
            len,
            elem,
            valid,
        } = buffer;
        // A pointer fills its register.
        let address = call.raw[usize::from(at)];
        let len = what.canonical(usize::from(len), &call.raw);
        let elem = u64::from(elem);
        self.push(address, len.saturating_mul(elem), shared(valid, elem));
        Ok(())
    }

    #[inline(never)]
    fn prepare_others(&mut self, call: &Call) -> Result<(), Fault> {
        let mut left = call.what.writes;
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            self.add(call, call.what.args[i], call.arg(i))?;
        }
        Ok(())
    }

    /// The same of a call that is known to who compiles this: what is not among its arguments is
    /// left out, and only bytes and plain structures are noted here.
    #[inline(always)]
    fn prepare_each(&mut self, call: &Call, what: &Resolved) -> Result<(), Fault> {
        // Not in a loop, in which the index would not be known.
        self.prepare_one(call, what, 0)?;
        self.prepare_one(call, what, 1)?;
        self.prepare_one(call, what, 2)?;
        self.prepare_one(call, what, 3)?;
        self.prepare_one(call, what, 4)?;
        self.prepare_one(call, what, 5)
    }

    /// The same of argument `i`.
    #[inline(always)]
    fn prepare_one(&mut self, call: &Call, what: &Resolved, i: usize) -> Result<(), Fault> {
        let address = call.raw[i];
        if what.writes >> i & 1 == 0 || address == 0 {
            return Ok(());
        }
        match what.args[i] {
            Arg::OutBuf { len_arg, valid } => {
                let len = what.canonical(len_arg.into(), &call.raw);
                self.push(address, len, shared(valid, 1));
            }
            Arg::OutStruct { size } => self.push(address, u64::from(size), Rule::Success),
            other => self.add_rarer(call, other, address)?,
        }
        Ok(())
    }

    #[inline(never)]
    fn add_rarer(&mut self, call: &Call, arg: Arg, address: u64) -> Result<(), Fault> {
        self.add(call, arg, address)
    }

    fn add(&mut self, call: &Call, arg: Arg, address: u64) -> Result<(), Fault> {
        if address == 0 {
            return Ok(());
        }
        let len = |index: u8| call.arg(usize::from(index));
        match arg {
            Arg::OutBuf { len_arg, valid } => self.push(address, len(len_arg), shared(valid, 1)),
            Arg::OutMsg { len_arg } => {
                self.push(address, 8, Rule::Success);
                self.push(address.wrapping_add(8), len(len_arg), Rule::Share(1));
            }
            Arg::OutStruct { size } => self.push(address, u64::from(size), Rule::Success),
            Arg::OutStructOnError { size } => {
                self.push(address, u64::from(size), Rule::Interrupted);
            }
            Arg::InOutStruct { size } => self.push(address, u64::from(size), Rule::Always),
            Arg::OutArray {
                count_arg,
                elem,
                valid,
            } => {
                let elem = u64::from(elem);
                self.push(
                    address,
                    len(count_arg).saturating_mul(elem),
                    shared(valid, elem),
                );
            }
            Arg::InOutArray { count_arg, elem } => {
                self.push(
                    address,
                    len(count_arg).saturating_mul(u64::from(elem)),
                    Rule::Always,
                );
            }
            Arg::OutBufLenPtr { lenptr_arg } => {
                let pointer = len(lenptr_arg);
                let before = room_told(pointer)?;
                self.push(address, before, short(address, pointer, before, None));
            }
            Arg::SockaddrOut { lenptr_arg } => {
                let pointer = len(lenptr_arg);
                let before = room_told(pointer)?;
                self.refused = before > NOT_NEGATIVE;
                let before = ADDRESS.min(before);
                self.push(address, before, short(address, pointer, before, None));
            }
            Arg::SockLenPtr => self.push(address, 4, Rule::Always),
            Arg::FdSet { nfds_arg } => {
                self.push(address, Arg::fd_set_bytes(len(nfds_arg)), Rule::Always);
            }
            Arg::IovOut { count_arg } => {
                self.add_vector(address, len(count_arg), |_| Rule::Share(1))?;
            }
            Arg::MsghdrOut => self.add_message(address, None)?,
            Arg::MmsghdrIn { count_arg } => {
                self.push(address, len(count_arg).min(IOV_MAX) * 64, Rule::Share(64));
            }
            Arg::MmsghdrOut { count_arg } => {
                for i in 0..len(count_arg).min(IOV_MAX) {
                    self.add_message(address + 64 * i, Some(low32(i)))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_vector(
        &mut self,
        address: u64,
        parts: u64,
        rule: impl Fn(bool) -> Rule,
    ) -> Result<(), Fault> {
        if is_refused(address, parts)? {
            return Ok(());
        }
        for i in 0..parts {
            let [base, len] = guest::read::<[u64; 2]>(address + 16 * i)?;
            self.push(nested(base)?, len, rule(i == 0));
        }
        Ok(())
    }

    /// `struct msghdr`; with a place, one of an array of `struct mmsghdr`.
    fn add_message(&mut self, address: u64, of: Message) -> Result<(), Fault> {
        let [name, name_len, iov, iov_len, control, control_len, _flags] =
            guest::read::<[u64; 7]>(address)?;
        let before = ADDRESS.min(name_len & 0xffff_ffff);
        nested(iov)?;
        let name = nested(name)?;
        self.push(name, before, short(name, address + 8, before, of));
        let pointer = address + 40;
        self.push(nested(control)?, control_len, Rule::Long { pointer, of });
        let Some(of) = of else {
            self.add_vector(iov, iov_len, |_| Rule::Share(1))?;
            self.push(address, 56, Rule::Success);
            return Ok(());
        };
        // The header first: whoever follows needs its length word for the buffers.
        self.push(address, 64, Rule::Header { of });
        let pointer = address + 56;
        self.add_vector(iov, iov_len, |first| Rule::Part { pointer, first, of })
    }

    /// Judges how much of each segment a call with this result has filled; after a refusal that may
    /// come when something was filled, how much it may have.
    ///
    /// # Errors
    /// A length word of the program that cannot be read.
    pub(crate) fn settle(&mut self, result: i64) -> Result<(), Fault> {
        let list = &mut self.list[..self.count];
        let mut walk = Walk::default();
        if result == Fault::RESULT || self.refused && result == EINVAL {
            for segment in list {
                segment.filled = segment.within_reach(&mut walk);
            }
            return Ok(());
        }
        for segment in &mut *list {
            segment.filled = segment.judge(&mut walk, result)?.min(segment.capacity);
        }
        if result > 0 && list.iter().any(|it| it.may_have_faulted(result)) {
            for segment in &mut *list {
                segment.extend(&mut walk, result);
            }
        }
        for segment in list {
            segment.cut(&mut walk);
        }
        Ok(())
    }

    /// Has a call with this result filled its only piece to the last byte? Then that was judged:
    /// where the host has written, there is memory.
    ///
    /// Only of calls that count no byte that they do not write.
    pub(crate) fn settle_whole(&mut self, result: i64) -> bool {
        let [segment] = &mut self.list[..self.count] else {
            return false;
        };
        let whole =
            matches!(segment.rule, Rule::Share(1)) && u64::try_from(result) == Ok(segment.capacity);
        if whole {
            segment.filled = segment.capacity;
        }
        whole
    }

    /// May the call fill nothing?
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What a call with this result, which is not negative, has filled.
    ///
    /// Of a piece within one page either all is there or nothing: there is no need to look where
    /// the host may have met a fault.
    #[inline(always)]
    pub(crate) fn only(&self, result: i64) -> Filled {
        let [segment] = &self.list[..self.count] else {
            return if self.count == 0 {
                Filled::Nothing
            } else {
                Filled::Many
            };
        };
        let &Segment {
            address,
            capacity,
            rule,
            ..
        } = segment;
        let bytes = match rule {
            Rule::Success => capacity,
            Rule::Share(elem) => result.cast_unsigned().saturating_mul(elem).min(capacity),
            _ => return Filled::Many,
        };
        if capacity > PAGE - address % PAGE {
            return Filled::Many;
        }
        Filled::One(address..address + bytes)
    }

    /// As [`Segments::only`] of a call that was noted, where more is known of what it is.
    #[inline(always)]
    pub(crate) fn only_known(&self, what: &Resolved, result: i64) -> Filled {
        if what.writes == 0 {
            return Filled::Nothing;
        }
        let Some(Buffer { elem, valid, .. }) = what.buffer else {
            return self.only(result);
        };
        let [segment, ..] = &self.list;
        let &Segment {
            address, capacity, ..
        } = segment;
        if self.count == 0 {
            return Filled::Nothing;
        }
        if capacity > PAGE - address % PAGE {
            return Filled::Many;
        }
        let bytes = match valid {
            Valid::Arg => capacity,
            Valid::Ret => {
                let filled = result.cast_unsigned().saturating_mul(elem.into());
                filled.min(capacity)
            }
        };
        Filled::One(address..address + bytes)
    }

    /// Address and filled bytes of each segment, as last settled.
    #[inline]
    pub(crate) fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let list = &self.list[..self.count];
        list.iter().map(|segment| (segment.address, segment.filled))
    }

    /// Address and capacity of segment number `index`.
    pub(crate) fn room(&self, index: usize) -> Option<(u64, u64)> {
        let segment = self.list[..self.count].get(index)?;
        Some((segment.address, segment.capacity))
    }
}

fn shared(valid: Valid, elem: u64) -> Rule {
    match valid {
        Valid::Ret => Rule::Share(elem),
        Valid::Arg => Rule::Success,
    }
}

/// A buffer whose length word is at `pointer`. Where that lies in the buffer, the call may have
/// written over it, and it tells nothing.
const fn short(address: u64, pointer: u64, before: u64, of: Message) -> Rule {
    let overlaps = pointer < address.saturating_add(before) && address < pointer.saturating_add(4);
    if overlaps {
        Rule::Untold
    } else {
        Rule::Short { pointer, of }
    }
}

#[cfg(test)]
mod tests;

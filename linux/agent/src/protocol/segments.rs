//! Which of the program's memory a call may fill, noted before the call and judged after it.
//!
//! How far the host came before it met a pointer that it cannot write to (EFAULT) is not told, nor,
//! where it tells of the pieces before, how far it came in the one in which it met that. All that
//! it may have filled goes to the other replicas then: what it did not fill is alike anyway.
//!
//! Not covered: a fault after more than [`BEFORE_FAULT`]; one of a piece of more than a page, in a
//! range that ends in memory that is there; one in memory that is there but cannot be written,
//! behind what the result tells of; what a call that receives several messages has filled of one
//! that it does not count.

use core::ops::Range;

use rcoe_linux_syscalls::{Arg, Buffer, Valid};

use crate::calls::Call;
use crate::memory::guest::{self, Fault};
use crate::protocol::arguments::{IOV_MAX, nested};

/// Most segments of one call; a longer vector is refused by the kernel as well.
const SEGMENTS: usize = 2 * crate::convert::size(IOV_MAX) + 64;

/// When, and how far, a segment is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// All of it, if the call succeeds.
    Success,
    /// All of it, whatever the call returns.
    Always,
    /// All of it, if the call was interrupted.
    Interrupted,
    /// The next part of as many elements of this size as the call returns.
    Share(u64),
    /// As far as there is memory, if the call succeeds.
    Untold,
    /// The least of a `u32` length before (kept here) and after the call.
    Short { pointer: u64, before: u64 },
    /// The same with a 64-bit length.
    Long { pointer: u64, before: u64 },
    /// The next part of a message whose length is at this address after the call.
    Message { pointer: u64, first: bool },
}

/// One piece of memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    capacity: u64,
    rule: Rule,
    /// Bytes that the call filled, once [`Segments::settle`] has judged it.
    filled: u64,
}

/// The pieces of the present call. Zeroes are none.
pub(crate) struct Segments {
    list: [Segment; SEGMENTS],
    count: usize,
    /// A length word is negative, which the host refuses (EINVAL) only when it comes to write the
    /// address: `recvfrom` has filled its buffer by then.
    refused: bool,
}

/// Most bytes that are looked at after EFAULT: the host finds a bad pointer within the first
/// datagram, record or structure, and tells of what came before by its result.
const BEFORE_FAULT: u64 = 1 << 20;

const PAGE: u64 = 4096;

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

/// What is left to hand out while walking through shared segments.
#[derive(Default)]
struct Walk {
    shared: Option<u64>,
    message: u64,
    before_fault: u64,
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
    #[inline]
    pub(crate) fn prepare(&mut self, call: &Call) -> Result<(), Fault> {
        self.count = 0;
        self.refused = false;
        if call.what.writes == 0 {
            return Ok(());
        }
        let Some(Buffer { at, len, valid }) = call.what.buffer else {
            return self.prepare_others(call);
        };
        let [address, len] = [at, len].map(|index| call.arg(usize::from(index)));
        self.push(address, len, shared(valid, 1));
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
                self.push(address, before, short(address, pointer, before));
            }
            Arg::SockaddrOut { lenptr_arg } => {
                let pointer = len(lenptr_arg);
                let before = room_told(pointer)?;
                self.refused = before > NOT_NEGATIVE;
                let before = ADDRESS.min(before);
                self.push(address, before, short(address, pointer, before));
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
                    self.add_message(address + 64 * i, Some(address + 64 * i + 56))?;
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
        for i in 0..parts.min(IOV_MAX) {
            let [base, len] = guest::read::<[u64; 2]>(address + 16 * i)?;
            self.push(nested(base)?, len, rule(i == 0));
        }
        Ok(())
    }

    /// `struct msghdr`; with `length`, one of an array whose own length word is there.
    fn add_message(&mut self, address: u64, length: Option<u64>) -> Result<(), Fault> {
        let [name, name_len, iov, iov_len, control, control_len, _flags] =
            guest::read::<[u64; 7]>(address)?;
        let before = ADDRESS.min(name_len & 0xffff_ffff);
        nested(iov)?;
        let name = nested(name)?;
        self.push(name, before, short(name, address + 8, before));
        let rule = Rule::Long {
            pointer: address + 40,
            before: control_len,
        };
        self.push(nested(control)?, control_len, rule);
        match length {
            None => {
                self.add_vector(iov, iov_len, |_| Rule::Share(1))?;
                self.push(address, 56, Rule::Success);
            }
            Some(pointer) => {
                // The header first: whoever follows needs its length word for the buffers.
                self.push(address, 64, Rule::Success);
                self.add_vector(iov, iov_len, |first| Rule::Message { pointer, first })?;
            }
        }
        Ok(())
    }

    /// Judges how much of each segment a call with this result has filled; after a refusal that may
    /// come when something was filled, how much it may have.
    ///
    /// # Errors
    /// A length word of the program that cannot be read.
    pub(crate) fn settle(&mut self, result: i64) -> Result<(), Fault> {
        const EINVAL: i64 = -(linux_raw_sys::errno::EINVAL as i64);
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
        if result > 0 && list.iter().any(Segment::may_have_faulted) {
            for segment in list {
                segment.extend(&mut walk);
            }
        }
        Ok(())
    }

    /// What a call with this result, which is not negative, has filled.
    ///
    /// Of a piece within one page either all is there or nothing: there is no need to look where
    /// the host may have met a fault.
    #[inline]
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
const fn short(address: u64, pointer: u64, before: u64) -> Rule {
    let overlaps = pointer < address.saturating_add(before) && address < pointer.saturating_add(4);
    if overlaps {
        Rule::Untold
    } else {
        Rule::Short { pointer, before }
    }
}

/// Is there memory of the program's at this address that the host can have written to?
fn is_there(address: u64) -> bool {
    !guest::is_reserved(address) && guest::ends_are_writable(address, 1)
}

impl Segment {
    /// Is it filled piece by piece, and does it go on where nothing can be written? Then the host
    /// may have begun with a piece that it does not tell of, and met that; or have counted padding
    /// that it does not write (`getdents64`).
    fn may_have_faulted(&self) -> bool {
        let pieces = matches!(self.rule, Rule::Share(_) | Rule::Message { .. });
        let filled = self.filled.saturating_sub(1);
        let next = (self.address + self.filled) / PAGE * PAGE + PAGE - self.address;
        let looks = [filled, next.min(self.capacity - 1), self.capacity - 1];
        let there = |at| self.address.checked_add(at).is_some_and(is_there);
        pieces && !looks.into_iter().all(there)
    }

    /// Goes as far as the host may have come, and no further than there is memory.
    fn extend(&mut self, walk: &mut Walk) {
        let reach = self.within_reach(walk);
        let cut = self.filled > 0 && !is_there(self.address + (self.filled - 1));
        if cut || reach > self.filled {
            self.filled = reach;
        }
    }

    /// Bytes before the first page that is not there, or can only be read.
    fn within_reach(&self, walk: &mut Walk) -> u64 {
        let room = self.capacity.min(BEFORE_FAULT - walk.before_fault);
        let end = self.address.saturating_add(room);
        let mut at = self.address;
        while at < end && is_there(at) {
            at = (at / PAGE + 1) * PAGE;
        }
        let len = at.min(end) - self.address;
        walk.before_fault += len;
        len
    }

    fn judge(&self, walk: &mut Walk, result: i64) -> Result<u64, Fault> {
        const EINTR: i64 = -(linux_raw_sys::errno::EINTR as i64);
        let success = |len| if result >= 0 { len } else { 0 };
        Ok(match self.rule {
            Rule::Success => success(self.capacity),
            Rule::Untold if result >= 0 => self.within_reach(walk),
            Rule::Untold => 0,
            Rule::Always => self.capacity,
            Rule::Interrupted if result == EINTR => self.capacity,
            Rule::Interrupted => 0,
            Rule::Share(elem) => {
                let total = success(result.cast_unsigned()).saturating_mul(elem);
                let left = walk.shared.get_or_insert(total);
                let part = self.capacity.min(*left);
                *left -= part;
                part
            }
            Rule::Short { pointer, before } if result >= 0 => {
                before.min(guest::read::<u32>(pointer)?.into())
            }
            Rule::Long { pointer, before } if result >= 0 => {
                before.min(guest::read::<u64>(pointer)?)
            }
            Rule::Message { pointer, first } if result >= 0 => {
                if first {
                    walk.message = guest::read::<u32>(pointer)?.into();
                }
                let part = self.capacity.min(walk.message);
                walk.message -= part;
                part
            }
            Rule::Short { .. } | Rule::Long { .. } | Rule::Message { .. } => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::segments::{Call, Segments};

    fn call(nr: u64, raw: [u64; 6]) -> Call {
        let entry = rcoe_linux_syscalls::entry(nr).expect("a known call");
        Call {
            nr,
            raw,
            what: entry.resolve(&raw),
        }
    }

    /// Filled lengths of all segments of a call that returns `result`.
    fn filled(call: &Call, result: i64, effect: impl FnOnce()) -> Vec<u64> {
        let mut segments = Box::new(Segments::new());
        segments.prepare(call).expect("readable");
        effect();
        segments.settle(result).expect("readable");
        segments.filled().map(|(_, len)| len).collect()
    }

    #[test]
    fn a_read_fills_what_it_returns() {
        let buffer = [0_u8; 64];
        let read = call(0, [3, buffer.as_ptr() as u64, 64, 0, 0, 0]);
        assert_eq!(filled(&read, 10, || {}), [10]);
        assert_eq!(filled(&read, 0, || {}), [0]);
        assert_eq!(filled(&read, -11, || {}), [0]);
    }

    #[test]
    fn a_vector_shares_out_the_result() {
        let buffer = [0_u8; 64];
        let base = buffer.as_ptr() as u64;
        let vector = [base, 16, base + 16, 0, base + 16, 16, base + 32, 32];
        let readv = call(19, [3, vector.as_ptr() as u64, 4, 0, 0, 0]);
        assert_eq!(
            filled(&readv, 20, || {}),
            [16, 4, 0],
            "empty parts are no segments"
        );
    }

    #[test]
    fn an_address_is_as_long_as_the_kernel_says_but_no_longer_than_its_room() {
        let room = [0_u8; 16];
        for (said, expected) in [(8, 8), (110, 16)] {
            let len = std::sync::atomic::AtomicU32::new(16);
            let raw = [3, room.as_ptr() as u64, len.as_ptr() as u64, 0, 0, 0];
            let name = call(51, raw);
            let got = filled(&name, 0, || {
                len.store(said, std::sync::atomic::Ordering::Relaxed)
            });
            assert_eq!(got, [expected, 4], "getsockname, said {said}");
        }
    }

    #[test]
    fn a_length_that_the_address_is_written_over_tells_nothing() {
        let room = std::sync::atomic::AtomicU32::new(4);
        let place = room.as_ptr() as u64;
        let family = || room.store(2, std::sync::atomic::Ordering::Relaxed);
        let name = call(51, [3, place, place, 0, 0, 0]);
        assert_eq!(filled(&name, 0, family), [4, 4], "getsockname");
        room.store(4, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(filled(&name, -9, family), [0, 4]);
        let place = std::sync::atomic::AtomicU32::new(u32::MAX);
        let (length, room) = (place.as_ptr() as u64, [0_u8; 128]);
        let name = call(51, [3, room.as_ptr() as u64, length, 0, 0, 0]);
        let said = || place.store(16, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(filled(&name, 0, said), [16, 4], "no address is that long");
    }

    #[test]
    fn a_negative_length_is_refused_after_the_message_was_received() {
        const EINVAL: i64 = -22;
        let (room, name) = ([0_u8; 64], [0_u8; 16]);
        let (room, name) = (room.as_ptr() as u64, name.as_ptr() as u64);
        for (length, filled_then) in [(-1, 64), (16, 0)] {
            let length: i32 = length;
            let pointer = (&raw const length) as u64;
            let receive = call(45, [3, room, 64, 0, name, pointer]);
            let filled = filled(&receive, EINVAL, || {});
            assert_eq!(filled[0], filled_then, "recvfrom with {length}");
        }
    }

    #[test]
    fn after_a_fault_all_that_is_there_may_be_filled() {
        let place = [0_u8; 64];
        let base = place.as_ptr() as u64;
        let fault = crate::protocol::segments::Fault::RESULT;
        let times = call(96, [base, base + 32, 0, 0, 0, 0]);
        assert_eq!(filled(&times, fault, || {}), [16, 8], "gettimeofday");
        let large = vec![1_u8; 3 << 19];
        let base = large.as_ptr() as u64;
        let vector = [base, 1 << 20, base, 1 << 19];
        let readv = call(19, [3, vector.as_ptr() as u64, 2, 0, 0, 0]);
        assert_eq!(filled(&readv, fault, || {}), [1 << 20, 0], "readv");
    }

    #[test]
    fn a_null_pointer_is_no_segment() {
        let clock = call(228, [1, 0, 0, 0, 0, 0]);
        assert_eq!(filled(&clock, 0, || {}), [0_u64; 0]);
    }
}

//! One piece of memory that a call may fill, and how far the host has come in it.

use core::cmp::Ordering;

use rcoe_linux_abi::PAGE;

use crate::memory::guest::{self, Fault};
use crate::sys::numbers::EINTR;

/// Most bytes that are looked at after EFAULT: the host finds a bad pointer within the first
/// datagram, record or structure, and tells of what came before by its result.
pub(super) const BEFORE_FAULT: u64 = 1 << 20;

/// When, and how far, a segment is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
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
    /// As many bytes as the `u32` at this address tells after the call.
    Short { pointer: u64, of: Message },
    /// The same with a 64-bit length.
    Long { pointer: u64, of: Message },
    /// The next part of a message whose length is at this address after the call.
    Part { pointer: u64, first: bool, of: u32 },
    /// The header of a message: all of it, if that is counted.
    Header { of: u32 },
}

/// The place of a message among several, if there may be several.
pub(super) type Message = Option<u32>;

/// One piece of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) capacity: u64,
    pub(super) rule: Rule,
    /// Bytes that the call filled, once [`super::Segments::settle`] has judged it.
    pub(super) filled: u64,
}

/// What is left to hand out while walking through shared segments.
#[derive(Default)]
pub(super) struct Walk {
    shared: Option<u64>,
    message: u64,
    before_fault: u64,
}

/// Is there memory of the program's at this address that the host can have written to?
fn is_there(address: u64) -> bool {
    !guest::is_reserved(address) && guest::ends_are_writable(address, 1)
}

impl Segment {
    /// Is it filled piece by piece?
    const fn in_pieces(&self) -> bool {
        matches!(self.rule, Rule::Share(_) | Rule::Part { .. })
    }

    /// How its message, if it is of one of several, lies to those that a call with this result has
    /// counted: less if it is one of them, and equal if it comes right after them.
    fn beside(&self, result: i64) -> Option<Ordering> {
        let of = match self.rule {
            Rule::Short { of, .. } | Rule::Long { of, .. } => of,
            Rule::Part { of, .. } | Rule::Header { of } => Some(of),
            _ => None,
        };
        Some(i64::from(of?).cmp(&result))
    }

    /// May the host have met a pointer here that it cannot write to, and have told of what it had
    /// done before? Then it has begun with something that it does not tell of.
    pub(super) fn may_have_faulted(&self, result: i64) -> bool {
        match self.beside(result) {
            Some(Ordering::Greater) => false,
            Some(Ordering::Equal) if !self.in_pieces() => !self.is_there(self.capacity),
            _ => self.in_pieces() && self.goes_on_nowhere(),
        }
    }

    /// A piece that goes on where nothing can be written: the host may have met that in the midst
    /// of it, or have counted padding that it does not write (`getdents64`).
    fn goes_on_nowhere(&self) -> bool {
        let filled = self.filled.saturating_sub(1);
        let next = (self.address + self.filled) / PAGE * PAGE + PAGE - self.address;
        let looks = [filled, next.min(self.capacity - 1), self.capacity - 1];
        let there = |at| self.address.checked_add(at).is_some_and(is_there);
        !looks.into_iter().all(there)
    }

    /// Goes as far as the host may have come, and no further than there is memory.
    pub(super) fn extend(&mut self, walk: &mut Walk, result: i64) {
        if self.beside(result) == Some(Ordering::Greater) {
            return;
        }
        let reach = self.within_reach(walk);
        let cut = self.filled > 0 && !is_there(self.address + (self.filled - 1));
        if cut || reach > self.filled {
            self.filled = reach;
        }
    }

    /// Is there memory at the first and the last of so many bytes, of which there is one?
    fn is_there(&self, bytes: u64) -> bool {
        let last = self.address.checked_add(bytes - 1);
        is_there(self.address) && last.is_some_and(is_there)
    }

    /// Goes no further than there is memory. Calls succeed that write less than they may, or than
    /// they count: padding behind control data, the rest of a sleep until a point in time.
    pub(super) fn cut(&mut self, walk: &mut Walk) {
        if self.filled > 0 && !self.in_pieces() && !self.is_there(self.filled) {
            self.filled = self.filled.min(self.within_reach(walk));
        }
    }

    /// Bytes before the first page that is not there, or can only be read.
    pub(super) fn within_reach(&self, walk: &mut Walk) -> u64 {
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

    /// How much a call with this result has filled, by its word.
    pub(super) fn judge(&self, walk: &mut Walk, result: i64) -> Result<u64, Fault> {
        let fails = result < 0 || self.beside(result).is_some_and(Ordering::is_ge);
        Ok(match self.rule {
            Rule::Always => self.capacity,
            Rule::Interrupted => {
                if result == EINTR {
                    self.capacity
                } else {
                    0
                }
            }
            _ if fails => 0,
            Rule::Success | Rule::Header { .. } => self.capacity,
            Rule::Untold => self.within_reach(walk),
            Rule::Share(elem) => {
                let total = result.cast_unsigned().saturating_mul(elem);
                self.part_of(walk.shared.get_or_insert(total))
            }
            Rule::Short { pointer, .. } => guest::read::<u32>(pointer)?.into(),
            Rule::Long { pointer, .. } => guest::read(pointer)?,
            Rule::Part { pointer, first, .. } => {
                if first {
                    walk.message = guest::read::<u32>(pointer)?.into();
                }
                self.part_of(&mut walk.message)
            }
        })
    }

    /// Takes its part of so many bytes.
    fn part_of(&self, left: &mut u64) -> u64 {
        let part = self.capacity.min(*left);
        *left -= part;
        part
    }
}

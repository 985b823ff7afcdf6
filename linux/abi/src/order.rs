//! What the supervisor has a group do at a point of its trace that the group chooses: the steps of
//! a re-integration, and scrubbing.
//!
//! An order is one word in the group's [`crate::Control`]. The primary publishes it with the next
//! record, so that all replicas carry it out at the same point. Orders of one re-integration carry
//! its serial number; one that speaks of another than the last copy means nothing. Orders about
//! pages have short numbers of their own, so that each differs from the one before.

/// Most pages of one [`Order::Scrub`].
pub const SCRUB_PAGES: usize = 64;

/// Blocks of a page, each with a digest of its own.
pub const BLOCKS: usize = 16;

/// What is in the blocks of a page, in half a word each.
pub type Blocks = [u32; BLOCKS];

/// What is in the blocks of this page, by this digest.
pub fn blocks(page: &[u8], digest: impl Fn(&[u8]) -> u64) -> Blocks {
    let mut all = [0; BLOCKS];
    let size = page.len().div_ceil(BLOCKS).max(1);
    for (cell, block) in all.iter_mut().zip(page.chunks(size)) {
        let [a, b, c, d, ..] = digest(block).to_le_bytes();
        *cell = u32::from_le_bytes([a, b, c, d]);
    }
    all
}

/// Kinds of orders about pages, as packed; the last one has the number of a replica in it.
const SCRUB: u64 = 4;
const DIGEST: u64 = 6;
const SCRUB_AS: u64 = 8;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Copy a member, and keep a twin of every other one for comparison.
    Copy {
        /// Number of the copy.
        newcomer: u8,
        /// Whom to copy.
        donor: u8,
        /// The members by the supervisor's account, one bit each.
        members: u8,
    },
    /// The same of a group that shares memory with others, at its first turn after one that the
    /// supervisor has claimed ([`crate::arena::Claims::REST`]).
    CopySharer {
        /// Number of the copy.
        newcomer: u8,
        /// Whom to copy.
        donor: u8,
        /// The members by the supervisor's account, one bit each.
        members: u8,
    },
    /// Take the copy in.
    Admit,
    /// Nothing comes of it.
    Forget,
    /// Stop for the debugger that traces all replicas.
    Pause,
    /// Tell what is in memory. Nobody waits for anybody.
    Digest {
        /// Number of the first page: its address divided by the size of a page; below 2^36.
        page: u64,
        /// How many pages, at most [`SCRUB_PAGES`].
        count: u8,
    },
    /// Meet, compare memory, and give whoever differs what most have.
    Scrub {
        /// As of [`Order::Digest`].
        page: u64,
        /// As of [`Order::Digest`].
        count: u8,
        /// Which member has what is right where no majority has the same, if anybody knows.
        right: Option<u8>,
    },
}

/// An order and which re-integration it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerialOrder {
    /// Number of the re-integration within its group, from 1; of a scrub only the last 13 bits.
    pub serial: u32,
    /// What is to be done.
    pub order: Order,
}

impl SerialOrder {
    /// As a word; never 0.
    #[must_use]
    pub const fn pack(self) -> u64 {
        let kind = match self.order {
            Order::Copy {
                newcomer,
                donor,
                members,
            } => 1 << 24 | (members as u64) << 16 | (newcomer as u64) << 8 | donor as u64,
            Order::CopySharer {
                newcomer,
                donor,
                members,
            } => 5 << 24 | (members as u64) << 16 | (newcomer as u64) << 8 | donor as u64,
            Order::Admit => 2 << 24,
            Order::Forget => 3 << 24,
            Order::Pause => 7 << 24,
            Order::Digest { page, count } => return self.pack_pages(DIGEST, page, count),
            Order::Scrub { page, count, right } => {
                let kind = match right {
                    Some(replica) => SCRUB_AS | (replica & 7) as u64,
                    None => SCRUB,
                };
                return self.pack_pages(kind, page, count);
            }
        };
        (self.serial as u64) << 32 | kind
    }

    /// From the lowest bit: 24 of the page, the kind, 12 more of the page, 7 of the count, the
    /// number.
    const fn pack_pages(self, kind: u64, page: u64, count: u8) -> u64 {
        let (low, high) = (page & 0xff_ffff, (page >> 24) & 0xfff);
        let count = (count & 0x7f) as u64;
        ((self.serial & 0x1fff) as u64) << 51 | count << 44 | high << 32 | kind << 24 | low
    }

    const fn unpack_pages(word: u64) -> Self {
        let page = (word >> 32 & 0xfff) << 24 | word & 0xff_ffff;
        let count = (word >> 44 & 0x7f) as u8;
        let order = match word >> 24 & 0xff {
            DIGEST => Order::Digest { page, count },
            SCRUB => Order::Scrub {
                page,
                count,
                right: None,
            },
            kind => Order::Scrub {
                page,
                count,
                right: Some((kind & 7) as u8),
            },
        };
        Self {
            serial: (word >> 51) as u32,
            order,
        }
    }

    /// Reads a word; `None` if it is no order.
    #[must_use]
    pub const fn unpack(word: u64) -> Option<Self> {
        let [donor, newcomer, members, kind, rest @ ..] = word.to_le_bytes();
        let order = match kind {
            1 => Order::Copy {
                newcomer,
                donor,
                members,
            },
            2 => Order::Admit,
            3 => Order::Forget,
            7 => Order::Pause,
            4 | 6 | 8..16 => return Some(Self::unpack_pages(word)),
            5 => Order::CopySharer {
                newcomer,
                donor,
                members,
            },
            _ => return None,
        };
        Some(Self {
            serial: u32::from_le_bytes(rest),
            order,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_round_trip() {
        let copy = Order::Copy {
            newcomer: 2,
            donor: 7,
            members: 0b1011,
        };
        let sharer = Order::CopySharer {
            newcomer: 1,
            donor: 2,
            members: 0b101,
        };
        for order in [copy, sharer, Order::Admit, Order::Forget, Order::Pause] {
            let serial = SerialOrder {
                serial: 0x8000_0001,
                order,
            };
            assert_eq!(SerialOrder::unpack(serial.pack()), Some(serial));
        }
        assert_eq!(SerialOrder::unpack(0), None);
        for (page, count, serial) in [(0x7_ffff_ffff, 64, 0x1fff), (0x400, 1, 1)] {
            let scrub = |right| Order::Scrub { page, count, right };
            let digest = Order::Digest { page, count };
            for order in [digest, scrub(None), scrub(Some(0)), scrub(Some(7))] {
                let order = SerialOrder { serial, order };
                assert_eq!(SerialOrder::unpack(order.pack()), Some(order));
            }
        }
    }
}

//! Places at which frames are mapped that processes share.
//!
//! A frame is mapped at one place by its own capability, and at more by others: so each place of a
//! shared one has an alias, by which it is mapped instead of the frame itself. The aliases of one
//! frame make a ring; it can be given back with the last of them.

/// Most aliases, with the first, which is none.
pub(crate) const ALIASES: usize = 4096;
/// In what is mapped: it is an alias, and no frame.
const ALIAS: u32 = 1 << 31;

/// All of them.
#[derive(Debug)]
pub(crate) struct Aliases {
    /// The next one in the ring; 0 if there is no such alias.
    next: [u16; ALIASES],
    /// The number of what is shared, which nothing else had before.
    number: [u32; ALIASES],
    last: u32,
}

impl Default for Aliases {
    fn default() -> Self {
        Self {
            next: [0; ALIASES],
            number: [0; ALIASES],
            last: 0,
        }
    }
}

impl Aliases {
    /// Another one of what this one shares, or the first one of a frame; `None` if there are too
    /// many.
    pub(crate) fn add(&mut self, like: Option<u16>) -> Option<u16> {
        let free = self.next.iter().skip(1).position(|&next| next == 0)?;
        let made = u16::try_from(free + 1).ok()?;
        let like = match like {
            Some(like) => usize::from(like),
            None => {
                self.last = self.last.wrapping_add(1);
                self.number[free + 1] = self.last;
                self.next[free + 1] = made;
                return Some(made);
            }
        };
        self.number[free + 1] = self.number[like];
        self.next[free + 1] = core::mem::replace(&mut self.next[like], made);
        Some(made)
    }

    /// One is there no more; tells whether it was the last one of what it shared.
    pub(crate) fn remove(&mut self, alias: u16) -> bool {
        let next = core::mem::take(&mut self.next[usize::from(alias)]);
        if next == alias {
            return true;
        }
        let mut before = next;
        while self.next[usize::from(before)] != alias {
            before = self.next[usize::from(before)];
        }
        self.next[usize::from(before)] = next;
        false
    }

    /// The number of what it shares.
    pub(crate) const fn number(&self, alias: u16) -> u32 {
        self.number[alias as usize]
    }
}

/// What is mapped for an alias; for none, the frame.
pub(crate) const fn mapped_as(frame: u32, alias: u16) -> u32 {
    match alias {
        0 => frame,
        alias => ALIAS | alias as u32,
    }
}

/// The alias that this is, if it is one.
pub(crate) const fn alias_of(mapped: u32) -> Option<u16> {
    if mapped & ALIAS == 0 {
        return None;
    }
    let [low, high, ..] = mapped.to_le_bytes();
    Some(u16::from_le_bytes([low, high]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_last_of_a_ring_is_known_in_whatever_order_they_go() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            let mut aliases = Aliases::default();
            let other = aliases.add(None).unwrap();
            let first = aliases.add(None).unwrap();
            let mut ring = std::vec![first];
            ring.push(aliases.add(Some(first)).unwrap());
            ring.push(aliases.add(Some(first)).unwrap());
            assert_ne!(aliases.number(other), aliases.number(first));
            assert!(
                ring.iter()
                    .all(|&it| aliases.number(it) == aliases.number(first))
            );
            let last: Vec<_> = order.iter().map(|&at| aliases.remove(ring[at])).collect();
            assert_eq!(last, [false, false, true]);
            assert!(aliases.remove(other));
        }
        let mut aliases = Aliases::default();
        assert_eq!((0..).map_while(|_| aliases.add(None)).count(), ALIASES - 1);
        assert_eq!(alias_of(mapped_as(7, 0)), None);
        assert_eq!(alias_of(mapped_as(7, 4095)), Some(4095));
    }
}

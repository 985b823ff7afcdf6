//! A page of a program, as a word of the table of pages.

use rcoe_abi::Rights;

use crate::linux::aliases::mapped_as;

/// The frame of a page that is there and was not used yet.
pub(super) const PROMISED: u32 = u32::MAX - 1;

/// A page of the program: its frame and its rights, of which it may have none; and its alias, if
/// others share the frame or could.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub(super) frame: u32,
    pub(super) rights: Rights,
    pub(super) alias: u16,
    /// Did the program say that it is to stay in memory?
    pub(super) locked: bool,
}

/// Where rights and alias stand in the word of a page.
const RIGHTS_BITS: u32 = 32;
const ALIAS_BITS: u32 = 48;
const LOCKED: u64 = 1 << 47;

impl Page {
    pub(super) const fn word(self) -> u64 {
        (self.frame as u64 + 1)
            | (self.rights.word() << RIGHTS_BITS)
            | ((self.alias as u64) << ALIAS_BITS)
            | if self.locked { LOCKED } else { 0 }
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        let frame = u32::try_from((word & 0xffff_ffff).checked_sub(1)?).ok()?;
        let rights = Rights::from_word(word >> RIGHTS_BITS & 0x7fff);
        let alias = u16::try_from(word >> ALIAS_BITS).ok()?;
        Some(Self {
            frame,
            rights,
            alias,
            locked: word & LOCKED != 0,
        })
    }

    /// What of it is mapped.
    pub(super) const fn mapped(self) -> u32 {
        mapped_as(self.frame, self.alias)
    }
}

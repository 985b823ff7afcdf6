//! Words for people, as places in one text.
//!
//! Intuition: a reference is a pointer, and in an executable that lies at any address each pointer
//! is relocated at start, in a page that is then the process's own. A place is two small numbers.

use crate::table::TEXT;

/// A piece of the text of the table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    start: u16,
    len: u16,
}

impl Text {
    pub(crate) const fn new(start: u16, len: u16) -> Self {
        Self { start, len }
    }

    /// What stands there.
    pub(crate) fn get(self) -> &'static str {
        let start = usize::from(self.start);
        &TEXT[start..start + usize::from(self.len)]
    }
}

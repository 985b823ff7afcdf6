//! Calls that are many calls in one: `ioctl`, `fcntl`, `prctl`, `lseek`.

use crate::text::Text;
use crate::{Arg, Class, Facts, Special, Table};

/// One request of such a call. Fields as in [`crate::Syscall`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number that selects it.
    pub code: u32,
    /// Its name in the C headers.
    pub(crate) name: Text,
    /// Its class.
    pub class: Class,
    /// The kind of the argument at [`Requests::data`].
    pub arg: Arg,
    /// A new primary may do it again.
    pub repeatable: bool,
    /// It may wait for ever.
    pub blocking: bool,
    /// Refused without a warning.
    pub quiet: bool,
    /// The agent's own code for it.
    pub special: Special,
    /// Common, and made without detours by a lone replica while nothing rare is under way.
    pub straight: bool,
    /// The number of what else is known of it.
    pub(crate) facts: u16,
    /// Why it is not supported; empty if it is.
    pub(crate) reason: Text,
}

/// Where a call's requests are listed and which arguments they concern.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Which table it is.
    pub table: Table,
    /// Index of the argument that selects; its low 32 bits count.
    pub selector: u8,
    /// Index of the argument that the request gives its kind to.
    pub data: Option<u8>,
    /// What a refused request fails with: the kernel's word for one that it does not know.
    pub errno: u16,
    /// The number of the first of the resolved calls, which come in the order of the rows.
    pub(crate) resolved: u16,
}

impl Request {
    /// Its name in the C headers.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name.get()
    }

    /// What else is known of it.
    #[must_use]
    pub const fn facts(&self) -> &'static Facts {
        &crate::table::COLUMNS[self.facts as usize]
    }

    /// Why it is not supported; empty if it is.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason.get()
    }
}

impl Requests {
    /// The rows, by code.
    #[must_use]
    pub const fn rows(&self) -> &'static [Request] {
        self.table.rows()
    }

    /// The row that raw arguments select.
    #[inline]
    #[must_use]
    pub fn select(&self, raw: &[u64; 6]) -> Option<&'static Request> {
        let code = Arg::Uint.canonical(raw[usize::from(self.selector)]);
        find(self.rows(), u32::try_from(code).ok()?)
    }

    /// The number of the resolved call that raw arguments select; without one the call stays as it
    /// is, which is unsupported.
    #[inline]
    pub(crate) fn resolve(&self, raw: &[u64; 6]) -> Option<u16> {
        let code = Arg::Uint.canonical(raw[usize::from(self.selector)]);
        let at = position(self.rows(), u32::try_from(code).ok()?)?;
        u16::try_from(at).ok().map(|at| self.resolved + at)
    }
}

/// Finds a code in rows sorted by code.
pub(crate) fn find(rows: &'static [Request], code: u32) -> Option<&'static Request> {
    position(rows, code).map(|at| &rows[at])
}

fn position(rows: &[Request], code: u32) -> Option<usize> {
    rows.binary_search_by_key(&code, |r| r.code).ok()
}

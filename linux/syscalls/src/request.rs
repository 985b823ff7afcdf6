//! Calls that are many calls in one: `ioctl`, `fcntl`, `prctl`, `lseek`.

use crate::{Arg, Class, Resolved, Special};

/// One request of such a call. Fields as in [`crate::Syscall`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number that selects it.
    pub code: u32,
    /// Its name in the C headers.
    pub name: &'static str,
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
    /// Why it is not supported; empty if it is.
    pub reason: &'static str,
}

/// Where a call's requests are listed and which arguments they concern.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Index of the argument that selects; its low 32 bits count.
    pub selector: u8,
    /// Index of the argument that the request gives its kind to.
    pub data: Option<u8>,
    /// What a refused request fails with: the kernel's word for one that it does not know.
    pub errno: u16,
    /// The rows, by code.
    pub rows: &'static [Request],
}

impl Requests {
    /// The row that raw arguments select.
    #[inline]
    #[must_use]
    pub fn select(&self, raw: &[u64; 6]) -> Option<&'static Request> {
        let code = Arg::Uint.canonical(raw[usize::from(self.selector)]);
        find(self.rows, u32::try_from(code).ok()?)
    }

    /// Overlays the selected row; without one the call stays as it is, which is unsupported.
    pub(crate) fn apply(&self, mut call: Resolved, raw: &[u64; 6]) -> Resolved {
        let Some(row) = self.select(raw) else {
            return call;
        };
        if let Some(data) = self.data {
            call.args[usize::from(data)] = row.arg;
        }
        Resolved {
            request: Some(row),
            class: row.class,
            repeatable: row.repeatable,
            blocking: row.blocking,
            quiet: row.quiet,
            special: row.special,
            reason: row.reason,
            ..call
        }
    }
}

/// Finds a code in rows sorted by code.
pub(crate) fn find(rows: &'static [Request], code: u32) -> Option<&'static Request> {
    rows.binary_search_by_key(&code, |r| r.code)
        .ok()
        .map(|at| &rows[at])
}

//! The counter of instructions that programs execute: these processors have none under the
//! emulator, so close coupling is refused.

/// There is no such counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {}

impl Counter {
    /// The exception of a breakpoint.
    pub(crate) const WATCHED: u64 = 1;

    pub(crate) const fn watch(self, _place: u64) {
        match self {}
    }

    pub(crate) const fn step(self) {
        match self {}
    }

    pub(crate) const fn unwatch(self) {
        match self {}
    }

    /// None.
    pub(crate) const fn new() -> Option<Self> {
        None
    }

    pub(crate) const fn begin(self) {
        match self {}
    }

    pub(crate) const fn arm(self, _instructions: u64) {
        match self {}
    }

    pub(crate) const fn executed(self, _armed: u64) -> u64 {
        match self {}
    }

    pub(crate) const fn hand_on(self, _core: u32) {
        match self {}
    }

    pub(crate) const fn doze(self, _cycles: u64) {
        match self {}
    }

    pub(crate) const fn rest_of_slice(self) -> u64 {
        match self {}
    }

    pub(crate) const fn begin_slice(self, _rest: u64) {
        match self {}
    }
}

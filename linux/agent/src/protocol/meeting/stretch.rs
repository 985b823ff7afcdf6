//! What counts tell on the way to a target: those of the processor ([`crate::coupling::counter`]),
//! or of visits to a place in a loop ([`crate::protocol::meeting::milestone`]).
//!
//! A replica that was before the target, had the stub stand from there on, and is behind it by its
//! count, never has the state that it looks for: its run ends at once, and the reports say so.
//!
//! Contract: nothing is agreed by a count. Where there is none, or none that is certain, replicas
//! search as they do without.

use rcoe_core::coupling::Counted;

use crate::coupling::counter;
use crate::protocol::meeting::Meeting;

impl Meeting {
    /// Where the interrupted program is, by what is counted since the last point.
    pub(super) fn counted(&self) -> Counted {
        match self.visits_since_point() {
            Some(counted) => counted,
            None => counter::counted(self.site.visits()),
        }
    }

    /// From here on this run is stopped if it comes to the target. It may go on behind a place at
    /// which it was refused: there it has been compared.
    pub(super) fn search_from_here(&mut self) {
        if self.site.is_certain() && self.searched_from == Counted::default() {
            self.searched_from = self.counted();
        }
    }

    /// Is this replica, which runs to the target, certain never to have its state?
    pub(super) fn has_passed(&self) -> bool {
        let target = &self.coupler.target().counted;
        self.site.is_certain()
            && !self.reading.is_on()
            && self.searched_from.is_before(target)
            && target.is_before(&self.counted())
    }
}

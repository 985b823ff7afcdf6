//! What the recoveries of a run took: how many of each kind there were, and how long they lasted.
//!
//! Contract: a removal counts once it is over, and so does a re-integration; one that was abandoned
//! does not count.

use std::fmt;

use crate::events::Counts;

/// How often something was done, and how long that took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    count: u64,
    sum: u64,
    longest: u64,
}

impl Span {
    const fn add(&mut self, us: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(us);
        if us > self.longest {
            self.longest = us;
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = self.sum.checked_div(self.count).unwrap_or(0);
        let (count, longest) = (self.count, self.longest);
        write!(f, " {count:>14} {mean:>11} us {longest:>11} us")
    }
}

/// All recoveries of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    followers: Span,
    primaries: Span,
    returns: Span,
    pauses: Span,
}

impl Tally {
    /// A replica was removed; did it lead?
    pub(crate) const fn removed(&mut self, led: bool, us: u64) {
        if led {
            self.primaries.add(us);
        } else {
            self.followers.add(us);
        }
    }

    /// A replica is back; the primary was kept from the program for so long.
    pub(crate) const fn returned(&mut self, us: u64, pause: u64) {
        self.returns.add(us);
        self.pauses.add(pause);
    }

    /// Adds what the last event tells.
    pub(crate) fn tell(&self, counts: &mut Counts) {
        counts.takeovers = self.primaries.count;
        counts.longest_removal_us = self.followers.longest.max(self.primaries.longest);
        counts.longest_reintegration_us = self.returns.longest;
        counts.longest_pause_us = self.pauses.longest;
    }
}

/// Nothing if nothing happened.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("followers removed", self.followers),
            ("primaries removed", self.primaries),
            ("re-integrations", self.returns),
            ("pauses of the primary", self.pauses),
        ];
        if rows.iter().all(|(_, span)| span.count == 0) {
            return Ok(());
        }
        write!(
            f,
            "\n{:<24} {:>14} {:>14} {:>14}",
            "", "number", "mean", "longest"
        )?;
        for (name, span) in rows {
            write!(f, "\n{name:<24}{span}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_number_mean_and_longest() {
        let mut tally = Tally::default();
        assert_eq!(tally.to_string(), "");
        tally.removed(false, 10);
        tally.removed(false, 30);
        tally.removed(true, 500);
        tally.returned(9000, 250);
        let text = tally.to_string();
        let row = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(row("followers removed"), ["2", "20", "us", "30", "us"]);
        assert_eq!(row("primaries removed"), ["1", "500", "us", "500", "us"]);
        let mut counts = Counts::default();
        tally.tell(&mut counts);
        assert_eq!((counts.takeovers, counts.longest_removal_us), (1, 500));
        assert_eq!(counts.longest_reintegration_us, 9000);
        assert_eq!(counts.longest_pause_us, 250);
    }
}

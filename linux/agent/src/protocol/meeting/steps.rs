//! How far a replica is in its program, counted in calls.
//!
//! Events of the trace alone do not tell: some calls are none, like the return from a handler. A
//! replica that is at such a call would seem ahead of one that has made it and computes.
//!
//! Contract: all replicas count alike, so the count begins anew at each event, and what enters the
//! trace may be gone through more than once.

/// Bits of a number for calls since the last event. Of more than fit all are taken for the last.
const QUIET: u32 = 24;

/// Calls and faults since an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    /// Events before them.
    events: u64,
    quiet: u64,
}

impl Steps {
    /// One more begins.
    pub(super) const fn count(&mut self, events: u64) {
        if self.events != events {
            (self.events, self.quiet) = (events, 0);
        }
        self.quiet += 1;
    }

    /// Where a replica is that has made so many events.
    pub(super) fn number(&self, events: u64) -> u64 {
        let quiet = if self.events == events { self.quiet } else { 0 };
        events << QUIET | quiet.min((1 << QUIET) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_made_a_call_that_is_no_event_is_ahead_of_who_is_at_it() {
        let mut steps = Steps::default();
        let at_it = steps.number(7);
        steps.count(7);
        assert!(at_it < steps.number(7) && steps.number(7) < steps.number(8));
    }

    #[test]
    fn an_event_begins_anew_whatever_was_counted() {
        let (mut one, mut other) = (Steps::default(), Steps::default());
        one.count(7);
        one.count(7);
        other.count(7);
        assert_eq!(one.number(8), other.number(8));
        one.count(8);
        other.count(8);
        assert_eq!(one.number(8), other.number(8));
    }

    #[test]
    fn more_calls_than_can_be_counted_are_no_event() {
        let steps = Steps {
            events: 7,
            quiet: 1 << 40,
        };
        assert!(steps.number(7) < steps.number(8));
    }
}

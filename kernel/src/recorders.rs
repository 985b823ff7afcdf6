//! The first event at which replicas differ, in the words of their flight recorders: for the host's
//! report.
//!
//! Recorders hold the last events only. Up to where the traces were the same is known from the last
//! vote, so it is known too whether what is found is the first difference or a later one. Nothing
//! in the system depends on it: a recorder may be as faulty as its replica.

use core::fmt;

use rcoe_core::diagnose::{self, Divergence};
use rcoe_core::{Kind, MAX_REPLICAS, Outbox, Ports, ReplicaId, ReplicaSet};

use crate::diary::Diary;

/// What all replicas publish, and how far they agreed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorders {
    outboxes: [Option<&'static Outbox>; MAX_REPLICAS],
    /// Events so far when the members last met with equal traces.
    agreed: u64,
}

/// A line of the diary: number of the event, whether it is the first for sure, and what each
/// replica has: its number, the event's kind and value.
struct Line(Divergence, bool);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Divergence { event, recorded }, first) = self;
        let order = if *first { "first" } else { "later" };
        write!(f, "event {event} {order}")?;
        for (replica, recorded) in recorded.iter().enumerate() {
            if let Some((Kind(kind), value)) = recorded {
                write!(f, " {replica}:{kind}:{value}")?;
            }
        }
        Ok(())
    }
}

impl Recorders {
    pub(crate) fn new(ports: &Ports<'static>) -> Self {
        let outboxes = ports.map(|port| port.map(|port| port.outbox));
        Self {
            outboxes,
            agreed: 0,
        }
    }

    /// All members have met with equal traces, of so many events.
    #[inline]
    pub(crate) const fn agree(&mut self, events: u64) {
        self.agreed = events;
    }

    /// Writes down where these replicas differ.
    pub(crate) fn tell(&self, diary: Diary, among: ReplicaSet) {
        let mut outboxes = [None; MAX_REPLICAS];
        for id in among.iter().map(ReplicaId::index) {
            outboxes[id] = self.outboxes[id];
        }
        let near = diagnose::latest_event(&outboxes);
        match diagnose::first_divergence_behind(&outboxes, self.agreed, near) {
            Some((divergence, first)) => diary.line(format_args!("{}", Line(divergence, first))),
            None => diary.line(format_args!("event unknown")),
        }
    }
}

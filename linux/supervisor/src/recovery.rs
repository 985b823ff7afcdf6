//! Times how long a removal takes: from the moment when the supervisor is woken by it to the one
//! when the lost replica does nothing any more and the others are told, so that they can go on.
//!
//! Not covered: what the replicas need to find out who is faulty, before they call the supervisor.

use std::time::Instant;

use crate::events::Event;
use crate::family::Family;
use crate::tally::Tally;

/// Removals that are under way.
#[derive(Debug, Default)]
pub(crate) struct Recoveries {
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    group: usize,
    process: u32,
    replica: usize,
    /// Its process then: the number can have another one later.
    pid: Option<u32>,
    /// Was it the primary?
    led: bool,
    noticed: Instant,
    /// How long it took, once it is over, in microseconds.
    us: Option<u64>,
}

impl Open {
    /// Does the lost replica do nothing any more?
    fn is_over(&self, family: &Family) -> bool {
        match &family.teams[self.group] {
            Some(team) if team.pid == self.process => {
                team.group.pid(self.replica) != self.pid || team.group.has_left(self.replica)
            }
            _ => true,
        }
    }
}

impl Recoveries {
    /// A replica has been removed and is about to be killed.
    pub(crate) fn begin(
        &mut self,
        family: &Family,
        group: usize,
        replica: usize,
        noticed: Instant,
    ) {
        let Some(team) = &family.teams[group] else {
            return;
        };
        self.open.push(Open {
            group,
            process: team.pid,
            replica,
            pid: team.group.pid(replica),
            led: team.primary() == Some(replica),
            noticed,
            us: None,
        });
    }

    /// Times what is over by now, before it is told.
    pub(crate) fn look(&mut self, family: &Family) {
        for open in &mut self.open {
            if open.us.is_none() && open.is_over(family) {
                let took = open.noticed.elapsed().as_micros();
                open.us = Some(u64::try_from(took).unwrap_or(u64::MAX));
            }
        }
    }

    /// What is over since it was last told; it is also added to the tally.
    pub(crate) fn finished(&mut self, family: &Family, tally: &mut Tally) -> Vec<Event> {
        self.look(family);
        let over = self.open.extract_if(.., |open| open.us.is_some());
        let event = |open: Open| {
            let us = open.us.unwrap_or_default();
            tally.removed(open.led, us);
            Event::Recovery {
                process: open.process,
                removed: open.replica,
                us,
            }
        };
        over.map(event).collect()
    }
}

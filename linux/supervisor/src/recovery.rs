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
        });
    }

    /// What is over since the last look; it is also added to the tally.
    pub(crate) fn finished(&mut self, family: &Family, tally: &mut Tally) -> Vec<Event> {
        let (open, over) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open: &Open| match &family.teams[open.group] {
                Some(team) if team.pid == open.process => {
                    team.group.pid(open.replica) == open.pid && !team.group.has_left(open.replica)
                }
                _ => false,
            });
        self.open = open;
        let event = |open: Open| {
            let us = u64::try_from(open.noticed.elapsed().as_micros()).unwrap_or(u64::MAX);
            tally.removed(open.led, us);
            Event::Recovery {
                process: open.process,
                removed: open.replica,
                us,
            }
        };
        over.into_iter().map(event).collect()
    }
}

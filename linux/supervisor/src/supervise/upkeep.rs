//! What keeps the groups whole while the program runs: lost replicas brought back, memory scrubbed.

use std::time::Duration;

use super::Run;
use crate::events::{Event, Reintegrated};
use crate::reintegration;
use crate::team::{State, Team};

/// How often to look whether the ledger of cores has been written.
const WRITING: Duration = Duration::from_millis(20);

/// Is anything done for this process? Not once it ends, nor while it is stopped.
fn is_kept(team: &Team) -> bool {
    team.state == State::Living && !team.is_stopped()
}

impl Run<'_> {
    /// When there is something to do here, if nothing happens before.
    pub(super) fn upkeep_due(&self) -> Option<Duration> {
        let all = self.family.teams.iter().flatten();
        let teams = || all.clone().filter(|team| is_kept(team));
        if teams().any(|team| team.reintegration.is_busy()) {
            return Some(Duration::ZERO);
        }
        let lacking = teams().filter(|team| self.reintegrates() && team.lacks_someone());
        // Those that share memory wait for each other.
        let lacking = lacking.filter(|team| !team.shares() || !team.reintegration.is_over());
        let copies = lacking.filter_map(|team| team.reintegration.alarm());
        let reunion = self.reunions.alarm().filter(|_| self.reintegrates());
        let copies = copies.chain(reunion);
        let scrubs = teams().filter(|_| self.settings.scrub.is_some());
        let writes = self.clerk.is_busy().then_some(WRITING);
        let alarms = copies.chain(scrubs.map(|team| team.scrub.alarm()));
        alarms.chain(writes).min()
    }

    const fn reintegrates(&self) -> bool {
        self.settings.reintegrate && self.settings.mask
    }

    /// Brings lost replicas back.
    pub(super) fn reintegrate(&mut self) {
        if !self.reintegrates() {
            return;
        }
        let mut events = self.reunions.step(&mut self.family);
        let awaited = self.reunions.awaited(&self.family);
        for team in self.family.teams.iter_mut().flatten() {
            if is_kept(team) {
                events.extend(reintegration::step(team, awaited));
            }
        }
        self.reunions.conclude(&self.family);
        for event in &events {
            self.tell_reintegration(event);
        }
    }

    fn tell_reintegration(&mut self, event: &Event) {
        if let Event::Reintegration {
            what: Reintegrated::Done { us, pause_us, .. },
            ..
        } = event
        {
            self.happened.reintegrations += 1;
            self.tally.returned(*us, *pause_us);
        }
        if let Some(text) = event.warning() {
            self.observer.warning(&text);
        }
        self.observer.event(event);
    }

    /// Has replicas compare their memory.
    pub(super) fn scrub(&mut self) {
        let Some(rate) = self.settings.scrub else {
            return;
        };
        for team in self.family.teams.iter_mut().flatten() {
            if !is_kept(team) {
                continue;
            }
            let mut scrub = std::mem::take(&mut team.scrub);
            let events = scrub.step(team, rate);
            team.scrub = scrub;
            for event in events {
                let repaired = matches!(event, Event::Scrub { repaired: true, .. });
                self.happened.repairs += u64::from(repaired);
                if let Some(text) = event.warning() {
                    self.observer.warning(&text);
                }
                self.observer.event(&event);
            }
        }
    }
}

//! What keeps the groups whole while the program runs: lost replicas brought back, memory scrubbed.

use std::time::Duration;

use super::Run;
use crate::events::{Event, Observer, Reintegrated};
use crate::reintegration;
use crate::stuck;
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
        let scrubs = self.settings.scrub.is_some();
        let scrubs = teams().filter(|team| scrubs || team.scrub.is_repairing());
        let writes = self.clerk.is_busy().then_some(WRITING);
        let stuck = self.stuck.is_watching().then_some(stuck::LOOK);
        let alarms = copies.chain(scrubs.map(|team| team.scrub.alarm()));
        let scene = self.witness.alarm();
        alarms.chain(writes).chain(stuck).chain(scene).min()
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
            self.tell_upkeep(event);
        }
    }

    fn tell_upkeep(&mut self, event: &Event) {
        match event {
            Event::Reintegration {
                what: Reintegrated::Done { us, pause_us, .. },
                ..
            } => {
                self.happened.reintegrations += 1;
                self.tally.returned(*us, *pause_us);
            }
            Event::Scrub { repaired: true, .. } => self.happened.repairs += 1,
            _ => {}
        }
        if let Some(text) = event.warning() {
            self.observer.warning(&text);
        }
        self.observer.event(event);
    }

    /// Has replicas compare their memory, and repair what was found wrong in another way.
    pub(super) fn scrub(&mut self) {
        let kept = self.family.teams.iter().flatten().filter(|it| is_kept(it));
        let kept = kept.count();
        let rate = self.settings.scrub.map(|rate| rate.shared_by(kept));
        self.choose_looker();
        let mut told = Vec::new();
        for team in self.family.teams.iter_mut().flatten() {
            if !is_kept(team) {
                continue;
            }
            let mut scrub = std::mem::take(&mut team.scrub);
            let id = (team.memory.group(), team.serial);
            let slices = self.looker.is_some_and(|(looker, _)| looker == id);
            told.extend(scrub.step(team, rate, slices));
            team.scrub = scrub;
        }
        for event in &told {
            self.tell_upkeep(event);
        }
    }

    /// Chooses the process that looks at the memory that processes share: one that makes calls, if
    /// any does. It stays the same until it has gone through all of it.
    fn choose_looker(&mut self) {
        let id = |team: &Team| (team.memory.group(), team.serial);
        let sharers = self.family.teams.iter().flatten().map(Box::as_ref);
        let sharers = sharers.filter(|team| is_kept(team) && team.shares());
        let begun = |team: &Team| {
            let same = self.looker.filter(|it| it.0 == id(team));
            same.map(|(_, passes)| passes)
        };
        let rank = |team: &&Team| {
            let begun = begun(team);
            let midway = begun.is_some_and(|passes| passes == team.scrub.passes());
            (!midway, team.scrub.is_idle(), begun.is_none())
        };
        let chosen = sharers.min_by_key(rank);
        self.looker = chosen.map(|team| (id(team), team.scrub.passes()));
    }
}

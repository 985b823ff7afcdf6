//! Has replicas looked at when they were found to differ: for the events, and for core files.
//!
//! Contract: what a replica notes is read before it is removed, as its record of events soon holds
//! others, and so is where it stands: it is ended before it could say so itself. A removal does not
//! wait for the words of those who go on; the loop looks for them later. Waited for are, for a
//! bounded time, those who are to be stopped, or written to core files. Without events and core
//! files nobody is looked at.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Run;
use crate::dumps::{self, CORE_FAULTS, CORE_TIME, Title};
use crate::events::{DivergenceKind, Event, Observer as _};
use crate::judge::Process;
use crate::protocol::recorded;
use crate::scene::outside::{Stopped, place_in_vote};
use crate::scene::{self, Area, Place};
use crate::team::Team;

/// How long those who voted may take to say where they stand. They are about to, and on a loaded
/// machine they have to get a CPU first.
const VOTING: Duration = Duration::from_secs(1);
/// The same where there may have been no vote.
const MISSING: Duration = Duration::from_millis(50);
/// Between two looks whether they have, in a wait.
const LOOK: Duration = Duration::from_micros(50);
/// The same between rounds of the loop.
const GLANCE: Duration = Duration::from_millis(2);

/// What is to be told of a divergence.
#[derive(Debug)]
struct Pending {
    group: usize,
    /// Number of the birth of its process, and its id.
    serial: u32,
    process: u32,
    /// Until when those who are about to leave their scene are awaited.
    deadline: Instant,
    kind: DivergenceKind,
    replica: Option<usize>,
    event: Option<u64>,
    places: Vec<Option<Place>>,
    recorded: Vec<Option<String>>,
    /// What is mapped, if that was found out.
    areas: Vec<Area>,
}

/// What was told, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Witness {
    pending: Option<Pending>,
    /// Scenes that were told, by group and replica.
    told: HashMap<(usize, usize), u32>,
    /// Faults of which core files were wanted.
    faults: u32,
}

impl Witness {
    /// When to look again, if anything is to be told.
    pub(super) fn alarm(&self) -> Option<Duration> {
        self.pending.is_some().then_some(GLANCE)
    }
}

impl Run<'_> {
    /// Notes at once what will not be there later.
    pub(super) fn note_scene(
        &mut self,
        group: usize,
        kind: DivergenceKind,
        replica: Option<usize>,
        event: Option<u64>,
    ) {
        if !self.settings.scenes() {
            return;
        }
        // In the events a scene comes before the next divergence.
        self.tell_scene();
        let team = self.team(group);
        let all = 0..team.memory.replicas();
        let noted = |index| event.and_then(|event| recorded(&team.memory, index, event));
        let recorded = all.clone().map(noted).collect();
        let mut places: Vec<Option<Place>> = all.map(|_| None).collect();
        if let Some(index) = replica.filter(|_| kind == DivergenceKind::Timeout) {
            places[index] = look_at(team, index);
        }
        let patience = match kind {
            DivergenceKind::Mismatch => VOTING,
            DivergenceKind::Timeout => MISSING,
            DivergenceKind::Fault | DivergenceKind::Death => Duration::ZERO,
        };
        self.witness.pending = Some(Pending {
            group,
            serial: team.serial,
            process: team.pid,
            deadline: Instant::now() + patience,
            kind,
            replica,
            event,
            places,
            recorded,
            areas: Vec::new(),
        });
    }

    /// Notes where a replica stands that is about to be ended, and what is mapped in a follower:
    /// nobody waits for its end, and the program may be over behind it. For a primary all wait.
    pub(super) fn note_before_end(&mut self, group: usize, index: usize) {
        let Some(mut pending) = self.witness.pending.take() else {
            return;
        };
        let team = self.team(group);
        let led = team.primary() == Some(index);
        let pid = team.group.pid(index);
        let place = &mut pending.places[index];
        if pending.kind == DivergenceKind::Mismatch && place.is_none() {
            *place = pid.and_then(|pid| place_in_vote(pid, frame(team), asked(team)));
        }
        if pending.areas.is_empty() && !led {
            pending.areas = pid.map_or_else(Vec::new, scene::areas);
        }
        self.witness.pending = Some(pending);
    }

    /// Notes what is mapped in one that goes on, where that is not known of who was ended.
    pub(super) fn note_mappings(&mut self, group: usize) {
        let Some(mut pending) = self.witness.pending.take() else {
            return;
        };
        if pending.areas.is_empty() {
            let team = self.team(group);
            let pid = team.members().find_map(|it| team.group.pid(it));
            pending.areas = pid.map_or_else(Vec::new, scene::areas);
        }
        self.witness.pending = Some(pending);
    }

    /// Takes in what replicas have left; whether all have that are members.
    fn gather(&mut self, pending: &mut Pending) -> bool {
        let Some(team) = &self.family.teams[pending.group] else {
            return true;
        };
        if team.serial != pending.serial {
            return true;
        }
        let told = &mut self.witness.told;
        let counts = scene::counts(&team.memory);
        for (index, place) in pending.places.iter_mut().enumerate() {
            let last = told.insert((pending.group, index), counts[index]);
            if place.is_none() && counts[index] != 0 && last != Some(counts[index]) {
                *place = scene::left(&team.memory.report(index).scene, pending.replica);
            }
        }
        if pending.areas.is_empty() {
            let living = team.members().find_map(|index| team.group.pid(index));
            pending.areas = living.map_or_else(Vec::new, scene::areas);
        }
        team.members().all(|index| pending.places[index].is_some())
    }

    /// Waits until replicas have said where they stand, but not for long.
    pub(super) fn await_scene(&mut self) {
        let Some(mut pending) = self.witness.pending.take() else {
            return;
        };
        while !self.gather(&mut pending) && Instant::now() < pending.deadline {
            sleep(LOOK);
        }
        self.witness.pending = Some(pending);
    }

    /// Tells where the program stood as soon as all have said so, or time is up.
    pub(super) fn tell_scene_when_left(&mut self) {
        let Some(mut pending) = self.witness.pending.take() else {
            return;
        };
        let due = self.gather(&mut pending) || Instant::now() >= pending.deadline;
        self.witness.pending = Some(pending);
        if due {
            self.tell_scene();
        }
    }

    /// Tells where the program stood, if a divergence is to be told of.
    pub(super) fn tell_scene(&mut self) {
        let Some(mut pending) = self.witness.pending.take() else {
            return;
        };
        self.gather(&mut pending);
        if pending.places.iter().all(Option::is_none) {
            return;
        }
        for place in pending.places.iter_mut().flatten() {
            scene::leave_stub(place, &pending.areas);
        }
        let mappings = scene::code_of(&pending.areas);
        let replicas = scene::seen(
            pending.replica,
            &pending.places,
            &pending.recorded,
            &mappings,
        );
        self.observer.event(&Event::Scene {
            process: pending.process,
            event: pending.event,
            replicas,
            mappings,
        });
    }

    /// Writes a core file of each replica that is there, if they are wanted.
    pub(super) fn write_cores(&mut self) {
        let Some(folder) = self.settings.dumps.clone() else {
            return;
        };
        self.witness.faults += 1;
        let fault = self.witness.faults;
        if fault > CORE_FAULTS {
            if fault == CORE_FAULTS + 1 {
                let what = "--core-on-fault: no more core files in this run";
                self.observer.warning(what);
            }
            return;
        }
        self.await_scene();
        let Some(mut pending) = self.witness.pending.take() else {
            return;
        };
        for place in pending.places.iter_mut().flatten() {
            scene::leave_stub(place, &pending.areas);
        }
        let team = self.team(pending.group);
        let stopped = stop(team);
        let deadline = Instant::now() + CORE_TIME;
        for (index, pid, stopped) in &stopped {
            let team = self.team(pending.group);
            let frame = frame(team);
            let title = Title {
                process: team.pid,
                fault,
                kind: pending.kind,
                event: pending.event,
                replica: *index,
                executes: executes(team, *index),
            };
            let place = pending.places[*index].clone();
            let place = place.or_else(|| stopped.place(frame));
            let written =
                place.map(|it| dumps::write(&folder, title, (*pid, stopped), &it, deadline));
            self.tell_core(title, written);
        }
        drop(stopped);
        self.witness.pending = Some(pending);
    }

    fn tell_core(&mut self, title: Title, written: Option<Result<dumps::Written, String>>) {
        match written {
            Some(Ok(file)) => self.observer.event(&Event::Core {
                process: title.process,
                replica: title.replica,
                file: file.path.display().to_string(),
                left_out: file.left_out,
            }),
            Some(Err(why)) => self.observer.warning(&format!("--core-on-fault: {why}")),
            None => {
                let what = "the host does not tell its registers";
                let replica = title.replica;
                self.observer
                    .warning(&format!("--core-on-fault: replica {replica}: {what}"));
            }
        }
    }
}

/// Stops all replicas of a process that live and count.
fn stop(team: &Team) -> Vec<(usize, u32, Stopped)> {
    let members = team.members();
    let living = members.filter(|&it| team.group.process(it) == Process::Alive);
    let stopped = living.filter_map(|index| {
        let pid = team.group.pid(index)?;
        Some((index, pid, Stopped::new(pid)?))
    });
    stopped.collect()
}

/// Where a replica stands that has not come to the vote.
fn look_at(team: &Team, index: usize) -> Option<Place> {
    let alive = team.group.process(index) == Process::Alive;
    let pid = team.group.pid(index).filter(|_| alive)?;
    Stopped::new(pid)?.place(frame(team))
}

/// Where in the agent, which lies at one place in all replicas, registers are saved.
fn frame(team: &Team) -> u64 {
    let told = |index| team.memory.report(index).scene.frame.load(Relaxed);
    (0..team.memory.replicas()).map(told).max().unwrap_or(0)
}

/// Where in the agent the number of the present call is.
fn asked(team: &Team) -> u64 {
    let told = |index| team.memory.report(index).scene.asked.load(Relaxed);
    (0..team.memory.replicas()).map(told).max().unwrap_or(0)
}

/// The file that a replica executes, by its number on its device.
fn executes(team: &Team, index: usize) -> u64 {
    team.memory.report(index).executes[1].load(Relaxed)
}

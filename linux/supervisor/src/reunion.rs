//! Brings back a lost replica of all processes that share memory, and the slice that they share.
//!
//! Replica `i` of such processes shares memory with replica `i` of the others. If one is lost, all
//! of index `i` are, for it may have written anything there, and its turn never ends. So they come
//! back together:
//!
//! 1. Each process is ordered a copy of one of its replicas, to be made at its first turn after one
//!    that the supervisor claims.
//! 2. When that turn has come in all slices, they are at rest. They are compared, and the lost one
//!    is made anew as what most of them are, or of two that differ, as the one that is as all were
//!    when they were last scrubbed; those that are not so are repaired. Meanwhile the copies are
//!    made, and wait in it.
//! 3. The turn is passed on, the copies follow their groups, their private memory is compared as
//!    that of any copy ([`crate::reintegration`]).
//! 4. When all copies are found right they are taken in.
//!
//! If anything comes in between, all copies are killed, and it is tried again. A slice that has
//! missed turns although nobody shares memory at the moment is made anew in the same way.
//!
//! Contract: [`Reunions::step`] is asked in each round of the supervisor's loop and does a bounded
//! amount of work. A slice that is lost is used by nobody: see `Run::expel_sharers`.

use std::sync::atomic::Ordering::{Release, SeqCst};
use std::time::{Duration, Instant};

use rcoe_linux_abi::arena::{Claims, Gate};

use crate::events::Event;
use crate::family::Family;
use crate::reintegration::{self, Reintegration};
use crate::slices::{Copied, Mended, SliceCopy, low, open, turn_of};
use crate::team::{State, Team};

/// How long all may take to come to rest, and to be copied then.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often to look while others wait.
const LOOK: Duration = Duration::from_micros(500);
/// How often to look while nobody does.
const GLANCE: Duration = Duration::from_millis(10);
/// How long to wait after the first attempt of which nothing came; doubled after each further one.
const BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
const DIFFERS: &str = "the shared memory differs";
const CHANGED: &str = "another process began or ceased to share memory";

/// All attempts of the run.
#[derive(Debug, Default)]
pub(crate) struct Reunions {
    /// Slices that are not what the others are, one bit each.
    lost: u64,
    attempt: Option<Attempt>,
    /// The supervisor's turn, until it is over in all slices.
    turn: Option<u64>,
    failures: u32,
    /// The shared memory of those that are left differs, nobody can tell whose is right, and the
    /// user was told.
    undecided: bool,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Attempt {
    slice: usize,
    /// The groups that share, each with the number of its birth.
    groups: Vec<(usize, u32)>,
    /// Of these, who has its replica back.
    back: Vec<usize>,
    stage: Stage,
    since: Instant,
}

#[derive(Debug)]
enum Stage {
    /// Until all slices have come to the supervisor's turn.
    Resting,
    /// The slice is made anew.
    Copying(Box<SliceCopy>),
    /// Until all copies are there.
    Making,
    /// Until all copies are found right.
    Verifying,
    /// Until all copies are taken in.
    Admitting,
}

impl Attempt {
    /// Tells of pages that were repaired on the way.
    fn tell_mended(&mut self, family: &Family) -> Vec<Event> {
        let Stage::Copying(copy) = &mut self.stage else {
            return Vec::new();
        };
        let process = family.root().pid;
        let event = |Mended { slice, address }| Event::Scrub {
            process,
            replica: Some(slice),
            address,
            repaired: true,
        };
        std::mem::take(&mut copy.mended)
            .into_iter()
            .map(event)
            .collect()
    }
}

/// What a step came to.
enum Next {
    Stay,
    Go(Stage),
    Done,
    Abandon(&'static str),
}

impl Reunions {
    /// The replicas of this slice have to go.
    pub(crate) const fn lose(&mut self, slice: usize) {
        self.lost |= 1 << slice;
    }

    /// Whether a replica of this group that uses this slice has to go.
    pub(crate) fn is_lost(&self, group: usize, slice: usize) -> bool {
        let returns = self.attempt.as_ref().is_some_and(|it| {
            let its = it.groups.iter().any(|&(other, _)| other == group);
            it.slice == slice && its && matches!(it.stage, Stage::Admitting)
        });
        self.lost & 1 << slice != 0 && !returns
    }

    /// Takes note of slices that some process goes on without: its turns in these do not end.
    pub(crate) fn look(&mut self, family: &Family) {
        for team in sharers(family) {
            for slice in (0..team.memory.slices()).filter(|&slice| !has(team, slice)) {
                self.lose(slice);
            }
        }
        self.look_at_gates(family);
    }

    /// A slice in which no replica is left has missed turns if it has not had the last one.
    fn look_at_gates(&mut self, family: &Family) {
        let memory = &family.root().memory;
        let next = low(memory.claims().next());
        let behind = |slice: &usize| turn_of(memory.gate(*slice)) != next;
        let deserted = (0..memory.slices()).filter(|&slice| is_deserted(family, slice));
        for slice in deserted.filter(behind) {
            self.lose(slice);
        }
    }

    /// Slices that are about to be made anew, one bit each: their replicas had better not come back
    /// before.
    pub(crate) fn awaited(&self, family: &Family) -> u64 {
        if any_shares(family) { 0 } else { self.lost }
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn alarm(&self) -> Option<Duration> {
        let Some(attempt) = &self.attempt else {
            let now = Instant::now();
            let due = self
                .not_before
                .map(|due| due.saturating_duration_since(now));
            let due = due.unwrap_or_default().max(GLANCE);
            let lost = (self.lost != 0).then_some(due);
            return self.turn.map(|_| LOOK).or(lost);
        };
        Some(match attempt.stage {
            Stage::Copying(_) => Duration::ZERO,
            Stage::Resting | Stage::Making => LOOK,
            Stage::Verifying | Stage::Admitting => GLANCE,
        })
    }

    /// Does what there is to do, and says what is to be told.
    pub(crate) fn step(&mut self, family: &mut Family) -> Vec<Event> {
        let Some(mut attempt) = self.attempt.take() else {
            self.pass_on(family);
            return self.begin(family);
        };
        let next = obstacle(&attempt, family)
            .map_or_else(|| self.advance(&mut attempt, family), Next::Abandon);
        let mut told = attempt.tell_mended(family);
        match next {
            Next::Stay => self.attempt = Some(attempt),
            Next::Go(stage) => {
                self.attempt = Some(Attempt {
                    stage,
                    since: Instant::now(),
                    ..attempt
                });
            }
            Next::Done => self.finish(attempt.slice),
            Next::Abandon(reason) => {
                let news = reason == DIFFERS && !self.undecided;
                self.undecided |= news;
                told.extend(self.abandon(&attempt, family, (reason, news)));
            }
        }
        told
    }

    /// All are back.
    fn finish(&mut self, slice: usize) {
        self.lost &= !(1 << slice);
        self.failures = 0;
        self.undecided = false;
        self.not_before = None;
    }

    /// Takes note, as soon as they are told, of replicas that are back.
    pub(crate) fn conclude(&mut self, family: &Family) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        if !matches!(attempt.stage, Stage::Admitting) {
            return;
        }
        let slice = attempt.slice;
        let is_back = |&&(group, serial): &&(usize, u32)| {
            let team = family.teams[group].as_ref();
            let team = team.filter(|team| team.serial == serial);
            team.is_some_and(|team| has(team, slice))
        };
        for &(group, _) in attempt.groups.iter().filter(is_back) {
            if !attempt.back.contains(&group) {
                attempt.back.push(group);
            }
        }
        if attempt.back.len() == attempt.groups.len() {
            self.attempt = None;
            self.finish(slice);
        }
    }

    /// Slices that can be copied.
    fn sound(&self, family: &Family) -> Vec<usize> {
        let all = 0..family.root().memory.slices();
        all.filter(|slice| self.lost & 1 << slice == 0).collect()
    }

    /// Gives the supervisor's turn back where it has come.
    fn pass_on(&mut self, family: &Family) {
        let Some(turn) = self.turn else { return };
        let memory = &family.root().memory;
        let mut over = true;
        for slice in self.sound(family) {
            let gate = memory.gate(slice);
            let before = low(turn).wrapping_sub(turn_of(gate)).cast_signed();
            if before == 0 {
                open(gate, turn + 1);
            }
            over &= before <= 0;
        }
        if over {
            self.turn = None;
        }
    }

    fn begin(&mut self, family: &mut Family) -> Vec<Event> {
        let early = self.not_before.is_some_and(|due| Instant::now() < due);
        if self.lost == 0 || self.turn.is_some() || early {
            return Vec::new();
        }
        let slice = self.lost.trailing_zeros() as usize;
        if self.sound(family).is_empty() || !is_left(family, slice) {
            return Vec::new();
        }
        if !sharers(family).all(|team| !team.is_stopped() && can_return(team, slice)) {
            return Vec::new();
        }
        self.order_copies(family, slice)
    }

    /// Claims a turn, and orders a copy in each process at its first turn after that one.
    fn order_copies(&mut self, family: &mut Family, slice: usize) -> Vec<Event> {
        let groups = sharers(family).map(|team| (team.memory.group(), team.serial));
        let groups = groups.collect::<Vec<_>>();
        let memory = &family.root().memory;
        let next = memory.claims().next();
        // Far from any turn that somebody waits for.
        let shut = low(next).wrapping_add(1 << 31);
        memory.gate(slice).turn.store(shut, SeqCst);
        if memory.clear_slice(slice).is_err() {
            return Vec::new();
        }
        let mut told = Vec::new();
        for &(group, _) in &groups {
            if let Some(team) = &mut family.teams[group] {
                team.memory.control().rest.store(next, Release);
                told.extend(reintegration::begin_with_others(team, slice));
            }
        }
        self.turn = Some(family.root().memory.claims().claim(Claims::REST));
        for &(group, _) in &groups {
            if let Some(team) = &family.teams[group] {
                reintegration::kick(team);
            }
        }
        self.attempt = Some(Attempt {
            slice,
            groups,
            back: Vec::new(),
            stage: Stage::Resting,
            since: Instant::now(),
        });
        told
    }

    fn advance(&mut self, attempt: &mut Attempt, family: &mut Family) -> Next {
        // While it matters there is one.
        let turn = self.turn.unwrap_or(0);
        if let Stage::Copying(copy) = &mut attempt.stage {
            return match copy.step(&|page, digests| unchanged(family, page, digests)) {
                Ok(Copied::Going) => Next::Stay,
                Ok(Copied::Done) => Next::Go(Stage::Making),
                Ok(Copied::Different(_)) => Next::Abandon(DIFFERS),
                Err(_) => Next::Abandon("the shared memory cannot be copied"),
            };
        }
        match attempt.stage {
            Stage::Resting => self.rest(attempt, family, turn),
            Stage::Making if all(attempt, family, |it| it.is_copied()) => {
                let memory = &family.root().memory;
                open(memory.gate(attempt.slice), turn + 1);
                self.pass_on(family);
                Next::Go(Stage::Verifying)
            }
            Stage::Making => is_late(attempt),
            Stage::Verifying if all(attempt, family, |it| it.is_verified()) => {
                for &(group, _) in &attempt.groups {
                    if let Some(team) = &mut family.teams[group] {
                        reintegration::admit(team);
                    }
                }
                Next::Go(Stage::Admitting)
            }
            Stage::Admitting if attempt.back.len() == attempt.groups.len() => Next::Done,
            Stage::Copying(_) | Stage::Verifying | Stage::Admitting => Next::Stay,
        }
    }

    fn rest(&self, attempt: &Attempt, family: &Family, turn: u64) -> Next {
        let memory = &family.root().memory;
        let sound = self.sound(family);
        let rests = |gate: &Gate| turn_of(gate) == low(turn);
        if !sound.iter().all(|&slice| rests(memory.gate(slice))) {
            return is_late(attempt);
        }
        match memory.arena() {
            Ok(arena) => {
                let copy = SliceCopy::new(arena, sound, attempt.slice);
                Next::Go(Stage::Copying(Box::new(copy)))
            }
            Err(_) => Next::Abandon("the shared memory cannot be read"),
        }
    }

    /// With `news` the user is told.
    fn abandon(
        &mut self,
        attempt: &Attempt,
        family: &mut Family,
        (reason, mut news): (&str, bool),
    ) -> Vec<Event> {
        let mut told = Vec::new();
        for &(group, serial) in &attempt.groups {
            if let Some(team) = same(family, group, serial) {
                told.extend(reintegration::abandon_with_others(team, reason, news));
                news = false;
            }
        }
        // Processes that come and go must not make it ever rarer.
        self.failures += u32::from(reason != CHANGED);
        let wait = BACKOFF.saturating_mul(1 << self.failures.saturating_sub(1).min(10));
        self.not_before = Some(Instant::now() + wait.min(LONGEST_BACKOFF));
        self.pass_on(family);
        told
    }
}

fn is_late(attempt: &Attempt) -> Next {
    if attempt.since.elapsed() > PATIENCE {
        Next::Abandon("some process that shares memory does not come to rest")
    } else {
        Next::Stay
    }
}

/// The processes that share memory.
fn sharers(family: &Family) -> impl Iterator<Item = &Team> {
    let teams = family.teams.iter().flatten().map(Box::as_ref);
    teams.filter(|team| team.state == State::Living && team.shares())
}

/// Whether anybody does, those that are about to be over included.
fn any_shares(family: &Family) -> bool {
    let mut teams = family.teams.iter().flatten();
    teams.any(|team| team.shares() && (team.state == State::Living || team.group.is_alive()))
}

/// Whether no process has a replica of this index, nor is about to have one.
fn is_deserted(family: &Family, slice: usize) -> bool {
    let mut teams = family.teams.iter().flatten();
    !teams.any(|team| !team.removed[slice] || team.reintegration.is_admitting())
}

/// Whether no process is left that uses this slice.
fn is_left(family: &Family, slice: usize) -> bool {
    let mut teams = family.teams.iter().flatten();
    !teams.any(|team| !team.group.process(slice).is_gone() && team.uses_slice(slice))
}

/// Whether the group lacks the replica of this slice, and another can have its place.
fn can_return(team: &Team, slice: usize) -> bool {
    let gone = team.removed[slice] && team.group.process(slice).is_gone();
    gone && team.reintegration.is_over() && !team.scrub.is_repairing()
}

/// Which of several slices that differ in a page has what all had when it was last scrubbed, if any
/// process knows and all that know say the same.
fn unchanged(family: &Family, page: u64, digests: &[u64]) -> Option<usize> {
    let teams = family.teams.iter().flatten();
    let mut answers = teams.filter_map(|team| team.scrub.unchanged(page, digests));
    let first = answers.next()?;
    answers.all(|it| it == first).then_some(first)
}

fn same(family: &mut Family, group: usize, serial: u32) -> Option<&mut Team> {
    family.teams[group]
        .as_deref_mut()
        .filter(|team| team.serial == serial && team.state == State::Living)
}

/// Whether this holds of all groups.
fn all(attempt: &Attempt, family: &Family, holds: impl Fn(&Reintegration) -> bool) -> bool {
    let team = |group: usize| family.teams[group].as_ref();
    let mut groups = attempt.groups.iter();
    groups.all(|&(group, _)| team(group).is_some_and(|team| holds(&team.reintegration)))
}

/// What keeps this attempt from going on. Who has its replica back may end.
fn obstacle(attempt: &Attempt, family: &Family) -> Option<&'static str> {
    let id = |team: &Team| (team.memory.group(), team.serial);
    let is_back = |group: usize| attempt.back.contains(&group);
    let lacks = |team: &Team| !has(team, attempt.slice);
    let strange = |team: &Team| !attempt.groups.contains(&id(team)) && lacks(team);
    let gone = |&(group, serial): &(usize, u32)| {
        let found = sharers(family).any(|team| id(team) == (group, serial));
        !found && !is_back(group)
    };
    if sharers(family).any(strange) || attempt.groups.iter().any(gone) {
        return Some(CHANGED);
    }
    let failed = |team: &Team| {
        let waits = attempt.groups.contains(&id(team)) && !is_back(team.memory.group());
        waits && (team.is_stopped() || team.reintegration.is_over())
    };
    sharers(family)
        .any(failed)
        .then_some("nothing came of it in another process")
}

/// Whether a member of this process uses this slice, if it shares any memory.
fn has(team: &Team, slice: usize) -> bool {
    !team.removed[slice]
}

//! The stages of one attempt, and what ends it.
//!
//! Contract: as of the module above; each step does a bounded amount of work.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use rcoe_linux_abi::{NOT_COPYABLE, Order, ReplicaState, Report};

use super::{Attempt, Reintegration, Stage};
use crate::cores::bind;
use crate::events::{Event, Reintegrated};
use crate::group::is_child;
use crate::judge::Halt;
use crate::protocol::Published;
use crate::team::Team;
use crate::twins::{Compared, Comparison, OddPage};

/// How long to wait after the first attempt of which nothing came; doubled after each further one.
const BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// What a step came to.
enum Next {
    Stay,
    Go(Stage, Option<Reintegrated>),
    Done,
    Abandon(String),
}

impl Reintegration {
    /// Gets on with the present attempt, or begins one.
    pub(super) fn step(&mut self, team: &mut Team, awaited: u64) -> Option<Event> {
        let Some(mut attempt) = self.attempt.take() else {
            self.sweep(team);
            return self.begin(team, awaited);
        };
        let was_undecided = self.undecided;
        let next = attempt
            .obstacle(team)
            .map_or_else(|| self.advance(&mut attempt, team, awaited), Next::Abandon);
        let (newcomer, donor) = (attempt.newcomer, attempt.donor);
        let told = match next {
            Next::Stay => {
                self.attempt = Some(attempt);
                return None;
            }
            Next::Go(stage, told) => {
                attempt.stage = stage;
                self.attempt = Some(attempt);
                told?
            }
            Next::Done => self.finish(&attempt, team),
            Next::Abandon(reason) => {
                let news = self.undecided && !was_undecided;
                self.abandon(&attempt, team, reason, news)
            }
        };
        Some(Event::Reintegration {
            replica: newcomer,
            donor,
            process: team.pid,
            what: told,
        })
    }

    /// Orders a copy if somebody is missing. A process that shares memory waits for the others.
    fn begin(&mut self, team: &mut Team, awaited: u64) -> Option<Event> {
        let early = self.not_before.is_some_and(|due| Instant::now() < due);
        if self.stopped || early || team.shares() || team.scrub.is_repairing() {
            return None;
        }
        let gone = |&index: &usize| team.removed[index] && team.group.process(index).is_gone();
        let newcomer = (0..team.removed.len()).find(gone)?;
        if awaited & 1 << newcomer != 0 {
            return None;
        }
        self.order_copy(team, newcomer, false)
    }

    /// Those that are left meet before they carry the order out, and find out that somebody is
    /// missing at the latest then, even if they had no cause to meet before.
    pub(super) fn order_copy(
        &mut self,
        team: &Team,
        newcomer: usize,
        together: bool,
    ) -> Option<Event> {
        let members = team.members().collect::<Vec<_>>();
        let primary = team.primary()?;
        // The primary goes on meanwhile, if anybody else can be copied.
        let mut sound = members.clone();
        sound.retain(|index| !self.flawed.contains(index));
        let follower = sound.iter().rev().find(|&&index| index != primary);
        let donor = *follower.or(sound.first())?;
        self.sweep(team);
        self.given_up = None;
        self.serial += 1;
        let byte = |index: usize| u8::try_from(index).unwrap_or(u8::MAX);
        let set = members.iter().fold(0, |set, index| set | 1 << index);
        let (newcomer_byte, donor_byte) = (byte(newcomer), byte(donor));
        self.order(team, copy_of(newcomer_byte, donor_byte, set, together));
        self.attempt = Some(Attempt {
            newcomer,
            donor,
            members,
            began: Instant::now(),
            together,
            stage: Stage::Ordered,
            in_the_way: false,
        });
        Some(Event::Reintegration {
            replica: newcomer,
            donor,
            process: team.pid,
            what: Reintegrated::Begun,
        })
    }

    fn advance(&mut self, attempt: &mut Attempt, team: &mut Team, awaited: u64) -> Next {
        match &mut attempt.stage {
            Stage::Ordered => self.meet(attempt, team),
            Stage::Verifying(comparison, since) => {
                let (compared, since) = (comparison.step(), *since);
                team.scrub.learn(comparison.alike());
                match compared {
                    Ok(Compared::Going) => Next::Stay,
                    Ok(Compared::Same { pages }) => {
                        let us = micros(since.elapsed());
                        let verified = Reintegrated::Verified { pages, us };
                        self.verified(attempt, team, awaited, verified)
                    }
                    Ok(Compared::Different { what, page }) => {
                        let why = self.differ(attempt, team, page);
                        Next::Abandon(format!("{why}: {what}"))
                    }
                    Err(error) => Next::Abandon(format!("a twin cannot be read: {error}")),
                }
            }
            Stage::Verified => Next::Stay,
            Stage::Admitting => {
                let bit = 1 << attempt.newcomer;
                let knows = |&index: &usize| {
                    let report = team.memory.protocol(index);
                    report.epoch > 0 && report.members.bits() & bit != 0
                };
                let left = attempt.members.iter().filter(|&&it| !is_lost(team, it));
                if left.chain([&attempt.newcomer]).all(knows) {
                    Next::Done
                } else {
                    Next::Stay
                }
            }
        }
    }

    /// The copy is what most have: it can be taken in, with those of other processes if there are
    /// any.
    fn verified(
        &self,
        attempt: &Attempt,
        team: &Team,
        awaited: u64,
        verified: Reintegrated,
    ) -> Next {
        self.kill_twins();
        if attempt.together {
            return Next::Go(Stage::Verified, Some(verified));
        }
        if awaited & 1 << attempt.newcomer != 0 {
            return Next::Abandon("its slice of shared memory has missed turns".into());
        }
        self.order(team, Order::Admit);
        Next::Go(Stage::Admitting, Some(verified))
    }

    /// The donor has what most have not. Of two the one is right that has what all had when they
    /// were looked at last, or that alone has never written there, and the other is repaired. If
    /// neither has, nobody knows, until the program has overwritten what differs. Returns what that
    /// means for the copy.
    fn differ(&mut self, attempt: &Attempt, team: &mut Team, page: Option<OddPage>) -> String {
        if attempt.members.len() > 2 {
            self.flawed.push(attempt.donor);
            return "the copy may be wrong".into();
        }
        let mut members = attempt.members.clone();
        members.sort_by_key(|&index| index != attempt.donor);
        let right = page.and_then(|page| team.scrub.decide(&page, &members));
        match right {
            Some(right) => format!("the memory of replica {right} is right and the other's is not"),
            None => {
                self.undecided = true;
                "the copy may be wrong".into()
            }
        }
    }

    /// Learns who was made; once all twins are there, they are compared.
    fn meet(&mut self, attempt: &Attempt, team: &mut Team) -> Next {
        // Whoever has yet to see the lost one dead must not see its successor alive.
        let knows = |&index: &usize| {
            let members = team.memory.protocol(index).members;
            !members.is_empty() && members.bits() & 1 << attempt.newcomer == 0
        };
        if !attempt.members.iter().all(knows) {
            return Next::Stay;
        }
        let mut twins = Vec::new();
        let mut complete = true;
        for &index in &attempt.members {
            let Some(made) = self.made(&team.memory.report(index).copy) else {
                complete = false;
                continue;
            };
            match made {
                0 => return Next::Abandon("there is no room for another process".into()),
                NOT_COPYABLE => return Next::Abandon("the program shares memory".into()),
                pid if index != attempt.donor => twins.push((pid, index)),
                pid if team.group.pid(attempt.newcomer) == Some(pid) => {
                    if team.group.process(attempt.newcomer).is_gone() {
                        return Next::Abandon("the copy has died".into());
                    }
                }
                pid if is_child(pid) => {
                    team.group.adopt(attempt.newcomer, pid);
                    let alive = ReplicaState::Alive;
                    team.memory.set_state(attempt.newcomer, alive);
                }
                _ => return Next::Abandon("the copy has died".into()),
            }
        }
        let newcomer = team.memory.report(attempt.newcomer);
        match self.made(&newcomer.twin) {
            Some(0) => return Next::Abandon("there is no room for another process".into()),
            // It still shows the donor's slice.
            Some(pid) => twins.insert(0, (pid, attempt.donor)),
            None => complete = false,
        }
        for &(pid, _) in &twins {
            if !self.twins.contains(&pid) && is_child(pid) {
                self.twins.push(pid);
            }
        }
        if !complete {
            return Next::Stay;
        }
        let own = |&index: &usize| own_range(team.memory.report(index));
        let private = own(&attempt.donor);
        if attempt.members.iter().any(|index| own(index) != private) {
            return Next::Abandon("the replicas disagree on what is their own".into());
        }
        let comparison = team.memory.arena();
        match comparison.and_then(|arena| Comparison::new(&twins, private, &arena)) {
            Ok(comparison) => {
                let stage = Stage::Verifying(Box::new(comparison), Instant::now());
                let pid = team.group.pid(attempt.newcomer).unwrap_or(0);
                Next::Go(stage, Some(Reintegrated::Copied { pid }))
            }
            Err(error) => Next::Abandon(format!("a twin cannot be read: {error}")),
        }
    }

    /// The process id in a word of this re-integration.
    pub(super) fn made(&self, word: &std::sync::atomic::AtomicU64) -> Option<u32> {
        let word = word.load(Acquire);
        let [low, high] = [word & u64::from(u32::MAX), word >> 32];
        (high == u64::from(self.serial)).then(|| u32::try_from(low).unwrap_or(0))
    }

    fn finish(&mut self, attempt: &Attempt, team: &mut Team) -> Reintegrated {
        let newcomer = attempt.newcomer;
        team.removed[newcomer] = false;
        self.flawed.retain(|&index| index != newcomer);
        self.failures = 0;
        self.undecided = false;
        self.not_before = None;
        self.brought_back.resize(team.removed.len(), 0);
        self.brought_back[newcomer] += 1;
        let pid = team.group.pid(newcomer).unwrap_or(0);
        // Its place may have moved after it bound itself to a core.
        bind(pid, team.cores[newcomer]);
        let primary = team.primary().unwrap_or(attempt.donor);
        let pause = team.memory.report(primary).pause_ns.load(Relaxed);
        Reintegrated::Done {
            pid,
            core: team.cores[newcomer],
            pause_us: pause / 1000,
            us: micros(attempt.began.elapsed()),
        }
    }

    /// With `news` the user is told.
    pub(super) fn abandon(
        &mut self,
        attempt: &Attempt,
        team: &mut Team,
        reason: String,
        news: bool,
    ) -> Reintegrated {
        self.kill_twins();
        let mut ended = self.twins.clone();
        ended.extend(team.group.pid(attempt.newcomer));
        team.group.expel(attempt.newcomer, &team.memory);
        self.given_up = Some(ended);
        self.sweep(team);
        self.order(team, Order::Forget);
        let wait = BACKOFF.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        self.not_before = Some(Instant::now() + wait.min(LONGEST_BACKOFF));
        Reintegrated::Abandoned {
            reason,
            again: !self.stopped,
            news,
        }
    }
}

impl Attempt {
    /// Is nothing kept for the copy any more?
    pub(super) const fn is_given_up(&self) -> bool {
        self.in_the_way && !matches!(self.stage, Stage::Admitting)
    }

    /// What keeps this attempt from going on.
    fn obstacle(&self, team: &Team) -> Option<String> {
        let admitting = matches!(self.stage, Stage::Admitting);
        let lost = self.members.iter().find(|&&index| is_lost(team, index));
        if let Some(index) = lost
            && (!admitting || self.is_refused(team))
        {
            return Some(format!("replica {index} was lost meanwhile"));
        }
        if self.is_given_up() {
            return Some("the copy was too far behind".into());
        }
        let known = !matches!(self.stage, Stage::Ordered);
        if known && team.group.process(self.newcomer).is_gone() {
            return Some("the copy has died".into());
        }
        if known && Published::read(&team.memory, self.newcomer).halt.is_some() {
            return Some("the copy could not follow, or was not taken in".into());
        }
        // Taken in, and voted out again before this was seen.
        let accuses = |&&index: &&usize| {
            let halted = Published::read(&team.memory, index).halt;
            let report = team.memory.protocol(index);
            let bit = 1 << self.newcomer;
            let verdict = report.phase == 3 && report.verdict.bits() & bit != 0;
            let includes = report.members.bits() & bit != 0;
            halted != Some(Halt::FailStop) && verdict && includes
        };
        if admitting && self.members.iter().any(|index| accuses(&index)) {
            return Some("the copy was voted out at once".into());
        }
        None
    }

    /// Some member was lost when the admission had been ordered. Have those that are left voted
    /// on that, and not taken the copy in? Until then it may be one of them, or become one.
    fn is_refused(&self, team: &Team) -> bool {
        let (lost, left): (Vec<usize>, _) = self
            .members
            .iter()
            .partition(|&&index| is_lost(team, index));
        let absent = lost
            .iter()
            .fold(1 << self.newcomer, |set, &index| set | 1 << index);
        left.iter()
            .all(|&index: &usize| team.memory.protocol(index).members.bits() & absent == 0)
    }
}

fn is_lost(team: &Team, index: usize) -> bool {
    team.removed[index] || team.group.process(index).is_gone()
}

const fn copy_of(newcomer: u8, donor: u8, members: u8, together: bool) -> Order {
    if together {
        Order::CopySharer {
            newcomer,
            donor,
            members,
        }
    } else {
        Order::Copy {
            newcomer,
            donor,
            members,
        }
    }
}

/// Where the agent of a replica keeps what is its own.
fn own_range(report: &Report) -> Range<u64> {
    let [start, end] = report.own.each_ref().map(|cell| cell.load(Relaxed));
    start..end
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

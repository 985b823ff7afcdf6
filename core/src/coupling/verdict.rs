//! What all conclude from the reports of a phase, and who is charged.
//!
//! Reports stay readable until all have concluded, so everybody concludes from the same. What may
//! be seen differently is who is missing: so charges are told, adopted and compared until all that
//! are not charged have told the same. Whoever saw that all agreed says so before it acts, and that
//! counts more than a charge: the charged one had reported in time.

use super::board::{Came, PAGES, REGISTERS, Report, Verdict};
use super::compare::{Machine, Union, area_digest, state_digest};
use super::effort::{Known, Next};
use super::time::{Backend, LogicalTime, Standing};
use super::{Boards, Coupler, End, Order, Point, Stage, board};
use crate::guards::Bug;
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet, digest};

/// Phases in a row in which nobody came to an owner before it is passed over once.
const VAIN: u8 = 2;

type Reports = [Option<Report>; MAX_REPLICAS];

impl<T: Backend> Coupler<T> {
    /// Looks at what the others have decided or proposed.
    pub(super) fn heed(&mut self, boards: &Boards<'_>) -> Option<Order> {
        for peer in self.other_voters().minus(self.charged) {
            let Some((stamp, verdict)) = board(boards, peer).verdict() else {
                continue;
            };
            if stamp.is_of_later_members(self.stamp) {
                return Some(self.over(End::PassedOver));
            }
            // With the same members nobody gets to another attempt unless this one has agreed.
            let later = stamp.generation > self.stamp.generation;
            let here = (stamp.generation, stamp.epoch) == (self.stamp.generation, self.stamp.epoch);
            if later && stamp.epoch == self.stamp.epoch || here && verdict == Verdict::Agreed {
                if self.guards.off(Bug::AgreedUnheeded) {
                    continue;
                }
                return Some(self.follow(boards));
            }
            let judges = matches!(self.stage, Stage::Judge { .. });
            if let Verdict::Charge(charged) = verdict
                && here
                && !judges
                && self.removes(charged)
            {
                return Some(self.charge(charged.without(self.id)));
            }
        }
        None
    }

    /// Somebody has seen that all agreed: this replica said so, too.
    fn follow(&mut self, boards: &Boards<'_>) -> Order {
        let waits = matches!(
            self.stage,
            Stage::Gather | Stage::Compare | Stage::Judge { .. }
        );
        match waits && self.came == Came::Equal {
            true => self.act(boards),
            false => self.over(End::Broken),
        }
    }

    /// Waits for all reports of the phase.
    pub(super) fn gather(&mut self, boards: &Boards<'_>) -> Order {
        if self.guards.off(Bug::AgreeAlone) && self.came == Came::Equal {
            return self.agree(boards);
        }
        let reports = self.reports(boards);
        let missing = |peer: &ReplicaId| reports[peer.index()].is_none();
        match self.members.iter().find(missing) {
            Some(peer) => self.await_peer(peer),
            None => self.conclude(&reports, boards),
        }
    }

    fn reports(&self, boards: &Boards<'_>) -> Reports {
        let mut reports: Reports = [None; MAX_REPLICAS];
        for peer in self.members {
            reports[peer.index()] = board(boards, peer).report(self.moment(), self.guards);
        }
        reports
    }

    fn conclude(&mut self, reports: &Reports, boards: &Boards<'_>) -> Order {
        let joint = self.joint_of(reports);
        if joint == self.members && self.stamp.phase > 0 {
            // Of two, each has compared with the other.
            let pair = self.members.len() <= 2 || self.guards.off(Bug::OwnerAlone);
            if pair || self.target.at_call {
                return self.agree(boards);
            }
            self.stage = Stage::Seal;
            return Order::Again;
        }
        if let Some(alike) = self.alike_at_call(reports) {
            return self.sentence(alike);
        }
        self.fail_phase(reports, joint)
    }

    /// Not all are at the target, but these.
    fn fail_phase(&mut self, reports: &Reports, joint: ReplicaSet) -> Order {
        if self.is_majority(joint) {
            if joint != self.joint && !self.guards.off(Bug::SearchUnmade) {
                self.effort.begin_search();
            }
            self.joint = joint;
        }
        if self.stamp.phase > 0 && self.passes.note(reports, self.owner) {
            self.effort.begin_anew();
        }
        let passes = &self.passes;
        let apart = passes.tell_apart(self.members, self.joint, self.guards);
        if apart && self.voters == self.members {
            return self.sentence(self.joint);
        }
        let known = match self.joint.is_empty() {
            _ if self.voters.len() < 3 || self.is_majority(joint) => Known::Right,
            true => Known::Undecided,
            false if self.guards.off(Bug::MajorityPast) => Known::Right,
            false => Known::Before,
        };
        let made = reports.iter().flatten();
        match self.effort.account(made, self.pace, known) {
            Next::Phase => self.begin_phase(reports, joint),
            Next::Verdict => self.sentence(self.joint),
            Next::Doubted => self.over(End::Diverged),
            Next::Unplaced => self.over(End::Unplaced),
        }
    }

    /// Each was found equal by the owner, over the pages that the two have written. If the owner is
    /// the one that is hit, two others may differ all the same, in a page that only one of them has
    /// written. So all say what they find in the pages of all.
    pub(super) fn seal(&mut self, boards: &Boards<'_>, machine: &impl Machine) -> Order {
        let own = board(boards, self.id);
        let mut registers = [0; REGISTERS];
        machine.registers(&mut registers[..self.stub.count]);
        let vectors = Union::of(&[], &[], self.guards);
        let mut all = state_digest(machine, &registers, &vectors);
        for peer in self.members {
            let mut list = [0; PAGES];
            let Some(count) = self.list_of(peer, &mut list, boards) else {
                return self.await_peer(peer);
            };
            let pages = if self.guards.off(Bug::MemoryUncompared) {
                0
            } else {
                count
            };
            for &page in &list[..pages] {
                all = digest(all, area_digest(machine, page));
            }
        }
        own.put_seal(self.moment(), all);
        self.stage = Stage::Compare;
        Order::Again
    }

    /// The pages that a member that has come to the target said that it has written.
    fn list_of(
        &self,
        peer: ReplicaId,
        list: &mut [u64; PAGES],
        boards: &Boards<'_>,
    ) -> Option<usize> {
        let from = board(boards, peer);
        if peer == self.owner {
            let (_, count) = from.target(self.moment(), list, self.guards)?;
            return Some(count);
        }
        let (_, _, count) = from.question(self.moment(), list, self.guards)?;
        Some(count)
    }

    /// Waits for all seals, which are equal if all are at the same point.
    pub(super) fn compare(&mut self, boards: &Boards<'_>) -> Order {
        let seal = |peer: ReplicaId| board(boards, peer).seal(self.moment(), self.guards);
        let missing = |peer: &ReplicaId| seal(*peer).is_none();
        if let Some(peer) = self.members.iter().find(missing) {
            return self.await_peer(peer);
        }
        let largest = self.largest(seal);
        if largest == self.members {
            return self.agree(boards);
        }
        self.fail_phase(&self.reports(boards), largest)
    }

    /// The set of members for which `of` gives the same that has the most votes; of several, the
    /// one with the highest number.
    fn largest<V: PartialEq>(&self, of: impl Fn(ReplicaId) -> V) -> ReplicaSet {
        let alike = |peer: ReplicaId| {
            let same = |other: &ReplicaId| of(*other) == of(peer);
            let same = self.members.iter().filter(same);
            same.fold(ReplicaSet::empty(), ReplicaSet::with)
        };
        let sets = self.members.iter().map(alike);
        sets.max_by_key(|&set| self.votes(set)).unwrap_or_default()
    }

    const fn is_majority(&self, set: ReplicaSet) -> bool {
        self.votes(set) * 2 > self.voters.len()
    }

    /// How many of these members have a vote.
    const fn votes(&self, set: ReplicaSet) -> usize {
        set.minus(self.members.minus(self.voters)).len()
    }

    const fn other_voters(&self) -> ReplicaSet {
        self.voters.without(self.id)
    }

    /// Who stood at the target together, by their own report and the owner's.
    fn joint_of(&self, reports: &Reports) -> ReplicaSet {
        let Some(owner) = reports[self.owner.index()] else {
            return ReplicaSet::empty();
        };
        let equal = |&peer: &ReplicaId| {
            let came = reports[peer.index()].map(|report| report.came);
            came == Some(Came::Equal) && owner.alike.contains(peer)
        };
        let members = self.members.iter().filter(equal);
        members.fold(ReplicaSet::empty(), ReplicaSet::with)
    }

    /// If all stand at the same call and their signatures differ, nobody can get any further: the
    /// largest set of equal ones.
    fn alike_at_call(&self, reports: &Reports) -> Option<ReplicaSet> {
        let standing = |peer: ReplicaId| reports[peer.index()].map(|report| report.standing);
        let first = standing(self.members.lowest()?)?;
        let mut all = self.members.iter().filter_map(standing);
        let stuck = all.all(|other| other.at_call && other.events == first.events);
        let largest = self.largest(|peer| standing(peer).map(|standing| standing.signature));
        (stuck && largest != self.members).then_some(largest)
    }

    /// These are right, if they are a majority.
    fn sentence(&mut self, right: ReplicaSet) -> Order {
        if !self.is_majority(right) {
            return self.over(End::Diverged);
        }
        if !right.contains(self.id) {
            return self.over(End::Convicted);
        }
        self.charge(self.members.minus(right))
    }

    fn begin_phase(&mut self, reports: &Reports, joint: ReplicaSet) -> Order {
        let before = self.owner;
        if self.stamp.phase == 0 {
            self.lag = lag(reports);
        }
        let came = joint.len() > 1 || self.stamp.phase == 0;
        self.vain = if came { 0 } else { self.vain + 1 };
        let mut candidates = self.members;
        if self.vain >= VAIN {
            candidates = candidates.without(before);
        }
        let behind = match T::EXACT {
            true => ReplicaSet::empty(),
            false => joint.union(self.lagging(reports)),
        };
        let first = ahead::<T>(candidates, reports, behind).unwrap_or(self.id);
        let owner = match self.passes.choose(reports, candidates, joint) {
            Some(counted) => counted,
            None if T::EXACT || came || self.members.len() < 3 => first,
            None => in_turn(first, before, self.members, reports),
        };
        if owner != before || self.vain >= VAIN {
            self.vain = 0;
        }
        self.owner = owner;
        self.stamp.phase += 1;
        self.stamp.turn = 0;
        self.came = Came::Apart;
        self.alike = ReplicaSet::empty();
        self.stage = match self.owner == self.id {
            true => Stage::Place,
            false => Stage::Fetch,
        };
        Order::Again
    }

    /// Who has not come to the last target, and knows that it is still before it: who has run to it
    /// in vain without knowing that says that it is beyond.
    fn lagging(&self, reports: &Reports) -> ReplicaSet {
        let progress = |id: ReplicaId| reports[id.index()].map(|it| it.standing.progress);
        let passed = |id: ReplicaId| reports[id.index()].is_some_and(|it| it.passed);
        let lags = |id: &ReplicaId| progress(*id) < progress(self.owner) && !passed(*id);
        let lagging = self.members.iter().filter(lags);
        match self.stamp.phase {
            0 => ReplicaSet::empty(),
            _ => lagging.fold(ReplicaSet::empty(), ReplicaSet::with),
        }
    }

    /// All say the same. A newcomer goes on when a voter has: what it has said stays readable then.
    fn agree(&mut self, boards: &Boards<'_>) -> Order {
        match self.other_voters().lowest() {
            Some(voter) if !self.voters.contains(self.id) => self.await_peer(voter),
            _ => self.act(boards),
        }
    }

    fn act(&mut self, boards: &Boards<'_>) -> Order {
        board(boards, self.id).put_verdict(self.moment(), Verdict::Agreed);
        self.stage = Stage::Idle;
        Order::Agreed(Point {
            generation: self.stamp.generation,
            events: self.target.events,
            at_call: self.target.at_call,
        })
    }

    /// These are to go.
    pub(super) fn charge(&mut self, charged: ReplicaSet) -> Order {
        self.charged = self.charged.union(charged);
        self.overdue = ReplicaSet::empty();
        self.stage = Stage::Judge { told: false };
        Order::Again
    }

    /// Tells who is charged, and waits until all others that are not have told the same.
    pub(super) fn judge(&mut self, told: bool, boards: &Boards<'_>) -> Order {
        let before = self.charged;
        let mut accusers = ReplicaSet::empty();
        let mut pending = None;
        for peer in self.other_voters().minus(before) {
            let theirs = self.charge_of(peer, boards);
            match theirs.filter(|&it| self.removes(it)) {
                Some(theirs) if theirs.contains(self.id) => {
                    accusers = accusers.with(peer);
                    self.charged = self.charged.union(theirs.without(self.id));
                }
                Some(theirs) if theirs == before => {}
                _ if self.overdue.contains(peer) => self.charged = self.charged.with(peer),
                theirs => {
                    pending = Some(peer);
                    let theirs = theirs.unwrap_or_default();
                    self.charged = self.charged.union(theirs);
                }
            }
        }
        if !told || self.charged != before {
            let verdict = Verdict::Charge(self.charged);
            board(boards, self.id).put_verdict(self.moment(), verdict);
            self.stage = Stage::Judge { told: true };
            return Order::Again;
        }
        match pending {
            _ if self.is_majority(accusers) => self.over(End::Convicted),
            Some(peer) => Order::Wait(peer),
            None if !accusers.is_empty() => self.over(End::Disagreement),
            None => self.remove(),
        }
    }

    /// Can so many be charged and others go on? Of three or more, whoever charges too many goes by
    /// that itself, and nobody else on its word.
    const fn removes(&self, charged: ReplicaSet) -> bool {
        self.voters.len() < 3 || self.is_majority(self.members.minus(charged))
    }

    /// Whom a peer charges in this epoch.
    fn charge_of(&self, peer: ReplicaId, boards: &Boards<'_>) -> Option<ReplicaSet> {
        match board(boards, peer).verdict()? {
            (stamp, Verdict::Charge(charged))
                if (stamp.generation, stamp.epoch) == (self.stamp.generation, self.stamp.epoch) =>
            {
                Some(charged)
            }
            _ => None,
        }
    }

    fn remove(&mut self) -> Order {
        let left = self.members.minus(self.charged);
        if !self.is_majority(left) {
            return self.over(End::Missing);
        }
        let gone = self.charged;
        let voters = self.voters.minus(gone);
        self.set_epoch(left, voters, self.stamp.epoch.wrapping_add(1));
        Order::Removed(gone)
    }
}

/// How far the last one is behind the first, in what both tell their progress by. Whoever is behind
/// by events has at least what the first has made since the last one before it.
fn lag(reports: &Reports) -> u64 {
    let standings = || reports.iter().flatten().map(|report| report.standing);
    let events = standings().map(|it| it.events).max();
    let made = |it: &Standing| match Some(it.events) == events {
        true => it.progress,
        false => 0,
    };
    let first = standings().map(|it| made(&it)).max();
    let last = standings().map(|it| made(&it)).min();
    first.unwrap_or(0) - last.unwrap_or(0)
}

/// Who is furthest: by events, then by being at a call, then those that are not known to be at the
/// last target or before it, then by what else tells the time; the lowest of equals.
fn ahead<T: Backend>(
    candidates: ReplicaSet,
    reports: &Reports,
    behind: ReplicaSet,
) -> Option<ReplicaId> {
    let key = |id: ReplicaId| {
        let time = reports[id.index()].map(|report| T::time(&report.standing))?;
        let LogicalTime {
            events, at_call, ..
        } = time;
        Some((events, at_call, at_call || !behind.contains(id), time))
    };
    let mut best: Option<ReplicaId> = None;
    for id in candidates {
        if best.is_none_or(|best| key(id) > key(best)) {
            best = Some(id);
        }
    }
    best
}

/// Whose turn it is after `before`, of those that are as far as `first` by events: in the order of
/// numbers.
///
/// Who is ahead is a guess, and of three one may have been hit so that no other ever comes to it,
/// or it to any. Were the furthest chosen each time, that one and one of the two that are well
/// could take all turns. So each is the target once in three phases, and of any two the one is
/// right behind the other: who has run past the one is run after by it next, and with a larger
/// budget.
fn in_turn(
    first: ReplicaId,
    before: ReplicaId,
    candidates: ReplicaSet,
    reports: &Reports,
) -> ReplicaId {
    let at = |id: ReplicaId| {
        let report = reports[id.index()]?;
        (!report.standing.at_call).then_some(report.standing.events)
    };
    let Some(events) = at(first) else {
        return first;
    };
    let far = candidates.iter().filter(|&id| at(id) == Some(events));
    let far = far.fold(ReplicaSet::empty(), ReplicaSet::with);
    far.after(before).or_else(|| far.lowest()).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::super::board::Came;
    use super::*;

    fn id(number: u8) -> ReplicaId {
        ReplicaId::new(number)
    }

    /// Reports of replicas that stand so: their events, whether at a call, and their progress.
    fn reports(all: [(u64, bool, u64); 3]) -> Reports {
        let mut reports = [None; MAX_REPLICAS];
        for (report, (events, at_call, progress)) in reports.iter_mut().zip(all) {
            *report = Some(Report {
                came: Came::Apart,
                alike: ReplicaSet::empty(),
                nowhere: false,
                spoilt: false,
                passed: false,
                standing: Standing {
                    events,
                    at_call,
                    progress,
                    ..Standing::default()
                },
            });
        }
        reports
    }

    #[test]
    fn a_lag_is_what_the_last_one_lacks() {
        let apart = |all| lag(&reports(all));
        assert_eq!(apart([(1, false, 5), (1, false, 9), (1, false, 7)]), 4);
        assert_eq!(apart([(2, false, 3), (1, false, 9), (2, true, 7)]), 7);
        assert_eq!(lag(&[None; MAX_REPLICAS]), 0);
    }

    #[test]
    fn replicas_that_compute_are_the_target_in_turn() {
        let reports = reports([(1, false, 5), (1, false, 9), (1, false, 5)]);
        let next = |before| in_turn(id(1), id(before), ReplicaSet::all(3), &reports);
        assert_eq!([0, 1, 2].map(next), [id(1), id(2), id(0)]);
    }

    #[test]
    fn a_turn_passes_whoever_is_behind_by_events() {
        let reports = reports([(1, true, 5), (2, false, 1), (2, false, 5)]);
        let next = |before| in_turn(id(1), id(before), ReplicaSet::all(3), &reports);
        assert_eq!([0, 1, 2].map(next), [id(1), id(2), id(1)]);
    }

    #[test]
    fn a_call_is_no_guess() {
        let reports = reports([(1, false, 5), (1, true, 0), (1, true, 0)]);
        let next = |before| in_turn(id(1), id(before), ReplicaSet::all(3), &reports);
        assert_eq!([0, 1, 2].map(next), [id(1), id(1), id(1)]);
    }
}

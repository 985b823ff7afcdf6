//! Has the replicas of a process compare their memory, a few pages at a time.
//!
//! Intuition: a flip that nobody uses makes no replica differ in what it does, so no vote finds it,
//! until a second one meets it, or until a replica is lost and the flawed one is copied. Looking at
//! all memory again and again finds it while there still is a majority.
//!
//! A look costs little: each replica publishes digests of some pages at one point of the trace, for
//! which nobody waits, and they are compared here. Only where some differ all meet, and repair what
//! is not as most have it. What all had is kept ([`known`]): if two are left that differ, it tells
//! which one is right, and the other is repaired in the same way.
//!
//! Contract: [`Scrub::step`] orders at most one look at a time, none while the group lacks somebody
//! or has fewer than three members, and no more bytes a second than it was told, but for the first
//! pass over a process. Who is right where
//! most agree the replicas decide. What nobody can repair is told once, until it changes.
//!
//! Memory that processes share with each other is looked at by one of them, which the caller
//! chooses, and only at points at which that one has its turn: then it is alike in all slices.
//!
//! Not covered: whose turn it is in a slice, and the ring of claims of turns.

pub(crate) mod known;
mod plan;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use known::Known;
use plan::Plan;
use rcoe_linux_abi::{Blocks, Order, PAGE, SCRUB_PAGES, SIG_KICK, SerialOrder};

use crate::events::Event;
use crate::team::Team;
use crate::twins::OddPage;

const WINDOW: u64 = SCRUB_PAGES as u64;
/// Fewest members of which a majority can be right.
const LEAST_MEMBERS: usize = 3;
/// Between two looks at an order under way.
const POLL: Duration = Duration::from_millis(4);
/// How long an order waits for the program to make a call, before it is called.
const PATIENCE: Duration = Duration::from_millis(12);
/// So many times as rarely a program is looked at that has to be called for it.
const IDLER: u32 = 4;
/// So many times as fast a process is gone through for the first time, as what nobody has looked at
/// yet nobody knows.
const FIRST: u64 = 16;
/// A look costs at least as much as so many pages, however few it has.
const LEAST_PAGES: u64 = WINDOW / 4;
/// How long nothing is looked at where nobody could tell who is right.
const IDLE: Duration = Duration::from_millis(200);
/// So much of the budget a process must have lived for before it is looked at: most are over soon.
const GRACE: u64 = 8 * WINDOW;
const LONGEST_GRACE: Duration = Duration::from_secs(2);

/// Bytes a second that each replica compares; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubRate(u64);

impl ScrubRate {
    /// Most that makes sense: what a replica reads if it does nothing else.
    const MOST_MIB: u64 = 4096;

    /// What costs next to nothing.
    pub const DEFAULT: Self = Self(1 << 20);

    /// So many MiB a second; `None` if that is none, or more than a machine can.
    #[must_use]
    pub const fn mib(mib: u64) -> Option<Self> {
        match mib {
            1..=Self::MOST_MIB => Some(Self(mib << 20)),
            _ => None,
        }
    }

    /// What each of so many processes may, if all together may so much.
    pub(crate) fn shared_by(self, processes: usize) -> Self {
        let processes = u64::try_from(processes).unwrap_or(1).max(1);
        Self((self.0 / processes).max(PAGE))
    }

    /// The rate for the first time that a process is gone through.
    fn for_first_pass(self) -> Self {
        Self((self.0 * FIRST).min(Self::MOST_MIB << 20).max(self.0))
    }

    /// The time from a look at so many pages to the next.
    fn pause_after(self, pages: u64) -> Duration {
        self.time_of(pages.max(LEAST_PAGES))
    }

    /// The time that so many pages may take.
    fn time_of(self, pages: u64) -> Duration {
        Duration::from_nanos(pages * PAGE * 1_000_000_000 / self.0)
    }
}

/// What has been ordered, and what comes next.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    serial: u32,
    pending: Option<Pending>,
    plan: Plan,
    known: Known,
    not_before: Option<Instant>,
    /// A page to be repaired, by number, and the member whose is right.
    wanted: Option<(u64, usize)>,
    /// What nobody could repair, and has been told.
    told: BTreeSet<Flaw>,
    /// The program had to be called for the last order.
    idle: bool,
}

/// A page that is not repaired, by number, and whose it is, if anybody knows.
type Flaw = (u64, Option<usize>);

/// An order under way.
#[derive(Clone, Debug)]
struct Pending {
    word: u64,
    pages: Range<u64>,
    /// All meet, and repair what differs.
    repairs: bool,
    since: Instant,
    /// The primary was called.
    called: bool,
}

/// What is done in a look at some pages.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// Each replica tells what is there.
    Tell,
    /// All meet, and repair what differs; the member is right, if anybody knows.
    Repair(Option<u8>),
}

/// What a member says of the pages of an order, one bit each.
#[derive(Clone, Copy, Debug)]
struct Answer {
    replica: usize,
    repaired: u64,
    undecided: u64,
}

impl Scrub {
    /// When to look again.
    pub(crate) fn alarm(&self) -> Duration {
        if self.wanted.is_some() && self.pending.is_none() {
            return Duration::ZERO;
        }
        let due = self.not_before.unwrap_or_else(Instant::now);
        let due = due.saturating_duration_since(Instant::now());
        match &self.pending {
            None => due,
            // The program makes its calls meanwhile, and is not woken for what it answers.
            Some(pending) if !pending.called => due.max(POLL),
            Some(_) => POLL,
        }
    }

    /// Takes in what an order has found, and gives the next one when it is time. With `slices` the
    /// memory that the process shares with others is looked at, too. Without a rate only that is
    /// repaired which was found out in another way.
    pub(crate) fn step(
        &mut self,
        team: &Team,
        rate: Option<ScrubRate>,
        slices: bool,
    ) -> Vec<Event> {
        let members: Vec<usize> = team.members().collect();
        let enough = rate.is_some() && members.len() >= LEAST_MEMBERS;
        let rate = self.pace(rate.unwrap_or(ScrubRate::DEFAULT));
        let whole = enough && !team.lacks_someone();
        let whole = whole && team.group.is_complete();
        if !whole && !self.is_repairing() {
            self.pending = None;
            self.not_before = Some(Instant::now() + IDLE);
            return Vec::new();
        }
        if let Some(pending) = self.pending.take() {
            return self.follow(team, pending, &members, rate);
        }
        if let Some((page, right)) = self.wanted {
            let right = u8::try_from(right).ok();
            self.order(team, page..page + 1, Look::Repair(right));
            return Vec::new();
        }
        let now = Instant::now();
        let due = *self
            .not_before
            .get_or_insert_with(|| now + rate.time_of(GRACE).min(LONGEST_GRACE));
        if now >= due {
            let pages = self.plan.next(team, slices);
            let count = pages.as_ref().map_or(WINDOW, |it| it.end - it.start);
            self.not_before = Some(now + rate.pause_after(count));
            if let Some(pages) = pages {
                self.order(team, pages, Look::Tell);
            }
        }
        Vec::new()
    }

    /// How fast it goes: at first faster.
    fn pace(&self, rate: ScrubRate) -> ScrubRate {
        match self.plan.passes {
            0 => rate.for_first_pass(),
            _ => rate,
        }
    }

    /// Is a page being repaired, or to be?
    pub(crate) fn is_repairing(&self) -> bool {
        self.wanted.is_some() || self.pending.as_ref().is_some_and(|it| it.repairs)
    }

    /// Did the last look have to wait for a call of the program until that was called?
    pub(crate) const fn is_idle(&self) -> bool {
        self.idle
    }

    /// Passes over all memory so far.
    pub(crate) const fn passes(&self) -> u64 {
        self.plan.passes
    }

    /// Which of several that differ in a page has, by the digests of what they have, what all had,
    /// if only one has and it is known.
    pub(crate) fn unchanged(&self, page: u64, digests: &[u64]) -> Option<usize> {
        self.known.unchanged(page, digests)
    }

    /// Takes note of pages that a copy and all members had alike.
    pub(crate) fn learn(&mut self, pages: Vec<(u64, Blocks)>) {
        for (page, blocks) in pages {
            self.known.note_blocks(page, blocks);
        }
    }

    /// Which of these members has a page right that they do not have alike, if anybody knows: the
    /// page is then repaired in the others. It is the only one that has what all had, in the page
    /// or in what of it differs, or the only one that has no page of its own there: as the program
    /// writes in all alike, it has not written there.
    pub(crate) fn decide(&mut self, page: &OddPage, members: &[usize]) -> Option<usize> {
        let known = self.known.unchanged(page.number, &page.digests);
        let in_blocks = || self.known.unchanged_blocks(page.number, &page.blocks);
        let right = known.or_else(in_blocks).or_else(|| untouched(&page.own))?;
        let right = *members.get(right)?;
        self.wanted = Some((page.number, right));
        Some(right)
    }

    /// Gets on with an order.
    fn follow(
        &mut self,
        team: &Team,
        mut pending: Pending,
        members: &[usize],
        rate: ScrubRate,
    ) -> Vec<Event> {
        let done =
            |&index: &usize| team.memory.report(index).scrubbed.load(Acquire) == pending.word;
        if !members.iter().all(done) {
            if !pending.called && pending.since.elapsed() > PATIENCE {
                pending.called = true;
                call(team);
                let times = if self.plan.passes == 0 { 1 } else { IDLER };
                let pause = rate.time_of(WINDOW).saturating_mul(times);
                self.not_before = Some(Instant::now() + pause);
            }
            self.pending = Some(pending);
            return Vec::new();
        }
        self.idle = pending.called && !pending.repairs;
        let skipped = |&index: &usize| team.memory.report(index).skipped.load(Relaxed) != 0;
        if pending.repairs {
            self.wanted = None;
            return self.found(team, pending.pages, members);
        }
        if !members.iter().any(skipped) && !self.compare(team, &pending.pages, members) {
            self.order(team, pending.pages, Look::Repair(None));
        }
        Vec::new()
    }

    /// Have all members told the same of these pages? What they have all is kept.
    fn compare(&mut self, team: &Team, pages: &Range<u64>, members: &[usize]) -> bool {
        let mut alike = true;
        for (at, page) in pages.clone().enumerate() {
            let of = |&index: &usize| team.memory.report(index).digests[at].load(Relaxed);
            let first = members.first().map_or(0, of);
            if !members.iter().all(|index| of(index) == first) {
                alike = false;
            } else if first != 0 {
                self.known.note(self.plan.passes, page, first);
                if let Some(&member) = members.first() {
                    let blocks = &team.memory.report(member).blocks[at];
                    let blocks = blocks.each_ref().map(|cell| cell.load(Relaxed));
                    self.known.note_blocks(page, blocks);
                }
            } else {
                self.known.forget(page);
            }
        }
        alike
    }

    /// Orders a look at these pages.
    fn order(&mut self, team: &Team, pages: Range<u64>, look: Look) {
        self.serial = self.serial.wrapping_add(1);
        let page = pages.start;
        let count = u8::try_from(pages.end - page).unwrap_or(u8::MAX);
        let order = match look {
            Look::Repair(right) => Order::Scrub { page, count, right },
            Look::Tell => Order::Digest { page, count },
        };
        let serial = self.serial;
        let word = SerialOrder { serial, order }.pack();
        let repairs = order != Order::Digest { page, count };
        if repairs {
            team.memory.order(word);
            call(team);
        } else {
            team.memory.order_quietly(word);
        }
        self.pending = Some(Pending {
            word,
            pages,
            repairs,
            since: Instant::now(),
            called: repairs,
        });
    }

    /// What the members have found in these pages.
    fn found(&mut self, team: &Team, pages: Range<u64>, members: &[usize]) -> Vec<Event> {
        let answer = |&replica: &usize| Answer {
            replica,
            repaired: team.memory.report(replica).repaired.load(Relaxed),
            undecided: team.memory.report(replica).undecided.load(Relaxed),
        };
        let answers: Vec<Answer> = members.iter().map(answer).collect();
        let event = |replica, address, repaired| Event::Scrub {
            process: team.pid,
            replica,
            address,
            repaired,
        };
        let mut events = Vec::new();
        for answer in &answers {
            let odd = &team.memory.report(answer.replica).odd;
            let repaired = (0..)
                .zip(odd)
                .filter(|(bit, _)| answer.repaired >> bit & 1 != 0);
            let places = repaired.map(|(_, odd)| odd.load(Relaxed));
            events.extend(places.map(|place| event(Some(answer.replica), place, true)));
        }
        let flaws = flaws(pages.start, &answers);
        let new = self.tell_once(&pages, flaws);
        let new = new.into_iter();
        events.extend(new.map(|(page, replica)| event(replica, page * PAGE, false)));
        events
    }

    /// Those of the flaws in these pages that were not there before.
    fn tell_once(&mut self, pages: &Range<u64>, flaws: BTreeSet<Flaw>) -> Vec<Flaw> {
        let known = &mut self.told;
        known.retain(|flaw| !pages.contains(&flaw.0) || flaws.contains(flaw));
        let new = flaws.into_iter().filter(|&flaw| known.insert(flaw));
        new.collect()
    }
}

/// The one that has no page of its own, if all others have.
fn untouched(own: &[bool]) -> Option<usize> {
    let mut without = (0..own.len()).filter(|&at| !own[at]);
    let first = without.next()?;
    (own.len() > 1 && without.next().is_none()).then_some(first)
}

/// The primary leaves a call that it is blocked in, and publishes the order.
fn call(team: &Team) {
    if let Some(primary) = team.primary() {
        team.group.signal(primary, SIG_KICK);
    }
}

/// What is flawed of the pages from `first` on, according to the members.
fn flaws(first: u64, answers: &[Answer]) -> BTreeSet<Flaw> {
    let nobody_knows = answers.iter().fold(u64::MAX, |all, it| all & it.undecided);
    let mut flaws = BTreeSet::new();
    let mut note = |pages: u64, replica| {
        let pages = (0..WINDOW).filter(|bit| pages >> bit & 1 != 0);
        flaws.extend(pages.map(|bit| (first + bit, replica)));
    };
    note(nobody_knows, None);
    for answer in answers {
        note(answer.undecided & !nobody_knows, Some(answer.replica));
    }
    flaws
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_by_the_time_between_looks() {
        assert_eq!(ScrubRate::mib(0), None);
        assert_eq!(ScrubRate::mib(1 << 20), None);
        let rate = ScrubRate::mib(1).expect("a rate");
        assert_eq!(rate.time_of(256), Duration::from_secs(1));
        assert_eq!(rate.shared_by(4).time_of(64), Duration::from_secs(1));
    }

    fn answer(replica: usize, undecided: u64) -> Answer {
        Answer {
            replica,
            repaired: 0,
            undecided,
        }
    }

    #[test]
    fn who_alone_has_never_written_is_right() {
        assert_eq!(untouched(&[true, false]), Some(1));
        assert_eq!(untouched(&[false, true]), Some(0));
        assert_eq!(untouched(&[true, true]), None);
        assert_eq!(untouched(&[false, false]), None, "of two files");
    }

    #[test]
    fn what_nobody_knows_is_nobodys() {
        let answers = [answer(0, 0b101), answer(1, 0b001), answer(2, 0b001)];
        assert_eq!(
            flaws(64, &answers).into_iter().collect::<Vec<_>>(),
            [(64, None), (66, Some(0))]
        );
    }

    #[test]
    fn a_flaw_is_told_once_until_it_is_gone() {
        let mut scrub = Scrub::default();
        let flaw = (65, None);
        let mut tell = |first, flaws: &[Flaw]| {
            let flaws = flaws.iter().copied().collect();
            scrub.tell_once(&(first..first + 2), flaws)
        };
        assert_eq!(tell(64, &[flaw]), [flaw]);
        assert_eq!(tell(64, &[flaw]), []);
        assert_eq!(tell(1024, &[]), [], "other pages");
        assert_eq!(tell(64, &[flaw]), []);
        assert_eq!(tell(64, &[]), []);
        assert_eq!(tell(64, &[flaw]), [flaw]);
    }
}

//! Has the replicas of a process compare their memory, a few pages at a time.
//!
//! Intuition: a flip that nobody uses makes no replica differ in what it does, so no vote finds it,
//! until a second one meets it, or until a replica is lost and the flawed one is copied. Looking at
//! all memory again and again finds it while there still is a majority.
//!
//! Contract: [`Scrub::step`] orders at most one look at a time, none while the group lacks somebody
//! or has fewer than three members, and no more bytes a second than it was told. What is compared,
//! and who is right, the replicas decide. Pages of which no replica has a copy of its own come from
//! one file, or are empty, and are left out. What nobody can repair is told once, until it changes.
//!
//! Not covered: memory mapped as shared, and programs whose processes share memory.

use std::collections::BTreeSet;
use std::fs::{File, read_to_string};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use rcoe_linux_abi::{Order, SCRUB_PAGES, SIG_KICK, SerialOrder};

use crate::events::Event;
use crate::team::Team;
use crate::twins::{PAGE, has_own_page, private_areas};

const WINDOW: u64 = SCRUB_PAGES as u64;
/// Windows looked at in search of one that has pages, in one step.
const SEARCHED: usize = 512;
/// Fewest members of which a majority can be right.
const LEAST_MEMBERS: usize = 3;
/// Between two looks at an order under way.
const POLL: Duration = Duration::from_millis(2);

/// How long nothing is looked at where nobody could tell who is right.
const IDLE: Duration = Duration::from_millis(200);

/// Bytes a second that each replica compares; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubRate(u64);

impl ScrubRate {
    /// Most that makes sense: what a replica reads if it does nothing else.
    const MOST_MIB: u64 = 4096;

    /// So many MiB a second; `None` if that is none, or more than a machine can.
    #[must_use]
    pub const fn mib(mib: u64) -> Option<Self> {
        match mib {
            1..=Self::MOST_MIB => Some(Self(mib << 20)),
            _ => None,
        }
    }

    /// The time that so many pages may take.
    fn time_of(self, pages: u64) -> Duration {
        Duration::from_nanos(pages * PAGE * 1_000_000_000 / self.0)
    }
}

/// What has been ordered, and where to go on.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    serial: u32,
    pending: Option<Pending>,
    /// The address to go on at.
    next: u64,
    not_before: Option<Instant>,
    /// What nobody could repair, and has been told.
    told: BTreeSet<Flaw>,
}

/// A page that is not repaired, by number, and whose it is, if anybody knows.
type Flaw = (u64, Option<usize>);

/// An order under way.
#[derive(Clone, Debug)]
struct Pending {
    word: u64,
    pages: Range<u64>,
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
        let due = self.not_before.unwrap_or_else(Instant::now);
        let due = due.saturating_duration_since(Instant::now());
        if self.pending.is_some() {
            due.max(POLL)
        } else {
            due
        }
    }

    /// Takes in what an order has found, and gives the next one when it is time.
    pub(crate) fn step(&mut self, team: &Team, rate: ScrubRate) -> Vec<Event> {
        let members: Vec<usize> = team.members().collect();
        if team.lacks_someone() || members.len() < LEAST_MEMBERS || !team.group.is_complete() {
            self.pending = None;
            self.not_before = Some(Instant::now() + IDLE);
            return Vec::new();
        }
        if let Some(pending) = self.pending.take() {
            let done =
                |&index: &usize| team.memory.report(index).scrubbed.load(Acquire) == pending.word;
            if !members.iter().all(done) {
                self.pending = Some(pending);
                return Vec::new();
            }
            return self.found(team, pending.pages, &members);
        }
        if self.not_before.is_some_and(|due| Instant::now() < due) {
            return Vec::new();
        }
        let pages = self.order(team, &members).unwrap_or(WINDOW);
        self.not_before = Some(Instant::now() + rate.time_of(pages));
        Vec::new()
    }

    /// Orders a look at the next pages; how many they are.
    fn order(&mut self, team: &Team, members: &[usize]) -> Option<u64> {
        let (page, count) = self.choose(team, members)?;
        self.serial = self.serial.wrapping_add(1);
        let order = Order::Scrub {
            page,
            count: u8::try_from(count).ok()?,
        };
        let word = SerialOrder {
            serial: self.serial,
            order,
        }
        .pack();
        let pages = page..page + count;
        self.pending = Some(Pending { word, pages });
        team.memory.order(word);
        team.group.signal(team.primary()?, SIG_KICK);
        Some(count)
    }

    /// The next pages of which somebody has a copy of its own, by number and count.
    fn choose(&mut self, team: &Team, members: &[usize]) -> Option<(u64, u64)> {
        let pids = members.iter().filter_map(|&index| team.group.pid(index));
        let tables = pids.map(|pid| File::open(format!("/proc/{pid}/pagemap")).ok());
        let tables: Vec<File> = tables.collect::<Option<_>>()?;
        let primary = team.group.pid(team.primary()?)?;
        let maps = read_to_string(format!("/proc/{primary}/maps")).ok()?;
        let areas = private_areas(&maps);
        for _ in 0..SEARCHED {
            let (range, of_file) = areas.iter().find(|(range, _)| range.end > self.next)?;
            let start = self.next.max(range.start);
            let end = range.end.min(start + WINDOW * PAGE);
            self.next = end;
            if areas.last().is_some_and(|(last, _)| end == last.end) {
                self.next = 0;
            }
            let count = (end - start) / PAGE;
            if tables.iter().any(|it| has_any(it, start, count, *of_file)) {
                return Some((start / PAGE, count));
            }
        }
        None
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

/// Has a process a page of its own among these?
fn has_any(pagemap: &File, start: u64, count: u64, of_file: bool) -> bool {
    let mut entries = [0; SCRUB_PAGES * 8];
    let bytes = usize::try_from(count * 8).map_or(0, |bytes| bytes.min(entries.len()));
    let entries = &mut entries[..bytes];
    if pagemap.read_exact_at(entries, start / PAGE * 8).is_err() {
        return false;
    }
    let (entries, _) = entries.as_chunks();
    entries
        .iter()
        .any(|entry| has_own_page(u64::from_le_bytes(*entry), of_file))
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
    }

    fn answer(replica: usize, undecided: u64) -> Answer {
        Answer {
            replica,
            repaired: 0,
            undecided,
        }
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

    #[test]
    fn own_pages_are_seen() {
        let pagemap = File::open("/proc/self/pagemap").expect("of this process");
        let memory = vec![1_u8; 3 * usize::try_from(PAGE).expect("small")];
        let inside = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        assert!(has_any(&pagemap, inside, 1, false));
        assert!(!has_any(&pagemap, 0, 16, false));
    }
}

//! How many branches the program has made since a point on which all agreed, as a counter of the
//! processor tells.
//!
//! It counts what this thread executes, the agent too. So each handler that has interrupted the
//! program reads it as it begins and as it ends, and what lies in between is taken off. A few
//! branches of the agent are before the first reading and behind the last, and stubs branch as
//! often as they find things equal: of these it is known how many there are at most. So a count is
//! told as bounds ([`Counted`]).
//!
//! A stretch begins at a point, where all replicas stand alike, and ends with the next call, before
//! the agent does anything that takes one replica longer than another. Between calls nothing is
//! open: copies, children and `execve` have nothing to do with it.
//!
//! Contract: what is in doubt (a handler that has interrupted another one between two readings, a
//! counter that was taken away for a while) is not told, up to the next stretch.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rcoe_core::coupling::Counted;
use rcoe_linux_abi::Control;

use crate::coupling::state::GENERAL;
use crate::coupling::stub::WORDS;
use crate::sys::counters::Counter;

/// The most branches of the agent between the program and a reading, on both ways together.
const WAYS: u64 = 64;
/// The most branches of a visit to a stub: one for each register, two kinds of flags and each word.
const VISIT: u64 = (GENERAL + 2 + WORDS) as u64;

/// How many of the agent's events there are at most, of what is counted.
#[derive(Clone, Copy)]
struct Others {
    /// In an interruption beside what lies between readings, and in a visit to a stub.
    ways: u64,
    visit: u64,
}

impl Others {
    const BRANCHES: Self = Self {
        ways: WAYS,
        visit: VISIT,
    };
    /// An instruction of the program is none of the agent's.
    const NONE: Self = Self { ways: 0, visit: 0 };
}

/// Something that counts, by a number that is not 0.
pub(crate) trait Source {
    /// What it has counted; `None` if it has missed something.
    fn read(handle: u64) -> Option<u64>;
}

impl Source for Counter {
    fn read(handle: u64) -> Option<u64> {
        Self(handle).read()
    }
}

/// The account of a stretch. All zeroes: there is none.
pub(crate) struct Tally<S> {
    handle: AtomicU64,
    /// The attempt that has found the point where it began; 0 if what is counted is in doubt.
    since: AtomicU64,
    /// Branches that are known to be the agent's, and how many more of its own there are at most.
    own: AtomicU64,
    slack: AtomicU64,
    ways: AtomicU64,
    visit: AtomicU64,
    /// Visits to stubs that are gone.
    visits: AtomicU64,
    /// Readings that have begun.
    readings: AtomicU64,
    /// Handlers that have interrupted the program or each other, and where the program is then.
    depth: AtomicU64,
    at: AtomicU64,
    source: PhantomData<fn() -> S>,
}

/// A handler has interrupted the program, or another handler.
pub(crate) struct Interruption {
    since: u64,
    count: u64,
    own: u64,
    slack: u64,
    depth: u64,
}

impl<S: Source> Tally<S> {
    /// There is no stretch.
    pub(crate) const fn new() -> Self {
        Self {
            handle: AtomicU64::new(0),
            since: AtomicU64::new(0),
            own: AtomicU64::new(0),
            slack: AtomicU64::new(0),
            ways: AtomicU64::new(0),
            visit: AtomicU64::new(0),
            visits: AtomicU64::new(0),
            readings: AtomicU64::new(0),
            depth: AtomicU64::new(0),
            at: AtomicU64::new(0),
            source: PhantomData,
        }
    }

    /// A stretch begins at the point of this attempt, for a counter that begins with 0.
    fn begin(&self, handle: u64, since: u32, others: Others) {
        for cell in [&self.own, &self.visits, &self.depth, &self.at] {
            cell.store(0, Relaxed);
        }
        self.slack.store(others.ways, Relaxed);
        self.ways.store(others.ways, Relaxed);
        self.visit.store(others.visit, Relaxed);
        self.since.store(since.into(), Relaxed);
        self.handle.store(handle, Relaxed);
    }

    /// It is over. Its counter, if there was one.
    fn end(&self) -> Option<u64> {
        self.since.store(0, Relaxed);
        let handle = self.handle.swap(0, Relaxed);
        (handle != 0).then_some(handle)
    }

    /// Reads the counter, and what follows from that; `None` if it cannot be told. `then` is done
    /// without another handler in between, or nothing is told any more.
    fn read<T>(&self, then: impl FnOnce(u64) -> T) -> Option<T> {
        let readings = self.readings.load(Relaxed).wrapping_add(1);
        self.readings.store(readings, Relaxed);
        let count = S::read(self.handle.load(Relaxed));
        let done = count.map(then);
        if done.is_none() || self.readings.load(Relaxed) != readings {
            self.since.store(0, Relaxed);
            return None;
        }
        done
    }

    /// A handler begins.
    pub(crate) fn enter(&self) -> Option<Interruption> {
        let since = self.since.load(Relaxed);
        if since == 0 {
            return None;
        }
        let depth = self.depth.load(Relaxed);
        self.depth.store(depth + 1, Relaxed);
        self.read(|count| {
            let own = self.own.load(Relaxed);
            if depth == 0 {
                self.at.store(count.saturating_sub(own), Relaxed);
            }
            Interruption {
                since,
                count,
                own,
                slack: self.slack.load(Relaxed),
                depth,
            }
        })
    }

    /// It ends. What it did is the agent's, handlers that have interrupted it included.
    pub(crate) fn leave(&self, interruption: Option<Interruption>) {
        let Some(it) = interruption.filter(|it| it.since == self.since.load(Relaxed)) else {
            return;
        };
        self.depth.store(it.depth, Relaxed);
        self.read(|count| {
            let own = it.own + count.saturating_sub(it.count);
            self.own.store(own, Relaxed);
            let ways = self.ways.load(Relaxed);
            self.slack.store(it.slack + ways, Relaxed);
        });
    }

    /// A stub is gone that was visited so often.
    fn add_visits(&self, visits: u64) {
        let all = self.visits.load(Relaxed).saturating_add(visits);
        self.visits.store(all, Relaxed);
    }

    /// Where the interrupted program is, after so many visits to the stub that stands.
    fn counted(&self, visits: u64) -> Counted {
        let since = u32::try_from(self.since.load(Relaxed)).unwrap_or(0);
        if since == 0 || self.depth.load(Relaxed) == 0 {
            return Counted::default();
        }
        let most = self.at.load(Relaxed);
        let visits = self.visits.load(Relaxed).saturating_add(visits);
        let others = visits.saturating_mul(self.visit.load(Relaxed));
        let slack = self.slack.load(Relaxed) + self.ways.load(Relaxed);
        Counted {
            since,
            least: most.saturating_sub(others.saturating_add(slack)),
            most,
        }
    }
}

#[unsafe(link_section = ".bss.own.1")]
static TALLY: Tally<Counter> = Tally::new();

/// A handler begins that may have interrupted the program.
pub(crate) fn enter() -> Option<Interruption> {
    TALLY.enter()
}

/// It ends.
pub(crate) fn leave(interruption: Option<Interruption>) {
    TALLY.leave(interruption);
}

/// Counts from here on, the point of this attempt, if the run wants that and the host lets it.
/// False if it does not.
pub(crate) fn begin(control: &Control, since: u32) -> bool {
    end();
    let kind = control.counter.load(Relaxed);
    let Some(kind) = kind.checked_sub(1) else {
        return false;
    };
    let counter = Counter::start(kind, control.counter_event.load(Relaxed));
    if let Ok(Counter(handle)) = counter {
        let others = match Counter::is_of_instruction(kind) {
            true => Others::NONE,
            false => Others::BRANCHES,
        };
        TALLY.begin(handle, since, others);
    }
    counter.is_ok()
}

/// The instruction of which visits are counted, if that is what is.
pub(crate) fn instruction(control: &Control) -> Option<u64> {
    let kind = control.counter.load(Relaxed).checked_sub(1)?;
    Counter::is_of_instruction(kind).then(|| control.counter_event.load(Relaxed))
}

/// A call comes, or something else in which replicas differ by how long it takes them.
#[inline]
pub(crate) fn end() {
    if TALLY.handle.load(Relaxed) != 0
        && let Some(handle) = TALLY.end()
    {
        Counter(handle).stop();
    }
}

/// A stub is gone that was visited so often.
pub(crate) fn add_visits(visits: u64) {
    TALLY.add_visits(visits);
}

/// Where the interrupted program is, after so many visits to the stub that stands.
pub(crate) fn counted(visits: u64) -> Counted {
    TALLY.counted(visits)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    thread_local! {
        /// What the counter of this thread has counted.
        static COUNT: Cell<u64> = const { Cell::new(0) };
        /// It tells that, or that it has missed something.
        static MISSES: Cell<bool> = const { Cell::new(false) };
        /// What comes in between as it is read.
        static AMID: RefCell<Option<fn()>> = const { RefCell::new(None) };
    }

    struct Scripted;

    impl Source for Scripted {
        fn read(_: u64) -> Option<u64> {
            if let Some(amid) = AMID.take() {
                amid();
            }
            (!MISSES.get()).then(|| COUNT.get())
        }
    }

    thread_local! {
        static TALLY: Tally<Scripted> = const { Tally::new() };
    }

    /// So many branches are made.
    fn branch(count: u64) {
        COUNT.set(COUNT.get() + count);
    }

    /// A handler that makes so many branches before its first reading, between, and behind the
    /// last; `within` is done in it.
    fn handle([before, amid, behind]: [u64; 3], within: impl FnOnce()) {
        branch(before);
        let interruption = TALLY.with(Tally::enter);
        within();
        branch(amid);
        TALLY.with(|it| it.leave(interruption));
        branch(behind);
    }

    fn counted() -> Counted {
        TALLY.with(|it| it.counted(0))
    }

    /// What a handler that does nothing finds.
    fn look() -> Counted {
        let mut found = Counted::default();
        handle([3, 0, 4], || found = counted());
        found
    }

    fn begin() {
        COUNT.set(0);
        MISSES.set(false);
        TALLY.with(|it| it.begin(7, 5, Others::BRANCHES));
        // The way back to the program.
        branch(9);
    }

    fn holds(counted: Counted, made: u64) -> bool {
        counted.since == 5 && (counted.least..=counted.most).contains(&made)
    }

    #[test]
    fn what_the_agent_branches_is_taken_off() {
        begin();
        let mut made = 0;
        for round in 0..50 {
            branch(10_000);
            made += 10_000;
            let found = look();
            assert!(holds(found, made), "{made}: {found:?}");
            assert!(found.most - found.least <= (2 * round + 2) * WAYS);
            handle([20, 1 << 40, 30], || {});
        }
    }

    #[test]
    fn handlers_that_interrupt_handlers_are_the_agents() {
        begin();
        branch(1000);
        handle([5, 500, 5], || {
            assert!(holds(counted(), 1000));
            handle([5, 1 << 30, 5], || assert!(holds(counted(), 1000)));
            assert!(holds(counted(), 1000));
        });
        // Before the outer one has read anything, and behind its last reading.
        handle([5, 70_000, 5], || {});
        handle([5, 500, 5], || {});
        handle([5, 70_000, 5], || {});
        branch(1000);
        assert!(holds(look(), 2000), "{:?}", look());
    }

    #[test]
    fn visits_to_stubs_are_bounded() {
        begin();
        branch(100_000 + 40 * VISIT);
        TALLY.with(|it| it.add_visits(30));
        handle([1, 0, 1], || {
            let found = TALLY.with(|it| it.counted(10));
            assert!(holds(found, 100_000), "{found:?}");
        });
    }

    #[test]
    fn outside_of_handlers_nothing_is_told() {
        assert_eq!(look(), Counted::default(), "no stretch");
        begin();
        assert_eq!(counted(), Counted::default());
        assert!(look().since == 5);
        assert_eq!(counted(), Counted::default());
        assert_eq!(TALLY.with(Tally::end), Some(7));
        assert_eq!((look(), TALLY.with(Tally::end)), (Counted::default(), None));
    }

    #[test]
    fn a_stretch_may_end_within_a_handler() {
        begin();
        handle([1, 5, 1], || {
            TALLY.with(Tally::end);
        });
        begin();
        branch(50);
        assert!(holds(look(), 50), "another one, from its own point");
    }

    #[test]
    fn a_reading_that_is_interrupted_tells_nothing_any_more() {
        for which in 0..2 {
            begin();
            branch(1000);
            let interrupt: fn() = || handle([5, 70_000, 5], || {});
            if which == 0 {
                AMID.set(Some(interrupt));
            }
            handle([1, 1, 1], || {
                if which == 1 {
                    AMID.set(Some(interrupt));
                }
            });
            assert_eq!(look(), Counted::default(), "reading {which}");
        }
        begin();
        assert!(holds(look(), 0), "up to the next stretch");
    }

    #[test]
    fn a_counter_that_was_taken_away_tells_nothing_any_more() {
        begin();
        MISSES.set(true);
        assert_eq!(look(), Counted::default());
        MISSES.set(false);
        assert_eq!(look(), Counted::default());
    }
}

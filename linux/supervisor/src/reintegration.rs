//! Brings a group that has lost a replica back to its number.
//!
//! The supervisor orders a copy, compares what was copied, and orders the admission; when and
//! whether an order is carried out is the replicas' affair, and it decides nothing that they can
//! decide. Whatever comes in between (another loss, a copy that dies or cannot follow, memory that
//! differs) ends the attempt: the copy is killed, nothing of it has reached the group, and another
//! attempt follows after a while.
//!
//! Contract: [`Reintegration::step`] is asked in each round of the supervisor's loop and does a
//! bounded amount of work.

use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use rcoe_linux_abi::{Order, SIG_KICK, SerialOrder};
use rcoe_linux_sys::host::signal_child;

use crate::events::Event;
use crate::group::is_child;
use crate::memory::Memory;
use crate::numbers::SIGKILL;
use crate::team::Team;
use crate::twins::Comparison;

mod progress;

/// How often to look whether all members know of a loss.
const PATIENCE: Duration = Duration::from_millis(1);

/// All attempts of one group.
#[derive(Debug, Default)]
pub(crate) struct Reintegration {
    serial: u32,
    attempt: Option<Attempt>,
    /// Attempts in a row of which nothing came.
    failures: u32,
    not_before: Option<Instant>,
    /// Members whose memory is not what most have.
    flawed: Vec<usize>,
    /// A flip lies in the memory of one of two and nobody can tell whose; the user was told.
    undecided: bool,
    /// The program is over.
    stopped: bool,
    /// Twins that are not reaped yet.
    twins: Vec<u32>,
    /// The last attempt was given up: who was ended of those that it made. There may be more.
    given_up: Option<Vec<u32>>,
    /// How often each replica was brought back.
    pub(crate) brought_back: Vec<u64>,
}

#[derive(Debug)]
struct Attempt {
    newcomer: usize,
    donor: usize,
    /// Members when it began.
    members: Vec<usize>,
    began: Instant,
    /// Together with other processes, which share memory with this one.
    together: bool,
    stage: Stage,
    /// Something that the copy has yet to read is needed for something else.
    in_the_way: bool,
}

#[derive(Debug)]
enum Stage {
    /// The copy was ordered.
    Ordered,
    /// What was copied is compared.
    Verifying(Box<Comparison>, Instant),
    /// The copy was found right, and those of the other processes are not yet.
    Verified,
    /// The admission was ordered.
    Admitting,
}

impl Reintegration {
    /// Was a copy ever ordered?
    pub(crate) const fn has_begun(&self) -> bool {
        self.serial > 0
    }

    /// Is there work that does not wait for anybody?
    pub(crate) fn is_busy(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Verifying(..))) && !self.stopped
    }

    /// Is no attempt under way?
    pub(crate) const fn is_over(&self) -> bool {
        self.attempt.is_none()
    }

    /// Is the copy made, and all that it is to be compared with?
    pub(crate) fn is_copied(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        stage.is_some_and(|stage| !matches!(stage, Stage::Ordered))
    }

    /// Is the copy about to be taken in, or has it been?
    pub(crate) fn is_admitting(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Admitting))
    }

    /// Was the copy found right?
    pub(crate) fn is_verified(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Verified | Stage::Admitting))
    }

    /// Whether a copy may still read what the supervisor has published about the process in this
    /// group, of this birth, and nothing may take its place before. A copy is behind the members,
    /// and what it read there instead would make it another than they are, for good.
    pub(crate) fn needs(&self, memory: &Memory, group: usize, serial: u64) -> bool {
        let Some(attempt) = self.attempt.as_ref().filter(|it| !it.is_given_up()) else {
            return false;
        };
        let report = memory.report(attempt.newcomer);
        self.made(&report.twin).is_none() || report.reaped[group].load(Acquire) != serial
    }

    /// How many signals a copy has taken of those that are kept for it.
    pub(crate) fn taken(&self, memory: &Memory) -> Option<u64> {
        let attempt = self.attempt.as_ref().filter(|it| !it.is_given_up())?;
        let report = memory.report(attempt.newcomer);
        self.made(&report.twin)?;
        Some(report.taken.load(Acquire))
    }

    /// Nothing more is kept for a copy: it has to go, unless it is about to be a member.
    pub(crate) fn make_way(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.in_the_way = true;
        }
    }

    /// Whether this child, of which nobody knows, is a twin, or may be one that was just made.
    pub(crate) fn reaped(&mut self, pid: u32) -> bool {
        match self.twins.iter().position(|&twin| twin == pid) {
            Some(at) => {
                self.twins.swap_remove(at);
                true
            }
            None => self.attempt.is_some(),
        }
    }

    /// When to look again at a group that lacks somebody, if nothing happens before.
    pub(crate) fn alarm(&self) -> Option<Duration> {
        if self.stopped {
            return None;
        }
        if self.attempt.is_some() {
            return Some(PATIENCE.saturating_mul(10));
        }
        let now = Instant::now();
        let due = self
            .not_before
            .map(|due| due.saturating_duration_since(now));
        Some(due.unwrap_or_default().max(PATIENCE))
    }

    /// The program is over.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.kill_twins();
    }

    /// Is anything left that an attempt has made, and that is no member?
    pub(crate) fn has_copies(&self, memory: &Memory) -> bool {
        self.twins.iter().copied().any(is_child) || !self.copies(memory).is_empty()
    }

    /// Processes of an attempt that came to no end yet, or was given up, by the word of who made
    /// them: those that are not reaped yet, and of the latter those that were not ended.
    pub(crate) fn copies(&self, memory: &Memory) -> Vec<u32> {
        if self.attempt.is_none() && self.given_up.is_none() {
            return Vec::new();
        }
        let words = (0..memory.replicas()).flat_map(|index| {
            let report = memory.report(index);
            [&report.copy, &report.twin]
        });
        let made = words.filter_map(|word| self.made(word));
        let ended = self.given_up.as_deref().unwrap_or_default();
        made.filter(|pid| !ended.contains(pid) && is_child(*pid))
            .collect()
    }

    /// Ends what an attempt that was given up has made: members may tell of it only now. Each is
    /// ended once, as a number may then be another process's.
    fn sweep(&mut self, team: &Team) {
        if self.given_up.is_none() {
            return;
        }
        for pid in self.copies(&team.memory) {
            signal_child(pid, SIGKILL);
            self.twins.push(pid);
            self.given_up.get_or_insert_default().push(pid);
        }
    }

    fn kill_twins(&self) {
        for &twin in &self.twins {
            signal_child(twin, SIGKILL);
        }
    }

    fn order(&self, team: &Team, order: Order) {
        let order = SerialOrder {
            serial: self.serial,
            order,
        };
        team.memory.order(order.pack());
        kick(team);
    }
}

/// The primary leaves a call that it is blocked in, and publishes the order.
pub(crate) fn kick(team: &Team) {
    if let Some(primary) = team.primary() {
        team.group.signal(primary, SIG_KICK);
    }
}

/// Does what there is to do for `team`, and says what is to be told. `awaited`: slices that are
/// about to be made anew.
pub(crate) fn step(team: &mut Team, awaited: u64) -> Option<Event> {
    with_own(team, |own, team| own.step(team, awaited))
}

fn with_own<T>(team: &mut Team, work: impl FnOnce(&mut Reintegration, &mut Team) -> T) -> T {
    let mut own = std::mem::take(&mut team.reintegration);
    let result = work(&mut own, team);
    team.reintegration = own;
    result
}

/// Ends copies of attempts that were given up, of a group that is over.
pub(crate) fn sweep(team: &mut Team) {
    with_own(team, |own, team| own.sweep(team));
}

/// Orders a copy in the place of the lost replica that used this slice, of a process that shares
/// memory with others.
pub(crate) fn begin_with_others(team: &mut Team, slice: usize) -> Option<Event> {
    with_own(team, |own, team| own.order_copy(team, slice, true))
}

/// Orders the admission of a copy that was found right.
pub(crate) fn admit(team: &mut Team) {
    with_own(team, |own, team| {
        own.order(team, Order::Admit);
        if let Some(attempt) = &mut own.attempt {
            attempt.stage = Stage::Admitting;
        }
    });
}

/// Nothing comes of it in some other process, so nothing does here. With `news` the user is told.
pub(crate) fn abandon_with_others(team: &mut Team, reason: &str, news: bool) -> Option<Event> {
    with_own(team, |own, team| {
        let attempt = own.attempt.take()?;
        let what = own.abandon(&attempt, team, reason.into(), news);
        Some(Event::Reintegration {
            replica: attempt.newcomer,
            donor: attempt.donor,
            process: team.pid,
            what,
        })
    })
}

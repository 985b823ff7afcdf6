//! Timers that signal: `alarm`, `setitimer`, `timer_create` and their kin.
//!
//! Intuition: the timers are replicated state, a deadline each on one of three clocks of the
//! primary's host (monotonic time, and the CPU time of the primary's process in two manners). The
//! primary alone knows what time it is. It lets a timer of the host call it at the earliest
//! deadline, and says with the next result that a timer is due; then all replicas agree on the time
//! and fire the same timers. A lost primary loses nothing: its successor sets a host timer of its
//! own for the same deadline.
//!
//! A program that computes without a call would never hear of it. If a timer's signal is to end it,
//! the primary tells the supervisor, since ending needs no agreement on where.
//!
//! Not covered: a real-time clock that is set while a timer for an absolute time on it runs. CPU
//! time is the primary's, the agent's share included, and all threads count as one. Clocks of other
//! processes and threads are refused.

mod calls;

use core::sync::atomic::Ordering;

use linux_raw_sys::general::{SI_KERNEL, SIGALRM, SIGPROF, SIGVTALRM};
use rcoe_linux_abi::Ask;

pub(super) use calls::perform;

use crate::arch::faults::bit;
use crate::calls::signals::pending::SI_TIMER;
use crate::calls::signals::{self, Info, Target};
use crate::kernel::Kernel;
use crate::lifetime::{PerProcess, PerProgram, Program, Who};
use crate::protocol::requests;
use crate::protocol::transfer;
use crate::sched::threads::NEVER;
use crate::sys::{self, HostTimer};

/// Timers at a time, the three of `setitimer` included, which come first.
const PLACES: usize = 128;
/// Timers of `setitimer`.
const OLD: usize = 3;
/// How often the host calls again while a timer is due and the primary has not said so yet.
const AGAIN_NS: u64 = 10_000_000;

/// Which clock of the host a deadline is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Domain {
    Wall = 0,
    User = 1,
    Cpu = 2,
}

const DOMAINS: [Domain; 3] = [Domain::Wall, Domain::User, Domain::Cpu];

impl Domain {
    fn now(self) -> u64 {
        /// Clocks of the calling process, as `clock_gettime` numbers them.
        const USER: i32 = (!0 << 3) | 1;
        const CPU: i32 = 2;
        match self {
            Self::Wall => sys::monotonic(),
            Self::User => sys::clock(USER).unwrap_or(0),
            Self::Cpu => sys::clock(CPU).unwrap_or(0),
        }
    }

    const fn host(self) -> HostTimer {
        match self {
            Self::Wall => HostTimer::Real,
            Self::User => HostTimer::Virtual,
            Self::Cpu => HostTimer::Prof,
        }
    }
}

/// Who hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Notify {
    Nobody,
    Program,
    Thread,
}

/// One timer.
#[derive(Clone, Copy, Debug)]
struct Timer {
    used: bool,
    domain: Domain,
    /// The clock that the program named.
    clock: i32,
    deadline: u64,
    interval: u64,
    notify: Notify,
    /// Id of that thread.
    thread: u32,
    signal: u32,
    value: u64,
    /// Expirations since its signal was queued, beyond the first.
    missed: u32,
    /// The same of the signal delivered last.
    told: u32,
    /// Replicas are compared byte by byte, so there are no gaps.
    _rest: [u8; 6],
}

const _: () = assert!(size_of::<Timer>() == 56);

impl Timer {
    /// All zeroes.
    const UNUSED: Self = Self {
        used: false,
        domain: Domain::Wall,
        clock: 0,
        deadline: 0,
        interval: 0,
        notify: Notify::Nobody,
        thread: 0,
        signal: 0,
        value: 0,
        missed: 0,
        told: 0,
        _rest: [0; 6],
    };

    /// Those of `setitimer`, in the order of its numbers.
    const OLD: [Self; OLD] = [
        Self::old(Domain::Wall, SIGALRM),
        Self::old(Domain::User, SIGVTALRM),
        Self::old(Domain::Cpu, SIGPROF),
    ];

    const fn old(domain: Domain, signal: u32) -> Self {
        Self {
            used: true,
            domain,
            deadline: NEVER,
            notify: Notify::Program,
            signal,
            ..Self::UNUSED
        }
    }

    /// Interval and time left, as the calls tell them.
    fn setting(&self, now: u64) -> [u64; 2] {
        let left = match self.deadline {
            NEVER => 0,
            deadline if deadline > now => deadline - now,
            deadline if self.notify == Notify::Nobody => match self.interval {
                0 => 0,
                interval => interval - (now - deadline) % interval,
            },
            // Due, and not told yet.
            _ => 1,
        };
        [self.interval, left]
    }

    /// Goes on to the first deadline after `now`; returns how many more than one have passed.
    fn advance(&mut self, now: u64) -> u32 {
        if self.interval == 0 {
            self.deadline = NEVER;
            return 0;
        }
        let more = (now - self.deadline) / self.interval;
        self.deadline += (more + 1) * self.interval;
        u32::try_from(more).unwrap_or(u32::MAX)
    }
}

/// All timers of the program.
pub(crate) struct Timers {
    all: [Timer; PLACES],
    /// Earliest deadline that somebody hears of, by clock.
    earliest: [u64; 3],
    /// What the host's timers of this replica are set to.
    armed: [u64; 3],
    /// Are these the same? Each call asks.
    settled: bool,
}

impl Timers {
    /// None is running. What was not in use is left untouched.
    pub(crate) fn begin(&mut self) {
        self.forget_made();
        let Self {
            all,
            earliest,
            armed,
            settled,
        } = self;
        all[..OLD].copy_from_slice(&Timer::OLD);
        (*earliest, *armed, *settled) = ([NEVER; 3], [NEVER; 3], true);
    }

    /// Those made with `timer_create` are gone; what was not in use is left untouched.
    fn forget_made(&mut self) {
        let made = self.all[OLD..].iter_mut().filter(|timer| timer.used);
        made.for_each(|timer| *timer = Timer::UNUSED);
    }

    /// Are the host's timers set as they should be?
    #[inline]
    pub(crate) const fn is_armed(&self) -> bool {
        self.settled
    }

    /// The host's timers may be set otherwise, or not at all.
    pub(crate) fn forget_armed(&mut self) {
        self.armed = [NEVER; 3];
        self.compare();
    }

    /// One of the two has changed.
    fn compare(&mut self) {
        self.settled = self.armed == self.earliest;
    }

    /// Timers that were made with `timer_create`.
    pub(super) fn count_made(&self) -> usize {
        self.all[OLD..].iter().filter(|timer| timer.used).count()
    }

    fn schedule(&mut self) {
        self.earliest = DOMAINS.map(|domain| {
            let heard = self
                .all
                .iter()
                .filter(|timer| timer.domain == domain && timer.notify != Notify::Nobody);
            heard.map(|timer| timer.deadline).min().unwrap_or(NEVER)
        });
        self.compare();
    }

    /// The next timer whose time has come.
    fn next_due(&self, now: [u64; 3]) -> Option<usize> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, it)| it.notify != Notify::Nobody && it.deadline <= now[it.domain as usize])
            .min_by_key(|(at, it)| (it.deadline, *at))
            .map(|(at, _)| at)
    }

    fn find(&mut self, id: u64) -> Option<&mut Timer> {
        let at = usize::try_from(id).ok()?.checked_add(OLD)?;
        self.all.get_mut(at).filter(|timer| timer.used)
    }
}

impl PerProcess for Timers {
    fn in_child(&mut self, _: &Who) {
        self.begin();
    }
}

impl PerProgram for Timers {
    /// Those of `setitimer` go on.
    fn in_program(&mut self, _: &Program) {
        self.forget_made();
        self.schedule();
    }
}

/// Primary: lets the host call at the earliest deadlines.
pub(super) fn arm(kernel: &mut Kernel) {
    let timers = &mut kernel.timers;
    if timers.settled {
        return;
    }
    for domain in DOMAINS {
        let (armed, wanted) = (
            &mut timers.armed[domain as usize],
            timers.earliest[domain as usize],
        );
        if *armed != wanted {
            *armed = wanted;
            let left = match wanted {
                NEVER => 0,
                deadline => deadline.saturating_sub(domain.now()).max(1000),
            };
            sys::set_timer(domain.host(), left, AGAIN_NS);
        }
    }
    timers.compare();
}

/// Primary: the signals of all timers that are due; `None` if none is.
pub(super) fn due(kernel: &Kernel) -> Option<u64> {
    let timers = &kernel.timers;
    if timers.earliest == [NEVER; 3] {
        return None;
    }
    let now = DOMAINS.map(Domain::now);
    let due = timers
        .all
        .iter()
        .filter(|it| it.notify != Notify::Nobody && it.deadline <= now[it.domain as usize]);
    due.map(|timer| bit(timer.signal)).reduce(|a, b| a | b)
}

/// All replicas: fires what is due.
pub(super) fn expire(kernel: &mut Kernel) {
    let now = transfer::agree_all(kernel, true, |_| DOMAINS.map(Domain::now));
    // A timer goes on to a time that is not past: each fires once at most.
    while let Some(at) = kernel.timers.next_due(now) {
        fire(kernel, at, now);
    }
    kernel.timers.schedule();
}

fn fire(kernel: &mut Kernel, at: usize, now: [u64; 3]) {
    let timer = &mut kernel.timers.all[at];
    let more = timer.advance(now[timer.domain as usize]);
    let (signal, value) = (timer.signal, timer.value);
    let Some(id) = at.checked_sub(OLD) else {
        let info = Info::sent(signal, SI_KERNEL.cast_signed(), 0, 0, 0);
        signals::arrive(kernel, info, Target::Program);
        return;
    };
    if kernel.signals.pending.has_timer(id as u64) {
        timer.missed = timer.missed.saturating_add(more).saturating_add(1);
        return;
    }
    timer.missed = more;
    let to = match timer.notify {
        Notify::Thread => match kernel.threads.find(timer.thread) {
            Some(slot) => Target::Thread(u16::try_from(slot).expect("slots are few")),
            None => return,
        },
        _ => Target::Program,
    };
    let id = u32::try_from(id).expect("few timers");
    signals::arrive(kernel, Info::sent(signal, SI_TIMER, id, 0, value), to);
}

/// A timer's signal is taken: tells how often it has expired beyond once.
pub(super) fn delivered(kernel: &mut Kernel, info: &mut Info) {
    let id = info.words[0] & 0xffff_ffff;
    if let Some(timer) = kernel.timers.find(id) {
        timer.told = core::mem::take(&mut timer.missed);
        info.words[0] = id | u64::from(timer.told) << 32;
    }
}

/// A host timer has interrupted the program itself. If one of the program's is to end it, that must
/// not wait for a call that may never come.
pub(crate) fn end_if_fatal(kernel: &Kernel) {
    let fatal = kernel.report.fatal.load(Ordering::Relaxed);
    let ending = due(kernel).unwrap_or(0) & fatal;
    if ending != 0 {
        let signal = ending.trailing_zeros() + 1;
        let signal = u8::try_from(signal).expect("signal numbers are small");
        requests::tell(&kernel.report.expired, Ask::Expired { signal });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_periodic_timer_counts_what_it_missed() {
        let mut timer = Timer {
            interval: 10,
            deadline: 100,
            ..Timer::old(Domain::Wall, SIGALRM)
        };
        assert_eq!((timer.advance(100), timer.deadline), (0, 110));
        assert_eq!((timer.advance(135), timer.deadline), (2, 140));
        timer.interval = 0;
        assert_eq!((timer.advance(500), timer.deadline), (0, NEVER));
    }

    #[test]
    fn what_is_left_is_told() {
        let mut timer = Timer {
            interval: 10,
            deadline: 100,
            ..Timer::old(Domain::Wall, SIGALRM)
        };
        assert_eq!(timer.setting(60), [10, 40]);
        assert_eq!(timer.setting(105), [10, 1]);
        timer.notify = Notify::Nobody;
        assert_eq!(timer.setting(105), [10, 5]);
        timer.deadline = NEVER;
        assert_eq!(timer.setting(105), [10, 0]);
    }

    #[test]
    fn the_earliest_is_due_first() {
        let mut timers = Timers {
            all: [Timer::UNUSED; PLACES],
            earliest: [0; 3],
            armed: [0; 3],
            settled: false,
        };
        timers.begin();
        timers.all[0].deadline = 50;
        timers.all[1].deadline = 30;
        timers.all[OLD] = Timer {
            deadline: 40,
            ..Timer::old(Domain::Wall, 40)
        };
        timers.schedule();
        assert_eq!(timers.earliest, [40, 30, NEVER]);
        assert_eq!(timers.next_due([39, 29, 99]), None);
        assert_eq!(timers.next_due([60, 60, 99]), Some(1));
        assert_eq!(timers.next_due([60, 0, 99]), Some(OLD));
        timers.forget_made();
        timers.schedule();
        assert_eq!(timers.earliest, [50, 30, NEVER]);
    }
}

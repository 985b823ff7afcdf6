//! How long an awaited sibling is given before it counts as late.
//!
//! A sibling may use as much CPU time as this replica needed since its last such wait, plus the
//! timeout; counting the late one's own CPU time means that a loaded machine raises no alarm. A
//! larger cap on the wall clock catches a sibling that gets nowhere at all. Time in which somebody
//! of the group could have run and was given no CPU does not count towards the cap: the sibling may
//! itself be waiting for that one. A stopped sibling has the timeout on the wall clock.
//!
//! Not covered: where the host hides `/proc`, or has no descriptor left, time without a CPU cannot
//! be told from any other and counts.

use core::fmt::Write as _;
use core::sync::atomic::Ordering;

use rcoe_core::MAX_REPLICAS;
use rcoe_linux_abi::{Control, Look, Starvation};

use crate::protocol::env::Sibling;
use crate::sys;
use crate::text::Text;

/// The group's members, each at its index.
pub(crate) type Siblings = [Option<Sibling>; MAX_REPLICAS];

/// The clocks of the present wait.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience {
    /// Own CPU time when a slow wait last looked.
    own_mark: u64,
    /// When the present slow wait began, or 0.
    since: u64,
    /// For how long the group had been stopped on purpose then.
    paused: u64,
    /// The awaited sibling's CPU time then.
    peer_cpu: u64,
    /// CPU time it may use from then on.
    budget: u64,
    /// How long each member has been without a CPU since half the cap was over.
    starving: Option<[Starvation; MAX_REPLICAS]>,
}

impl Patience {
    /// A wait begins; its clocks start with [`Self::start`].
    pub(crate) fn begin(&mut self) {
        self.since = 0;
    }

    /// Do the clocks run?
    pub(crate) fn has_started(&self) -> bool {
        self.since != 0
    }

    /// The wait has become a slow one: its clocks start.
    pub(crate) fn start(&mut self, control: &Control, peer: Sibling) {
        let own_cpu = sys::cpu_time(0).unwrap_or(0);
        let used = own_cpu.saturating_sub(self.own_mark);
        *self = Self {
            own_mark: own_cpu,
            since: sys::monotonic(),
            paused: control.paused_ns.load(Ordering::Acquire),
            peer_cpu: cpu_time(peer),
            budget: used.saturating_add(control.timeout_ns.load(Ordering::Relaxed)),
            starving: None,
        };
    }

    /// How long the wait has taken, without what the group was stopped on purpose, in ns.
    pub(crate) fn waited(&self, control: &Control) -> u64 {
        let paused = control.paused_ns.load(Ordering::Acquire) - self.paused;
        sys::monotonic().saturating_sub(self.since + paused)
    }

    /// Has the awaited sibling used up its CPU time?
    pub(crate) fn is_outrun(&self, peer: Sibling) -> bool {
        cpu_time(peer).saturating_sub(self.peer_cpu) > self.budget
    }

    /// Has the wait come to the cap on the wall clock?
    pub(crate) fn is_over(&mut self, control: &Control, siblings: &Siblings) -> bool {
        let timeout = control.timeout_ns.load(Ordering::Relaxed).max(1);
        let ratio = (control.wall_cap_ns.load(Ordering::Relaxed) / timeout).max(1);
        let cap = self.budget.saturating_mul(ratio);
        self.is_past(cap, self.waited(control), || {
            siblings.map(|sibling| sibling.and_then(look).unwrap_or_default())
        })
    }

    /// Has a wait of `waited` ns passed the cap? `look` tells of each member.
    fn is_past(
        &mut self,
        cap: u64,
        waited: u64,
        look: impl FnOnce() -> [Look; MAX_REPLICAS],
    ) -> bool {
        // Looking only from here on spares short waits the look, and half the cap is excuse enough.
        if waited <= cap / 2 {
            return false;
        }
        let looks = look();
        let starving = self
            .starving
            .get_or_insert_with(|| looks.map(|look| Starvation::new(look, waited)));
        for (member, look) in starving.iter_mut().zip(looks) {
            member.look(look, waited);
        }
        let worst = starving.iter().map(Starvation::total).max();
        waited - worst.unwrap_or(0).min(waited) > cap
    }
}

fn cpu_time(sibling: Sibling) -> u64 {
    sys::cpu_time(sibling.report.pid.load(Ordering::Relaxed)).unwrap_or(0)
}

/// What the host tells of a sibling, if it does.
fn look(sibling: Sibling) -> Option<Look> {
    let pid = sibling.report.pid.load(Ordering::Relaxed);
    let (mut schedstat, mut stat) = ([0; 64], [0; 128]);
    let schedstat = page(pid, "schedstat", &mut schedstat)?;
    Look::parse(schedstat, page(pid, "stat", &mut stat)?)
}

/// The beginning of a page below `/proc/PID`.
fn page<'a>(pid: u32, name: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = Text::<32>::new();
    write!(path, "/proc/{pid}/{name}\0").expect("a short path");
    let file = sys::open_read(path.as_bytes()).ok()?;
    let read = sys::read(file, buffer);
    sys::close(file);
    Some(&buffer[..read.ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: u64 = 1000;

    /// The first two members have waited for so long in their lives.
    fn looks(first: u64, second: u64) -> [Look; MAX_REPLICAS] {
        let mut looks = [Look::default(); MAX_REPLICAS];
        (looks[0].queued, looks[1].queued) = (first, second);
        looks
    }

    #[test]
    fn a_wait_past_the_cap_is_over() {
        let mut patience = Patience::default();
        assert!(!patience.is_past(CAP, 600, || looks(5, 7)));
        assert!(!patience.is_past(CAP, 1000, || looks(5, 7)));
        assert!(patience.is_past(CAP, 1001, || looks(5, 7)));
    }

    #[test]
    fn a_short_wait_does_not_look() {
        let mut patience = Patience::default();
        assert!(!patience.is_past(CAP, 500, || unreachable!("half the cap has not passed")));
    }

    #[test]
    fn time_without_a_cpu_does_not_count() {
        let mut patience = Patience::default();
        assert!(!patience.is_past(CAP, 501, || looks(5, 7)));
        assert!(!patience.is_past(CAP, 1400, || looks(5, 407)));
        assert!(patience.is_past(CAP, 1401, || looks(405, 407)));
    }

    #[test]
    fn a_member_that_was_replaced_excuses_nothing() {
        let mut patience = Patience::default();
        assert!(!patience.is_past(CAP, 501, || looks(900, 900)));
        assert!(patience.is_past(CAP, 1001, || looks(0, 900)));
    }
}

//! How a replica waits for its siblings, and when it gives one up.
//!
//! Waiting spins, then yields, then sleeps on the sibling's doorbell ([`crate::waiting`] tells for
//! how long). A sibling is overdue when it is dead, when it is stopped for longer than the timeout,
//! or when it has burnt more CPU time than this replica needed since its last such wait, plus the
//! timeout. Counting the late one's CPU time means that a loaded machine raises no alarm; a larger
//! wall-clock cap catches a sibling that gets nowhere at all. While the primary is inside a call
//! that may block, only death and being stopped count.

use core::sync::atomic::Ordering;

use rcoe_core::{Env, MAX_REPLICAS, Outbox, ReplicaId, ReplicaSet, Wait, WaitFor, Waited};
use rcoe_linux_abi::{Control, ReplicaState, Report};

use crate::sys;
use crate::waiting::{Habit, Neighbours, Pass};

/// Rounds after which a wait is longer than replicas in step need.
const SHORT_ROUNDS: u32 = 16;
/// So many calls are told apart, by the last bits of their numbers.
const CALLS: usize = 64;
/// Longest sleep before looking at the clocks again.
const SLEEP_NS: u64 = 100_000_000;

/// Published memory of all replicas, as the waiting code needs it.
#[derive(Clone, Copy)]
pub(crate) struct Sibling {
    pub(crate) report: &'static Report,
    pub(crate) outbox: &'static Outbox,
}

/// The Linux side of the protocol core.
pub(crate) struct LinuxEnv {
    control: &'static Control,
    siblings: [Option<Sibling>; MAX_REPLICAS],
    own: &'static Report,
    /// By [`Self::kind_of`].
    habits: [Habit; 2 * CALLS],
    neighbours: Neighbours,
    /// The program's present call, as far as kinds of waits tell calls apart.
    call: usize,
    patience: Patience,
    /// The last wait was longer than a look or two.
    long: bool,
}

/// State of the present wait's clocks.
#[derive(Clone, Copy, Default)]
struct Patience {
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
}

impl LinuxEnv {
    pub(crate) fn new(
        control: &'static Control,
        own: &'static Report,
        siblings: [Option<Sibling>; MAX_REPLICAS],
    ) -> Self {
        let crowded = control.crowded.load(Ordering::Relaxed) != 0;
        Self {
            control,
            siblings,
            own,
            habits: [Habit::new(crowded); 2 * CALLS],
            neighbours: Neighbours::default(),
            call: 0,
            patience: Patience::default(),
            long: false,
        }
    }

    fn sibling(&self, id: ReplicaId) -> Sibling {
        self.siblings[id.index()].expect("only members are awaited")
    }

    /// The waits to come are at the call of this number.
    pub(crate) fn enter(&mut self, nr: u64) {
        self.call = crate::convert::size(nr) % CALLS;
    }

    /// Which of [`Self::habits`] a wait goes by: those at one call, for a record or for something
    /// else. Where a call ends soon the wait for its record is short, and after `epoll_wait` it is
    /// not.
    fn kind_of(&self, wait: &Wait) -> usize {
        2 * self.call + usize::from(wait.reason == WaitFor::Record)
    }

    /// Starts to look out for a long wait.
    pub(crate) fn watch(&mut self) {
        self.long = false;
    }

    /// Was a wait since [`Self::watch`] long enough for memory to change meanwhile?
    pub(crate) fn waited(&self) -> bool {
        self.long
    }

    /// What a member, present or lost, has published beside its outbox.
    ///
    /// # Panics
    /// If there never was such a member.
    pub(crate) fn report_of(&self, id: ReplicaId) -> &'static Report {
        self.sibling(id).report
    }

    fn state(&self, id: ReplicaId) -> u32 {
        self.control.state[id.index()].load(Ordering::Acquire)
    }

    /// Counts a wait in the report; single writer, so a plain load and store do.
    fn count(cell: &core::sync::atomic::AtomicU64) {
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A wait begins.
    fn begin(&mut self, wait: &Wait) {
        self.habits[self.kind_of(wait)].begin();
        self.neighbours.begin();
    }

    /// Lets others use this CPU, and notes for how long they did.
    fn give_way(&mut self) {
        Self::count(&self.own.yields);
        let before = sys::monotonic();
        sys::sched_yield();
        self.neighbours
            .yielded(sys::monotonic().saturating_sub(before));
    }

    fn start_patience(&mut self, peer: Sibling) {
        let own_cpu = sys::cpu_time(0).unwrap_or(0);
        let used = own_cpu.saturating_sub(self.patience.own_mark);
        self.patience = Patience {
            own_mark: own_cpu,
            since: sys::monotonic(),
            paused: self.control.paused_ns.load(Ordering::Acquire),
            peer_cpu: sys::cpu_time(peer.report.pid.load(Ordering::Relaxed)).unwrap_or(0),
            budget: used.saturating_add(self.control.timeout_ns.load(Ordering::Relaxed)),
        };
    }

    /// Has the awaited sibling used up its time?
    fn expired(&self, wait: &Wait, peer: Sibling) -> bool {
        let paused = self.control.paused_ns.load(Ordering::Acquire) - self.patience.paused;
        let waited = sys::monotonic().saturating_sub(self.patience.since + paused);
        let timeout = self.control.timeout_ns.load(Ordering::Relaxed);
        if self.state(wait.peer) == ReplicaState::Stopped as u32 {
            return waited > timeout;
        }
        if wait.reason == WaitFor::Record && peer.report.in_call.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let cpu = sys::cpu_time(peer.report.pid.load(Ordering::Relaxed)).unwrap_or(0);
        let ratio = self.control.wall_cap_ns.load(Ordering::Relaxed) / timeout.max(1);
        cpu.saturating_sub(self.patience.peer_cpu) > self.patience.budget
            || waited / ratio.max(1) > self.patience.budget
    }

    fn sleep(&mut self, own: &Outbox, wait: &Wait, peer: Sibling) {
        let control_bell = self.control.bell.load(Ordering::Acquire);
        if self.state(wait.peer) == ReplicaState::Dead as u32 {
            return;
        }
        if own.begin_sleep(wait.peer, peer.outbox, wait.bell) {
            Self::count(&self.own.sleeps);
            let bells = [
                (peer.outbox.doorbell().as_ptr().cast_const(), wait.bell),
                (self.control.bell.as_ptr().cast_const(), control_bell),
            ];
            sys::futex_wait_any(&bells, SLEEP_NS);
            own.end_sleep();
        }
    }
}

impl Env for LinuxEnv {
    fn wait(&mut self, own: &Outbox, wait: &Wait) -> Waited {
        if wait.round == 0 {
            self.patience.since = 0;
            self.begin(wait);
        }
        let kind = self.kind_of(wait);
        let pass = self.habits[kind].pass(wait.round, self.neighbours.contested());
        if pass == Pass::Spin {
            self.long |= wait.round == SHORT_ROUNDS;
            core::hint::spin_loop();
            return Waited::Retry;
        }
        if self.state(wait.peer) == ReplicaState::Dead as u32 {
            return Waited::Overdue;
        }
        if pass == Pass::Yield {
            self.give_way();
            return Waited::Retry;
        }
        let peer = self.sibling(wait.peer);
        if self.patience.since == 0 {
            self.start_patience(peer);
        } else if self.expired(wait, peer) {
            return Waited::Overdue;
        }
        self.sleep(own, wait, peer);
        Waited::Retry
    }

    fn wake(&mut self, own: &Outbox) {
        sys::futex_wake(own.doorbell().as_ptr());
    }

    /// The supervisor kills whoever was voted out; a removed primary must be gone before its
    /// successor touches anything outside.
    fn exclude(&mut self, _own: &Outbox, gone: ReplicaSet) {
        sys::kill(
            self.control.supervisor.load(Ordering::Relaxed),
            rcoe_linux_abi::SIG_NOTIFY,
        );
        for id in gone {
            loop {
                let bell = self.control.bell.load(Ordering::Acquire);
                if self.state(id) == ReplicaState::Dead as u32 {
                    break;
                }
                let bells = [(self.control.bell.as_ptr().cast_const(), bell)];
                sys::futex_wait_any(&bells, SLEEP_NS);
            }
        }
    }
}

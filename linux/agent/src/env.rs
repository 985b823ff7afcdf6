//! How a replica waits for its siblings, and when it gives one up.
//!
//! Waiting spins, then yields, then sleeps on the sibling's doorbell. How long it spins follows
//! from how the waits before it ended: where siblings are in step a wait is over before a sleep
//! could begin, and where they are not (the primary itself waits for input, or another process has
//! the sibling's CPU) spinning takes the CPU from those it waits for. A sibling is overdue when it
//! is dead, when it is stopped for longer than the timeout, or when it has burnt more CPU time
//! than this replica needed since its last such wait, plus the timeout. Counting the late one's
//! CPU time means that a loaded machine raises no alarm; a larger wall-clock cap catches a sibling
//! that gets nowhere at all. While the primary is inside a call that may block, only death and
//! being stopped count.

use core::sync::atomic::Ordering;

use rcoe_core::{Env, MAX_REPLICAS, Outbox, ReplicaId, ReplicaSet, Wait, WaitFor, Waited};
use rcoe_linux_abi::{Control, ReplicaState, Report};

use crate::sys;

/// Most rounds of pure spinning where every replica has a CPU of its own: less than it takes to
/// fall asleep and be woken, since others may need that CPU.
const MOST_SPIN_ROUNDS: u32 = 128;
/// Fewest rounds, and all of them where replicas share CPUs.
const LEAST_SPIN_ROUNDS: u32 = 16;
/// Rounds after which a wait is longer than replicas in step need.
const SHORT_ROUNDS: u32 = 16;
/// Rounds of yielding after spinning. Few: one that yields stays in the way of the one it waits
/// for, one that sleeps is woken ahead of others.
const YIELD_ROUNDS: u32 = 2;
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
    spins: [Spins; 2 * CALLS],
    /// The program's present call, as far as kinds of waits tell calls apart.
    call: usize,
    patience: Patience,
    /// The last wait was longer than a look or two.
    long: bool,
}

/// How many rounds waits of one kind spin: those at one call, for a record or for something else.
/// Where a call ends soon the wait for its record is short, and after `epoll_wait` it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spins {
    rounds: u32,
    most: u32,
    /// The wait before this one ended in sleep.
    slept: bool,
}

impl Spins {
    const fn new(crowded: bool) -> Self {
        let most = if crowded {
            LEAST_SPIN_ROUNDS
        } else {
            MOST_SPIN_ROUNDS
        };
        Self {
            rounds: most,
            most,
            slept: false,
        }
    }

    /// A wait begins: half as long as before if that was in vain, else twice as long.
    fn begin(&mut self) {
        self.rounds = if core::mem::take(&mut self.slept) {
            (self.rounds / 2).max(LEAST_SPIN_ROUNDS)
        } else {
            (self.rounds * 2).min(self.most)
        };
    }
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
            spins: [Spins::new(crowded); 2 * CALLS],
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

    /// Which of [`Self::spins`] a wait goes by.
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
        let kind = self.kind_of(wait);
        if wait.round == 0 {
            self.patience.since = 0;
            self.spins[kind].begin();
        }
        let spin_rounds = self.spins[kind].rounds;
        if wait.round < spin_rounds {
            self.long |= wait.round == SHORT_ROUNDS;
            core::hint::spin_loop();
            return Waited::Retry;
        }
        if self.state(wait.peer) == ReplicaState::Dead as u32 {
            return Waited::Overdue;
        }
        self.spins[kind].slept = true;
        if wait.round < spin_rounds + YIELD_ROUNDS {
            Self::count(&self.own.yields);
            sys::sched_yield();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_in_vain_gets_shorter_and_useful_spinning_longer() {
        let mut spins = Spins::new(false);
        for _ in 0..20 {
            spins.slept = true;
            spins.begin();
        }
        assert_eq!(spins.rounds, LEAST_SPIN_ROUNDS);
        spins.begin();
        assert_eq!(spins.rounds, 2 * LEAST_SPIN_ROUNDS);
        for _ in 0..20 {
            spins.begin();
        }
        assert_eq!(spins.rounds, MOST_SPIN_ROUNDS);
    }

    #[test]
    fn replicas_that_share_a_cpu_hardly_spin() {
        let mut spins = Spins::new(true);
        spins.begin();
        assert_eq!(spins.rounds, LEAST_SPIN_ROUNDS);
    }
}

//! How a replica waits for its siblings, and when it gives one up.
//!
//! Waiting spins, then yields, then sleeps on the sibling's doorbell ([`crate::protocol::waiting`]
//! tells for how long, [`crate::protocol::naps`] how it sleeps). A sibling is overdue when it is
//! dead, when it is stopped for longer than the timeout, or when it has had its time
//! ([`crate::protocol::patience`]). While the primary is inside a call that may block, only death
//! and being stopped count.

use core::sync::atomic::Ordering;

use rcoe_core::{
    Env, Fences, MAX_REPLICAS, Outbox, Replica, ReplicaId, ReplicaSet, Wait, WaitFor, Waited,
};
use rcoe_linux_abi::scene::LASTING;
use rcoe_linux_abi::{Control, ReplicaState, Report};

use crate::arch::rseq;
use crate::lifetime::{PerCopy, Who};
use crate::memory::regions;
use crate::protocol::courtesy::Courtesy;
use crate::protocol::meeting::Meeting;
use crate::protocol::naps::{Debt, Nap, Naps};
use crate::protocol::patience::{Patience, Siblings};
use crate::protocol::requests;
use crate::protocol::scene;
use crate::protocol::waiting::{FEW_YIELDS, FEWEST_YIELDS, Habit, Neighbours, Pass, YIELDS};
use crate::sys;

/// So many calls are told apart, by the last bits of their numbers.
const CALLS: usize = 64;

/// Published memory of all replicas, as the waiting code needs it.
#[derive(Clone, Copy)]
pub(crate) struct Sibling {
    pub(crate) report: &'static Report,
    pub(crate) outbox: &'static Outbox,
}

/// This replica's part in the protocol, as its group begins.
pub(crate) fn join(who: &Who) -> Replica<'static, LinuxEnv> {
    let mut ports = [None; MAX_REPLICAS];
    for (index, port) in ports[..who.places()].iter_mut().enumerate() {
        *port = Some(regions::port(who.group, index));
    }
    let env = LinuxEnv::of(who);
    let fences = env.fences();
    let mut replica = Replica::new(who.id, who.members, ports, env);
    replica.set_fences(fences);
    replica
}

impl PerCopy for Replica<'static, LinuxEnv> {
    fn in_copy(&mut self, who: &Who) {
        let meeting = self.env_mut().meeting.copy(who);
        let env = LinuxEnv {
            meeting,
            ..LinuxEnv::of(who)
        };
        let fences = env.fences();
        self.become_newcomer(env);
        self.set_fences(fences);
    }
}

/// The Linux side of the protocol core.
pub(crate) struct LinuxEnv {
    control: &'static Control,
    siblings: Siblings,
    own_id: ReplicaId,
    own: &'static Report,
    /// By [`Self::kind_of`].
    habits: [Habit; 2 * CALLS],
    neighbours: Neighbours,
    naps: Naps,
    debt: Debt,
    /// When the last yield of the present wait was over, or 0.
    yielded_at: u64,
    /// The program's present call, and whether it is [`LASTING`].
    call: u64,
    patience: Patience,
    /// When the vote began that is under way, or 0.
    voting_since: u64,
    /// Do all replicas accept barriers of those who fall asleep?
    barriers: bool,
    /// Of which process's end the supervisor was last told.
    told: u32,
    /// For the newcomer that is expected.
    courtesy: Courtesy,
    /// How it comes to points between calls.
    pub(crate) meeting: Meeting,
}

impl LinuxEnv {
    /// Of the replica `own_id`, whose report is `own`.
    pub(crate) fn new(
        control: &'static Control,
        (own_id, own): (ReplicaId, &'static Report),
        siblings: Siblings,
        meeting: Meeting,
    ) -> Self {
        let crowded = control.crowded.load(Ordering::Relaxed) != 0;
        Self {
            control,
            siblings,
            own_id,
            own,
            habits: [Habit::new(crowded); 2 * CALLS],
            neighbours: Neighbours::default(),
            naps: Naps::default(),
            debt: Debt::default(),
            yielded_at: 0,
            call: 0,
            patience: Patience::default(),
            voting_since: 0,
            barriers: sys::accept_barriers(),
            told: 0,
            courtesy: Courtesy::default(),
            meeting,
        }
    }

    /// Of this replica.
    fn of(who: &Who) -> Self {
        let mut siblings = [None; MAX_REPLICAS];
        for (index, sibling) in siblings[..who.places()].iter_mut().enumerate() {
            *sibling = Some(regions::sibling(who.group, index));
        }
        let meeting = Meeting::new(who);
        Self::new(who.control, (who.id, who.report), siblings, meeting)
    }

    /// Who issues the fences of sleeping and waking. Replicas are processes of one host under one
    /// filter of calls: what one of them may all may.
    const fn fences(&self) -> Fences {
        match self.barriers {
            true => Fences::Sleepers,
            false => Fences::Each,
        }
    }

    pub(super) fn sibling(&self, id: ReplicaId) -> Sibling {
        self.siblings[id.index()].expect("only members are awaited")
    }

    /// The waits to come are at the call of this number.
    #[inline]
    pub(crate) const fn enter(&mut self, nr: u64) {
        self.call = nr;
    }

    /// A copy is about to be made, for the re-integration of this number.
    pub(crate) fn expect_newcomer(&mut self, serial: u32) {
        let timeout = self.control.timeout_ns.load(Ordering::Relaxed);
        self.courtesy = Courtesy::of(serial, timeout);
    }

    /// Waits for a newcomer that is behind.
    #[cold]
    fn wait_for_newcomer(&mut self, own: &Outbox, wait: &Wait) -> Waited {
        self.settle_debt(own);
        if self.meeting.is_on() {
            self.attend();
        }
        let peer = self.sibling(wait.peer);
        let bell = peer.outbox.doorbell().as_ptr();
        let waited = self
            .courtesy
            .wait(peer.report, bell.cast_const(), wait.bell, wait.round);
        rseq::after_calls();
        waited
    }

    /// The present call makes, replaces, awaits or ends processes.
    pub(crate) const fn expect_lasting(&mut self) {
        self.call |= LASTING;
    }

    /// Tells where the program stands: replicas were found to differ, and these have to go.
    pub(crate) fn leave_scene(&self, gone: ReplicaSet) {
        if self.control.scenes.load(Ordering::Relaxed) == 0 {
            return;
        }
        scene::leave(&self.own.scene, self.call & !LASTING, gone);
    }

    /// Which of [`Self::habits`] a wait goes by: those at one call, for a record or for something
    /// else. Where a call ends soon the wait for its record is short, and after `epoll_wait` it is
    /// not.
    fn kind_of(&self, wait: &Wait) -> usize {
        let call = crate::convert::size(self.call) % CALLS;
        2 * call + usize::from(wait.reason == WaitFor::Record)
    }

    /// What a member, present or lost, has published beside its outbox.
    ///
    /// # Panics
    /// If there never was such a member.
    pub(crate) fn report_of(&self, id: ReplicaId) -> &'static Report {
        self.sibling(id).report
    }

    pub(super) fn state(&self, id: ReplicaId) -> u32 {
        self.control.state[id.index()].load(Ordering::Acquire)
    }

    /// Words of the supervisor.
    pub(super) const fn control(&self) -> &'static Control {
        self.control
    }

    /// What this replica tells.
    pub(super) const fn own_report(&self) -> &'static Report {
        self.own
    }

    /// Members that there are places for.
    pub(super) const fn siblings(&self) -> &Siblings {
        &self.siblings
    }

    /// Counts a wait in the report; single writer, so a plain load and store do.
    fn count(cell: &core::sync::atomic::AtomicU64) {
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A wait begins.
    fn begin(&mut self, wait: &Wait) {
        if wait.reason != WaitFor::Vote {
            self.voting_since = 0;
        }
        self.patience.begin();
        self.naps.begin();
        self.yielded_at = 0;
        self.habits[self.kind_of(wait)].begin();
        self.neighbours.begin();
    }

    /// Lets others use this CPU, and notes for how long they did.
    fn give_way(&mut self) {
        Self::count(&self.own.yields);
        let before = match self.yielded_at {
            0 => sys::monotonic(),
            before => before,
        };
        sys::sched_yield();
        rseq::after_calls();
        self.yielded_at = sys::monotonic();
        self.neighbours
            .yielded(self.yielded_at.saturating_sub(before));
    }

    /// Wakes those who are to be woken before this replica waits, here or in the host.
    #[inline]
    pub(crate) fn settle_debt(&mut self, own: &Outbox) {
        if self.debt.settle() {
            sys::futex_wake(own.doorbell().as_ptr());
        }
    }

    /// This replica waits for the outside next; see [`Debt::begin_anew`].
    #[inline]
    pub(crate) const fn begin_anew(&mut self) {
        self.debt.begin_anew();
    }

    /// What was published last has siblings work for long; see [`Debt::add_work`].
    #[inline]
    pub(crate) const fn add_work(&mut self) {
        self.debt.add_work();
    }

    /// Does everybody doze who sleeps on the own doorbell?
    fn all_doze(&self) -> bool {
        let own = self.own_id;
        let mut siblings = self.siblings.iter().flatten();
        !siblings.any(|sibling| sibling.outbox.must_be_woken_by(own))
    }

    /// Has the awaited sibling used up its time?
    fn expired(&mut self, wait: &Wait, peer: Sibling) -> bool {
        if self.state(wait.peer) == ReplicaState::Stopped as u32 {
            let timeout = self.control.timeout_ns.load(Ordering::Relaxed);
            return self.patience.waited(self.control) > timeout;
        }
        if wait.reason == WaitFor::Record && peer.report.in_call.load(Ordering::Relaxed) != 0 {
            return false;
        }
        if self.patience.is_outrun(peer) {
            let pid = peer.report.pid.load(Ordering::Relaxed);
            self.own.outrun.store(pid, Ordering::Relaxed);
            return true;
        }
        self.patience.is_over(self.control, &self.siblings)
    }

    /// Waits until the supervisor says that a member is gone.
    fn await_end(&self, id: ReplicaId) {
        loop {
            let bell = self.control.bell.load(Ordering::Acquire);
            if self.state(id) == ReplicaState::Dead as u32 {
                return;
            }
            if !requests::wait(self.control, bell) {
                requests::call();
            }
        }
    }

    /// Where faults are not masked the supervisor ends everybody because of the one that is gone;
    /// until it has, those that are left must do nothing more, right as it may be.
    fn await_own_end(&self) -> ! {
        loop {
            let bell = self.control.bell.load(Ordering::Acquire);
            if !requests::wait(self.control, bell) {
                requests::call();
            }
        }
    }

    /// Has the supervisor look after a sibling that has begun to end, once.
    fn tell_of_end(&mut self, peer: Sibling) {
        let pid = peer.report.pid.load(Ordering::Relaxed);
        if peer.report.will.is_opened() && self.told != pid {
            self.told = pid;
            requests::call();
        }
    }

    /// Sleeps on the doorbell of the sibling alone; says whether nobody has ended that.
    fn doze(&self, own: &Outbox, wait: &Wait, peer: Sibling) -> bool {
        let mut lasted = false;
        if own.begin_doze(wait.peer, peer.outbox, wait.bell) {
            Self::count(&self.own.sleeps);
            let bell = peer.outbox.doorbell().as_ptr();
            lasted = sys::futex_wait(bell, wait.bell, Nap::Doze.nanoseconds());
            own.end_sleep();
            rseq::after_calls();
        }
        lasted
    }

    /// Sleeps until the sibling rings, or is gone, or the supervisor has news; says whether nobody
    /// has ended that.
    fn sleep(&mut self, own: &Outbox, wait: &Wait, peer: Sibling, nap: Nap) -> bool {
        let control_bell = self.control.bell.load(Ordering::Acquire);
        if self.state(wait.peer) == ReplicaState::Dead as u32 {
            return false;
        }
        let life = &peer.report.will.life;
        let alive = life.load(Ordering::Acquire);
        self.tell_of_end(peer);
        let barrier = || {
            if self.barriers && wait.reason.is_on_stream() {
                sys::barrier();
            }
        };
        if !own.begin_sleep(wait.peer, peer.outbox, wait.bell, barrier) {
            return false;
        }
        Self::count(&self.own.sleeps);
        let bells = [
            (peer.outbox.doorbell().as_ptr().cast_const(), wait.bell),
            (self.control.bell.as_ptr().cast_const(), control_bell),
            (life.as_ptr().cast_const(), alive),
        ];
        let lasted = sys::futex_wait_any(&bells, nap.nanoseconds());
        own.end_sleep();
        rseq::after_calls();
        // Whoever waits for long looks whether anybody is left to tell it the outcome.
        if lasted && nap == Nap::Long {
            sys::leave_if_orphaned(self.control.supervisor.load(Ordering::Relaxed));
        }
        lasted
    }

    /// A wait that spinning and yielding did not end.
    fn wait_long(&mut self, own: &Outbox, wait: &Wait, peer: Sibling) -> Waited {
        let nap = self.naps.next(wait.reason == WaitFor::Record);
        let lasted = match nap {
            Nap::Doze => self.doze(own, wait, peer),
            Nap::Brief => self.sleep(own, wait, peer, nap),
            Nap::Long => {
                if !self.patience.has_started() {
                    self.patience.start(self.control, peer);
                } else if self.expired(wait, peer) {
                    return Waited::Overdue;
                }
                self.sleep(own, wait, peer, nap)
            }
        };
        self.naps.over(nap, lasted);
        Waited::Retry
    }
}

impl Env for LinuxEnv {
    fn wait(&mut self, own: &Outbox, wait: &Wait) -> Waited {
        if wait.reason == WaitFor::Newcomer {
            return self.wait_for_newcomer(own, wait);
        }
        if wait.round == 0 {
            self.begin(wait);
        }
        let kind = self.kind_of(wait);
        let record = wait.reason == WaitFor::Record;
        let contested = self.neighbours.contested();
        let yields = match (contested, self.call & LASTING != 0, record) {
            (true, ..) => 0,
            (false, true, _) => FEWEST_YIELDS,
            (false, false, true) => FEW_YIELDS,
            (false, false, false) => YIELDS,
        };
        let pass = self.habits[kind].pass(wait.round, yields);
        if pass == Pass::Spin {
            core::hint::spin_loop();
            return Waited::Retry;
        }
        self.settle_debt(own);
        if self.meeting.is_on() {
            self.attend();
        }
        if wait.reason == WaitFor::Vote && self.voting_since == 0 {
            self.voting_since = sys::monotonic();
            scene::announce(&self.own.scene, &self.call);
        }
        if self.state(wait.peer) == ReplicaState::Dead as u32 {
            return Waited::Gone;
        }
        let peer = self.sibling(wait.peer);
        if pass == Pass::Yield {
            self.tell_of_end(peer);
            self.give_way();
            return Waited::Retry;
        }
        self.wait_long(own, wait, peer)
    }

    #[inline]
    fn pause(&mut self) -> bool {
        core::hint::spin_loop();
        true
    }

    fn wake(&mut self, own: &Outbox) {
        let dozes = self.all_doze();
        if self.debt.ring(dozes) {
            sys::futex_wake(own.doorbell().as_ptr());
        }
    }

    /// The supervisor kills whoever was voted out; a removed primary must be gone before its
    /// successor touches anything outside. Where faults are not masked nobody comes back from here.
    fn exclude(&mut self, _own: &Outbox, gone: ReplicaSet, primary: ReplicaId) {
        let since = match core::mem::take(&mut self.voting_since) {
            0 => sys::monotonic(),
            since => since,
        };
        self.leave_scene(gone);
        requests::call();
        if self.control.mask.load(Ordering::Relaxed) == 0 {
            self.await_own_end();
        }
        let holds = self.control.hold.load(Ordering::Relaxed) != 0;
        for id in gone {
            if id == primary || holds {
                self.await_end(id);
            }
        }
        let took = sys::monotonic().saturating_sub(since);
        let sum = self.own.removals_ns.load(Ordering::Relaxed);
        self.own
            .removals_ns
            .store(sum.saturating_add(took), Ordering::Relaxed);
    }
}

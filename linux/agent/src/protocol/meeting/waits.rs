//! How a replica waits for a sibling on the way to a point, and takes part while it waits for one
//! within a call.

use core::sync::atomic::Ordering;

use rcoe_core::coupling::{Boards, Order, Stop};
use rcoe_core::{ReplicaId, ReplicaSet};
use rcoe_linux_abi::ReplicaState;

use crate::coupling::machine::AtCall;
use crate::protocol::env::LinuxEnv;
use crate::protocol::meeting::{Doing, boards, is_over};
use crate::protocol::requests;
use crate::sys;

/// Looks at a sibling before this CPU is given to others, and for how long it is, in ns, before
/// this replica sleeps.
const SPINS: u32 = 2_000;
/// The same where replicas share CPUs: whoever is waited for may need this one.
const SPINS_CROWDED: u32 = 50;
/// Most way to a target takes less, in ns: to wake up who sleeps would take longer.
const YIELD_NS: u64 = 1_500_000;
/// The longest sleep between two looks, in ns.
const NAP_NS: u64 = 500_000;

impl LinuxEnv {
    /// Is one of these members gone for good?
    pub(crate) fn has_lost(&self, members: ReplicaSet) -> bool {
        let dead = ReplicaState::Dead as u32;
        members.iter().any(|member| self.state(member) == dead)
    }

    /// Takes part while this replica waits for a sibling within a call.
    #[cold]
    pub(crate) fn attend(&mut self) {
        let boards = boards(self.siblings().iter().flatten().count());
        if let Doing::Running { since, left, .. } = self.meeting.doing {
            // It waits, and gets no further before the others do.
            let (now, slack) = (sys::monotonic(), 4 * NAP_NS);
            if self.meeting.waited_since == 0 {
                self.meeting.waited_since = now;
            }
            let waited = now - self.meeting.waited_since;
            if waited < left.saturating_add(slack) {
                return;
            }
            self.meeting.take_out();
            self.meeting.ran(Stop::Overran, since.saturating_add(left));
        }
        if let Doing::Placing { .. } = self.meeting.doing {
            // The way out of a loop led to a reading of a clock, which is a place by itself.
            self.meeting.take_out();
            self.meeting.doing = Doing::Nothing;
        }
        self.meeting.waited_since = 0;
        self.meeting.moved = true;
        self.meeting.marked = sys::monotonic();
        if self.meeting.coupler.is_idle() {
            self.meeting.settle_members();
            self.meeting.came_at = self.meeting.marked;
            self.meeting.coupler.join(&boards);
        }
        let _ = self.step_at_call(&boards);
    }

    /// Steps until a sibling has to do something, who is returned; or until the call goes on.
    pub(super) fn step_at_call(&mut self, boards: &Boards<'_>) -> Option<ReplicaId> {
        let mut said = false;
        loop {
            let standing = self.meeting.at_call();
            let meeting = &mut self.meeting;
            let order = meeting.coupler.step(boards, &mut AtCall(standing));
            if !matches!(order, Order::Wait(_)) {
                meeting.stop_waiting();
            }
            said |= !matches!(order, Order::Wait(_) | Order::Idle);
            if said && !matches!(order, Order::Again | Order::Removed(_)) {
                self.wake_siblings();
            }
            let meeting = &mut self.meeting;
            match order {
                Order::Again | Order::Removed(_) => {}
                Order::Wait(peer) => return Some(peer),
                Order::Run { budget, again } => {
                    meeting.order_run(budget, 0, again);
                    return None;
                }
                Order::Agreed(_) => {
                    meeting.leave();
                    return None;
                }
                Order::Halted(_) => {
                    meeting.leave();
                    meeting.apart = true;
                    return None;
                }
                Order::Idle => return None,
                Order::Place => unreachable!("a call is a place"),
            }
        }
    }

    /// What this replica has said may be what others sleep for ([`Self::nap`]). Who is just about
    /// to sleep is missed, and looks again by itself.
    pub(super) fn wake_siblings(&self) {
        sys::futex_wake(self.control().bell.as_ptr().cast_const());
    }

    /// Waits a little for a sibling, and finds it overdue if that was too long.
    pub(super) fn await_sibling(&mut self, peer: ReplicaId) {
        let looks = self.meeting.looks;
        self.meeting.looks = looks.saturating_add(1);
        if self.is_gone(peer) {
            return self.meeting.coupler.overdue(peer);
        }
        let spins = match self.control().crowded.load(Ordering::Relaxed) {
            0 => SPINS,
            _ => SPINS_CROWDED,
        };
        if looks < spins {
            if looks == 0 && self.meeting.coupler.stamp().phase == 0 {
                self.call_siblings();
            }
            return core::hint::spin_loop();
        }
        let now = sys::monotonic();
        if looks == spins {
            self.meeting.yields_since = now;
        }
        let since = self.meeting.yields_since;
        if since != 0 && now.saturating_sub(since) < YIELD_NS {
            return sys::sched_yield();
        }
        self.nap(peer);
    }

    /// Will this one never come? A newcomer has the place of somebody who was lost.
    fn is_gone(&self, peer: ReplicaId) -> bool {
        let newcomer = self.meeting.party.newcomer;
        match newcomer.filter(|&(newcomer, _)| newcomer == peer) {
            Some((_, serial)) => is_over(self.sibling(peer).report, serial),
            None => self.state(peer) == ReplicaState::Dead as u32,
        }
    }

    /// Has this one had its time? A newcomer is nobody to wait long for.
    fn is_late(&mut self, peer: ReplicaId) -> bool {
        let (control, siblings) = (self.control(), *self.siblings());
        let patience = &mut self.meeting.patience;
        match self.meeting.party.members.contains(peer) {
            true => patience.is_over(control, &siblings),
            false => patience.waited(control) > control.timeout_ns.load(Ordering::Relaxed),
        }
    }

    /// The others are to be interrupted.
    fn call_siblings(&self) {
        if self.own_report().meeting.swap(1, Ordering::SeqCst) == 0 {
            requests::call();
        }
    }

    fn nap(&mut self, peer: ReplicaId) {
        let sibling = self.sibling(peer);
        let is_first = core::mem::take(&mut self.meeting.yields_since) != 0;
        if is_first || !self.meeting.patience.has_started() {
            self.meeting.patience.start(self.control(), sibling);
        }
        // Who has joined needs no call any more.
        let joining = self.meeting.coupler.stamp().phase == 0;
        self.own_report()
            .meeting
            .store(joining.into(), Ordering::SeqCst);
        if joining {
            requests::call();
        }
        let bell = self.control().bell.load(Ordering::Acquire);
        sys::futex_wait(self.control().bell.as_ptr(), bell, NAP_NS);
        // How long it computes its budget says.
        if self.is_late(peer) {
            self.meeting.coupler.overdue(peer);
        }
    }
}

//! How a process goes through deferred effects.

use rcoe_core::{Await, Bug, Ports, WaitFor};

use super::{DEFERRED, Process, Stage, World};
use crate::deferred::{Changed, Effect};
use crate::program::Op;

impl Process {
    /// All have met before an operation: what is deferred goes first.
    pub(super) fn met(&mut self, op: Op, ports: &Ports<'_>) {
        let guards = self.deferred.guards;
        let late = matches!(op, Op::Output { .. }) && guards.off(Bug::ReleaseLate);
        let open = self.deferred.meet() && !late;
        if open && self.node.is_primary() {
            self.stage = Stage::Flush;
        } else if open && !guards.off(Bug::SettleUntold) {
            self.listen(op, ports);
        } else {
            self.settled(op, ports);
        }
    }

    /// Primary: everything that was deferred is out.
    pub(super) fn tell_settled(&mut self, op: Op, ports: &Ports<'_>) {
        if self.deferred.guards.off(Bug::SettleUntold) {
            return self.settled(op, ports);
        }
        self.node.begin_effect(ports, true);
        self.called(self.node.begin_publish(1));
    }

    pub(super) fn settled(&mut self, op: Op, ports: &Ports<'_>) {
        self.deferred.hear();
        self.act(op, ports);
    }

    /// All have met, and nothing is left from before.
    pub(super) fn act(&mut self, op: Op, ports: &Ports<'_>) {
        match op {
            Op::Output { .. } | Op::Reply | Op::Look => self.fetch(op, ports),
            Op::Deferred => self.ask(ports),
            _ => self.next(),
        }
    }

    /// Asks for a deferred effect.
    pub(super) fn ask(&mut self, ports: &Ports<'_>) {
        let effect = Effect {
            at: self.at,
            value: self.accumulator,
        };
        self.deferred.ask(effect, &self.node);
        self.event(DEFERRED, self.accumulator ^ self.label(), ports);
        self.stage = Stage::Post;
    }

    /// Can it release a deferred effect, at a moment of its own?
    #[must_use]
    pub fn can_release(&mut self, len: usize, ports: &Ports<'_>, world: &World) -> bool {
        let able = self.runs(len) && !self.slow && self.stage != Stage::Flush;
        if able && self.node.is_primary() {
            self.deferred.catch_up(world.released);
        }
        able && self.deferred.is_agreed(&self.node, ports)
    }

    /// Has the next deferred effect, on which all agree, or stops for good if it has changed since
    /// it was asked for.
    pub fn release(&mut self, ports: &Ports<'_>, world: &mut World) {
        self.deferred.catch_up(world.released);
        match self.deferred.release(self.stage != Stage::Flush) {
            Ok(effect) => {
                world.outputs.extend(effect.map(Effect::output));
                world.released += u64::from(effect.is_some());
            }
            Err(Changed) => {
                self.outbox(ports).declare_broken();
                self.alive = false;
            }
        }
    }

    /// Primary, about to wait for the world: is something not out on which not all agree yet?
    pub(super) fn must_meet(&self) -> bool {
        let open = self.deferred.is_open() && !self.deferred.is_out();
        open && !self.deferred.guards.off(Bug::WaitUnreleased)
    }

    /// The world says nothing before the effects that are held back for another are out.
    pub(super) fn await_reply(&self) -> Await {
        let others = self.node.members().without(self.node.id());
        Await {
            peer: others.lowest().expect("somebody has not posted"),
            bell: 0,
            reason: WaitFor::Room,
        }
    }
}

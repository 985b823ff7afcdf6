//! What a vote brings: a smaller membership and maybe another primary, a newcomer, or nothing; then
//! the call that voted is taken up again.

use crate::ReplicaSet;
use crate::halt::{Cause, Halt};
use crate::node::{Call, Node, Ports, Step, Task, port};
use crate::primitive::Ordering;
use crate::vote::Vote;

/// Votes in a row without a verdict and without own progress before a replica gives up.
pub const SPURIOUS_LIMIT: u32 = 64;

impl Node {
    /// The verdict holds and those in it are excluded: changes the membership and takes up the call
    /// again.
    pub(crate) fn adopt(&mut self, vote: &Vote, call: &mut Call, ports: &Ports<'_>) -> Step {
        self.votes = self.next_vote();
        call.forget_missing();
        call.accused = ReplicaSet::empty();
        if vote.verdict.faulty.is_empty() {
            return match self.invited(vote) {
                Some(newcomer) => self.take_in(newcomer, ports),
                None => self.nobody(call, ports),
            };
        }
        self.spurious = (0, 0);
        self.set_members(self.members.minus(vote.verdict.faulty));
        assert!(
            self.members.contains(self.id),
            "a convicted replica halts before"
        );
        self.epoch += 1;
        let own = port(ports, self.id).outbox;
        own.membership.store(self.membership(), Ordering::Release);
        let lost = self.primary;
        if vote.verdict.faulty.contains(lost) {
            let until = self.furthest(vote);
            if self.effect_is_lost(ports, lost, until) {
                return self.halt(ports, Halt::LostEffect, vote.verdict.faulty);
            }
            self.former = Some((lost, until));
            self.primary = self.members.lowest().unwrap_or(self.id);
            self.limit = self.cursor;
        }
        self.resume(call, ports)
    }

    /// The position in the stream that some survivor has reached, and to which all will follow it.
    fn furthest(&self, vote: &Vote) -> u64 {
        let entries = self.members.iter().filter_map(|peer| vote.entry(peer));
        entries
            .map(|entry| entry.cursor)
            .max()
            .unwrap_or(self.cursor)
    }

    /// A vote that found nobody: fine a few times, a livelock if it goes on.
    fn nobody(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let here = self.trace.events();
        let (count, place) = self.spurious;
        self.spurious = if place == here {
            (count + 1, here)
        } else {
            (1, here)
        };
        if self.spurious.0 > SPURIOUS_LIMIT {
            return self.halt(ports, Halt::FailStop(Cause::Livelock), ReplicaSet::empty());
        }
        self.resume(call, ports)
    }

    fn resume(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        match call.task {
            Task::Rendezvous(_) => self.inspect_first(call),
            Task::Room { words, .. } => {
                call.task = Task::Room { words, next: None };
                Step::Again
            }
            Task::Consume => Step::Again,
            Task::Action(_) => self.resume_action(call, ports),
            // Another vote than the one that was asked for, or one that took nobody in.
            Task::Admit(_) => Step::Again,
        }
    }
}

//! The owner's part of a phase: it publishes its state and answers until all have reported.

use super::board::{Came, PAGES, Question, REGISTERS, SHEET, Target};
use super::compare::{Machine, Stub, Union, each_digest, sealed};
use super::post::Stamp;
use super::time::Backend;
use super::{Boards, Coupler, End, Order, Stage, board};
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// The most words of an answer: a digest of all, and one of each area of a union.
const ANSWER: usize = 2 * PAGES + 2;

const _: () = assert!(ANSWER >= SHEET);

impl<T: Backend> Coupler<T> {
    pub(super) fn publish(&mut self, boards: &Boards<'_>, machine: &mut impl Machine) -> Order {
        let own = board(boards, self.id);
        let mut list = [0; PAGES];
        let Some(count) = sealed(machine, &mut list[..own.shape().pages], self.guards) else {
            return self.over(End::Broken);
        };
        let mut registers = [0; REGISTERS];
        machine.registers(&mut registers[..own.shape().registers]);
        self.target = machine.standing();
        self.stub = Stub::new(&registers, own.shape().registers);
        let target = Target {
            standing: self.target,
            registers,
        };
        own.put_target(self.moment(), &target, &list[..count]);
        self.answered = [0; MAX_REPLICAS];
        self.alike = ReplicaSet::empty().with(self.id);
        self.stage = Stage::Serve;
        Order::Again
    }

    pub(super) fn serve(&mut self, boards: &Boards<'_>, machine: &impl Machine) -> Order {
        let mut pending = None;
        let mut list = [0; PAGES];
        for peer in self.others() {
            let from = board(boards, peer);
            if from.report(self.moment(), self.guards).is_some() {
                continue;
            }
            pending = pending.or(Some(peer));
            let asked = from.question(self.moment(), &mut list, self.guards);
            if let Some((stamp, question, count)) = asked
                && stamp.turn > self.answered[peer.index()]
            {
                self.answered[peer.index()] = stamp.turn;
                self.answer(peer, stamp, question, &list[..count], boards, machine);
                return Order::Again;
            }
        }
        match pending {
            Some(peer) => self.await_peer(peer),
            None => self.close(boards, machine),
        }
    }

    fn answer(
        &mut self,
        peer: ReplicaId,
        stamp: Stamp,
        question: Question,
        list: &[u64],
        boards: &Boards<'_>,
        machine: &impl Machine,
    ) {
        let own = board(boards, self.id);
        let mut words = [0; ANSWER];
        let len = match question {
            Question::Area(area) => machine.area(area, &mut words[..own.shape().sheet]),
            Question::Digest(theirs) => {
                // What was said is what counts: the others take the list from here, too.
                let mut mine = [0; PAGES];
                let said = own.target(self.moment(), &mut mine, self.guards);
                let count = said.map_or(0, |(_, count)| count);
                let union = Union::of(&mine[..count], list, self.guards);
                let registers = &self.stub.registers[..self.stub.count];
                let (all, each) = words.split_at_mut(1);
                all[0] = each_digest(machine, registers, &union, |at, one| each[at] = one);
                self.alike = match words[0] == theirs {
                    true => self.alike.with(peer),
                    false => self.alike.without(peer),
                };
                union.areas().len() + 1
            }
        };
        own.put_answer(peer, stamp, &words[..len]);
    }

    /// All have reported. Is the owner still what it said that it is?
    fn close(&mut self, boards: &Boards<'_>, machine: &impl Machine) -> Order {
        if self.target.at_call {
            let equal = |&peer: &ReplicaId| {
                let report = board(boards, peer).report(self.moment(), self.guards);
                report.is_some_and(|report| report.came == Came::Equal)
            };
            let came = self.others().iter().filter(equal);
            self.alike = came.fold(self.alike, ReplicaSet::with);
        }
        let mut registers = [0; REGISTERS];
        machine.registers(&mut registers[..self.stub.count]);
        if registers == self.stub.registers {
            return self.came(Came::Equal);
        }
        self.alike = ReplicaSet::empty();
        self.came(Came::Apart)
    }
}

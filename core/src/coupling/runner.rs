//! The part of all but the owner: they run to the target, compare, and look for a word that tells
//! the next place from this one if they were refused.

use super::board::{Came, PAGES, Question, REGISTERS};
use super::compare::area_digest;
use super::compare::{EVERYTHING, Extra, Machine, Stub, Union, differing, sealed, state_digest};
use super::counts;
use super::post::Stamp;
use super::time::{Backend, Standing};
use super::{Boards, Coupler, End, Order, REFUSALS, Stage, Stop, board};
use crate::guards::Bug;

/// A question with this number can be followed by as many as one refusal takes.
const LAST_TURN: u8 = u8::MAX - 8;

/// The most words of an answer.
const ANSWER: usize = 2 * PAGES + 2;

impl<T: Backend> Coupler<T> {
    pub(super) fn fetch(&mut self, boards: &Boards<'_>, machine: &impl Machine) -> Order {
        let from = board(boards, self.owner);
        let mut list = [0; PAGES];
        let Some((target, _)) = from.target(self.moment(), &mut list, self.guards) else {
            return self.await_peer(self.owner);
        };
        self.target = target.standing;
        self.stub = Stub::new(&target.registers, from.shape().registers);
        self.refused = 0;
        let own = machine.standing();
        let lag = match own.events == self.target.events {
            true => self.target.progress.saturating_sub(own.progress),
            false => self.target.progress,
        };
        self.was_before = own.counted.is_before(&self.target.counted);
        // By counts it is known that it comes there; nothing is known of how fast.
        let counted = counts::way(&own, &self.target).unwrap_or(0);
        let lag = lag.max(counted.saturating_mul(2));
        let phase = match self.guards.off(Bug::BudgetFixed) {
            true => 1,
            false => self.effort.phase,
        };
        let doubt = T::doubt(own.progress.max(self.target.progress));
        self.left = self.pace.budget(lag, doubt, phase);
        match self.place(&own) {
            Place::Before => {
                self.stage = Stage::Run { again: false };
                Order::Again
            }
            Place::At => self.came(Came::Equal),
            Place::Beyond => self.came(Came::Apart),
        }
    }

    /// Where that is, as far as events tell.
    fn place(&self, own: &Standing) -> Place {
        let target = &self.target;
        if own.events != target.events {
            return match own.events < target.events {
                true => Place::Before,
                false => Place::Beyond,
            };
        }
        match (own.at_call, target.at_call) {
            (false, _) => Place::Before,
            (true, true) if own.signature == target.signature => Place::At,
            (true, _) => Place::Beyond,
        }
    }

    /// The run is over.
    pub(super) fn look(
        &mut self,
        stop: Stop,
        boards: &Boards<'_>,
        machine: &mut impl Machine,
    ) -> Order {
        self.effort.spoilt = !self.stub.is_whole() && !self.guards.off(Bug::StubUnsealed);
        match stop {
            Stop::Overran => return self.came(Came::Apart),
            Stop::Passed => {
                let behind = self.target.counted.is_before(&machine.standing().counted);
                self.passed = behind && self.was_before && !self.effort.spoilt;
                return self.came(Came::Apart);
            }
            Stop::Call => {
                let at = self.place(&machine.standing()) == Place::At;
                return self.came(if at { Came::Equal } else { Came::Apart });
            }
            Stop::Matched => {}
        }
        if !self.has_registers(boards, machine) && !self.guards.off(Bug::ArrivalTrusted) {
            return self.refuse(None);
        }
        self.ask(boards, machine)
    }

    /// Are the registers those of the target, as it stands on the board? The stub may have been
    /// damaged.
    fn has_registers(&self, boards: &Boards<'_>, machine: &impl Machine) -> bool {
        let from = board(boards, self.owner);
        let target = from.target(self.moment(), &mut [0; PAGES], self.guards);
        let mut own = [0; REGISTERS];
        machine.registers(&mut own[..self.stub.count]);
        let standing = machine.standing();
        let same = |wanted: [u64; REGISTERS]| own == wanted;
        let there = standing.events == self.target.events
            && standing.signature == self.target.signature
            && T::time(&standing).ip == T::time(&self.target).ip;
        there && target.is_some_and(|(target, _)| same(target.registers))
    }

    fn ask(&mut self, boards: &Boards<'_>, machine: &mut impl Machine) -> Order {
        let own = board(boards, self.id);
        let mut list = [0; PAGES];
        let Some(count) = sealed(machine, &mut list[..own.shape().pages], self.guards) else {
            return self.over(End::Broken);
        };
        let list = &list[..count];
        let Some(union) = self.union(list, boards) else {
            return self.await_peer(self.owner);
        };
        let registers = &self.stub.registers[..self.stub.count];
        let digest = state_digest(machine, registers, &union);
        self.stamp.turn += 1;
        own.put_question(self.stamp, Question::Digest(digest), list);
        self.stage = Stage::Hear(digest);
        Order::Again
    }

    /// What either has written.
    fn union(&self, list: &[u64], boards: &Boards<'_>) -> Option<Union> {
        let from = board(boards, self.owner);
        let mut theirs = [0; PAGES];
        let (_, count) = from.target(self.moment(), &mut theirs, self.guards)?;
        Some(Union::of(list, &theirs[..count], self.guards))
    }

    pub(super) fn hear(&mut self, own: u64, boards: &Boards<'_>, machine: &impl Machine) -> Order {
        let mut words = [0; ANSWER];
        let from = board(boards, self.owner);
        let Some(len) = from.answer(self.id, self.stamp, &mut words, self.guards) else {
            return self.await_peer(self.owner);
        };
        let Some((&total, digests)) = words[..len].split_first() else {
            return self.refuse(None);
        };
        if total == own {
            return self.came(Came::Equal);
        }
        match self.differing_area(digests, boards, machine) {
            Some(area) if area != EVERYTHING => self.ask_area(area, boards),
            _ => self.refuse(None),
        }
    }

    /// Asks for the words of an area in which the two differ.
    fn ask_area(&mut self, area: u64, boards: &Boards<'_>) -> Order {
        self.stamp.turn += 1;
        board(boards, self.id).put_question(self.stamp, Question::Area(area), &[]);
        self.stage = Stage::HearArea(area);
        Order::Again
    }

    /// The last area of which the owner has another digest.
    fn differing_area(
        &self,
        digests: &[u64],
        boards: &Boards<'_>,
        machine: &impl Machine,
    ) -> Option<u64> {
        let own = board(boards, self.id);
        let asked = Stamp {
            turn: 0,
            ..self.stamp
        };
        let mut list = [0; PAGES];
        let (_, _, count) = own.question(asked, &mut list, self.guards)?;
        let union = self.union(&list[..count], boards)?;
        let pairs = union.areas().iter().zip(digests);
        let mut differing = pairs.filter(|&(&area, &theirs)| area_digest(machine, area) != theirs);
        differing.next_back().map(|(&area, _)| area)
    }

    pub(super) fn hear_area(
        &mut self,
        area: u64,
        boards: &Boards<'_>,
        machine: &impl Machine,
    ) -> Order {
        let mut words = [0; ANSWER];
        let from = board(boards, self.owner);
        match from.answer(self.id, self.stamp, &mut words, self.guards) {
            None => self.await_peer(self.owner),
            Some(len) => {
                let word = differing(machine, area, &words[..len], self.refused);
                let within = word.and_then(|word| machine.within(area, word.at));
                match within {
                    Some(area) => self.ask_area(area, boards),
                    None => self.refuse(word),
                }
            }
        }
    }

    /// Not here: goes on, with one word more to compare, if this time can come again.
    fn refuse(&mut self, word: Option<Extra>) -> Order {
        self.refused += 1;
        let asked_enough = self.stamp.turn > LAST_TURN;
        let over = self.effort.spoilt || asked_enough || self.left == 0;
        if T::EXACT || self.refused >= REFUSALS || over {
            return self.came(Came::Apart);
        }
        if let Some(word) = word
            && !self.guards.off(Bug::StubUnrefined)
        {
            self.stub.refine(word);
        }
        self.stage = Stage::Run { again: true };
        Order::Again
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Before,
    At,
    Beyond,
}

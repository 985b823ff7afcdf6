//! Checkers: what must hold after every step, and at the end.

use std::borrow::Cow;

use rcoe_core::{Call, Cause, Halt, ReplicaSet, snapshot};

use crate::fault::Fault;
use crate::group::Group;
use crate::process::{Process, Stage};
use crate::program::{Op, expected_outputs};
use crate::supervisor::Supervisor;

/// What a run was meant to be: everything a verdict about it needs.
#[derive(Clone, Debug)]
pub struct Charge {
    /// Outputs of the fault-free run, in which nobody changes the file.
    pub expected: Vec<(usize, u64)>,
    /// Who is hit, if anybody was yet.
    pub victim: Option<usize>,
    /// By what.
    pub fault: Option<Fault>,
    /// Whether that happened in the midst of a vote.
    pub in_vote: bool,
}

impl Charge {
    /// No fault so far.
    #[must_use]
    pub fn new(program: &[Op]) -> Self {
        Self {
            expected: expected_outputs(program, &[]),
            victim: None,
            fault: None,
            in_vote: false,
        }
    }

    /// The outputs of a fault-free run that reads what was read.
    fn expected(&self, group: &Group) -> Cow<'_, [(usize, u64)]> {
        match group.world.pieces.as_slice() {
            [] => Cow::Borrowed(&self.expected),
            pieces => Cow::Owned(expected_outputs(&group.program, pieces)),
        }
    }

    /// The fault has struck.
    pub fn strike(&mut self, group: &Group, victim: usize, fault: Fault) {
        if fault == Fault::Rewrite {
            return;
        }
        let voting = |process: &Process| process.call.as_ref().is_some_and(Call::in_vote);
        self.victim = Some(victim);
        self.fault = Some(fault);
        self.in_vote = group.processes.iter().any(voting);
    }

    fn healthy<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = usize> + 'a {
        (0..group.processes.len())
            .filter(|&index| Some(index) != self.victim && group.processes[index].born)
    }
}

/// Holds after every step.
///
/// # Errors
/// Says what is wrong.
pub fn always(group: &Group, charge: &Charge) -> Result<(), String> {
    outputs_are_a_prefix(group, charge)?;
    deferred_effects_were_asked_for(group)?;
    memberships_agree(group, charge)?;
    the_end_is_justified(group, charge)?;
    the_late_do_not_differ(group, charge)?;
    let garbled = charge.fault.is_some_and(Fault::garbles);
    for index in charge.healthy(group) {
        let process = &group.processes[index];
        if process.finished(group.program.len()) {
            // It left after the last comparison; whoever still votes there finds it absent.
            continue;
        }
        if process.node.is_newcomer() {
            // It has no vote yet and may give up at any time.
            continue;
        }
        // One that has stopped for good is excluded rightly.
        let stopped = matches!(process.halt(), Some(Halt::FailStop(_)));
        let excluded = group.world.excluded.contains(process.node.id()) && !stopped;
        let convicted = process.halt() == Some(Halt::Convicted);
        if (convicted || excluded) && !garbled {
            return Err(format!("healthy R{index} is convicted"));
        }
        let stopped = process.halt().is_some();
        if charge.fault.is_none() && stopped {
            return Err(format!(
                "R{index} stops in a fault-free run: {:?}",
                process.halt()
            ));
        }
    }
    Ok(())
}

/// Outputs are those of the fault-free run, in order, once each; a repeatable one may come again at
/// once.
fn outputs_are_a_prefix(group: &Group, charge: &Charge) -> Result<(), String> {
    let expected = charge.expected(group);
    let mut expected = expected.iter();
    let mut last = None;
    for output in &group.world.outputs {
        let repeatable = matches!(group.program[output.0], Op::Output { repeatable: true });
        if repeatable && last == Some(output) {
            continue;
        }
        match expected.next() {
            Some(right) if right == output => last = Some(right),
            right => return Err(format!("output {output:?} where {right:?} belongs")),
        }
    }
    inputs_are_read_once(group)
}

/// What went out later was asked for, alike, by all that had a say.
fn deferred_effects_were_asked_for(group: &Group) -> Result<(), String> {
    let deferred = |output: &&(usize, u64)| group.program[output.0] == Op::Deferred;
    for output in group.world.outputs.iter().filter(deferred) {
        let heard = |process: &&Process| {
            let excluded = group.world.excluded.contains(process.node.id());
            process.born && !excluded && !process.node.is_newcomer()
        };
        for process in group.processes.iter().filter(heard) {
            let mut asked = process.deferred.asked.iter();
            if !asked.any(|effect| effect.output() == *output) {
                let id = process.node.id();
                return Err(format!("output {output:?} which {id:?} never asked for"));
            }
        }
    }
    Ok(())
}

/// An operation is only read again, by a new primary, if all that was read from there on may be.
fn inputs_are_read_once(group: &Group) -> Result<(), String> {
    let inputs = &group.world.inputs;
    let repeatable = |at: &usize| matches!(group.program[*at], Op::Input { repeatable: true });
    let right = inputs.iter().enumerate().all(|(index, input)| {
        inputs[..index]
            .iter()
            .filter(|&earlier| earlier >= input)
            .all(repeatable)
    });
    if right {
        Ok(())
    } else {
        Err(format!("inputs {inputs:?}"))
    }
}

/// Nobody ends all while healthy replicas go on that are a majority of the members; but who halts
/// in the midst of the vote that admits cannot know with whom the others will go on.
fn the_end_is_justified(group: &Group, charge: &Charge) -> Result<(), String> {
    if charge.in_vote && group.world.supervisor != Supervisor::Content {
        return Ok(());
    }
    let goes_on = |&index: &usize| {
        let process = &group.processes[index];
        process.alive && process.halt().is_none() && !process.node.is_newcomer()
    };
    let going: Vec<usize> = charge.healthy(group).filter(goes_on).collect();
    let members = |index: &usize| group.processes[*index].node.members().len();
    let most = going.len() > 1 && going.iter().all(|index| going.len() * 2 > members(index));
    if group.world.ended && most {
        return Err(format!("all is ended although {going:?} go on"));
    }
    Ok(())
}

/// A replica that is only late may be missed, but nobody finds that it differs.
fn the_late_do_not_differ(group: &Group, charge: &Charge) -> Result<(), String> {
    let (Some(Fault::Slow), Some(victim)) = (charge.fault, charge.victim) else {
        return Ok(());
    };
    for index in charge.healthy(group) {
        let halt = group.processes[index].halt();
        if halt == Some(Halt::FailStop(Cause::Mismatch)) {
            return Err(format!(
                "R{index} takes a late replica for one that differs"
            ));
        }
        for word in snapshot::BALLOTS {
            let [faulty, absent, ..] = group.shared[index].snapshot[word].to_le_bytes();
            if faulty & !absent & 1 << victim != 0 {
                return Err(format!(
                    "R{index} finds that R{victim} differs, which is late"
                ));
            }
        }
    }
    Ok(())
}

/// Healthy replicas of one epoch have the same members and the same primary.
fn memberships_agree(group: &Group, charge: &Charge) -> Result<(), String> {
    let mut seen: Vec<(u64, ReplicaSet, usize)> = Vec::new();
    for index in charge.healthy(group) {
        let node = &group.processes[index].node;
        let fact = (node.epoch(), node.members(), node.primary().index());
        if seen.iter().any(|&(epoch, members, primary)| {
            epoch == fact.0 && (members, primary) != (fact.1, fact.2)
        }) {
            return Err(format!("memberships differ in epoch {}", fact.0));
        }
        seen.push(fact);
    }
    Ok(())
}

/// Holds when nobody can step any more.
///
/// # Errors
/// Says what is wrong.
pub fn finally(group: &Group, charge: &Charge) -> Result<(), String> {
    let end = End::of(group, charge);
    if end.stopped && !group.world.ended {
        return Err("nobody ends what has stopped".into());
    }
    let verdict = match (end.started, charge.fault) {
        (_, None) => end.masked,
        // A copy that was not taken in yet, or the third of three.
        (2, Some(fault)) if end.newcomer_hit => end.masked || fault.garbles() && end.stopped,
        (2, Some(fault)) if fault.must_show() && !end.reduced => end.stopped,
        (2, Some(_)) => end.stopped || end.masked,
        // Damage in the midst of a vote may divide its readers; one that is late or halts there
        // cannot be told from one that is about to confirm.
        (_, Some(fault)) if charge.in_vote && fault.garbles() => {
            end.masked || end.stopped || end.fallen
        }
        (_, Some(Fault::Slow | Fault::Misstep(_))) if charge.in_vote => end.masked || end.stopped,
        // A wrong value in the midst of the vote that admits may stop the group, but no death does.
        (_, Some(fault)) if end.reduced && charge.in_vote && fault != Fault::Die => {
            end.masked || end.stopped
        }
        (_, Some(fault)) => end.masked || end.lost || fault.garbles() && end.split,
    };
    if verdict {
        return Ok(());
    }
    let halts = group.processes.iter().map(Process::halt);
    let halts: Vec<_> = halts.collect();
    Err(format!("ends in {halts:?}, complete: {}", end.complete))
}

/// How a run came to its end.
struct End {
    /// Members at the start.
    started: usize,
    /// One was missing then.
    reduced: bool,
    /// The fault has struck the one that was to be taken in.
    newcomer_hit: bool,
    complete: bool,
    masked: bool,
    stopped: bool,
    lost: bool,
    /// Nobody healthy goes on.
    fallen: bool,
    split: bool,
}

impl End {
    fn of(group: &Group, charge: &Charge) -> Self {
        let len = group.program.len();
        // Who was not taken in has given up, or goes on unheard.
        let members = || {
            let healthy = charge.healthy(group).map(|index| &group.processes[index]);
            healthy.filter(|process| !process.node.is_newcomer())
        };
        let all = |test: fn(Option<Halt>) -> bool| members().all(|process| test(process.halt()));
        let complete = group.world.outputs.last() == charge.expected(group).last();
        // A primary that died with its record published had no effect to lose.
        let settled = charge.fault == Some(Fault::Die)
            && charge
                .victim
                .is_some_and(|victim| group.processes[victim].stage == Stage::Settle);
        // Damage to what a replica says can leave its readers on different sides of it: then those
        // in the right may be outvoted, and with an even number there may be no majority. Wrong
        // effects there are never.
        let fallen = all(|halt| {
            matches!(
                halt,
                Some(Halt::LostEffect | Halt::Convicted | Halt::FailStop(_))
            )
        });
        // A record that some have taken cannot be vouched for to those who find it damaged, nor
        // can these ever take it: it is in no other ring.
        let even = members().all(|process| process.node.members().len().is_multiple_of(2));
        let reduced = group.world.supervisor != Supervisor::Content;
        Self {
            started: group.processes.len() - usize::from(reduced),
            reduced,
            newcomer_hit: charge
                .victim
                .is_some_and(|victim| Some(victim) == group.lost),
            complete,
            masked: complete && members().any(|process| process.finished(len)),
            stopped: all(|halt| matches!(halt, Some(Halt::FailStop(_) | Halt::LostEffect))),
            lost: all(|halt| halt == Some(Halt::LostEffect)) && !settled,
            fallen,
            split: fallen && (even || all(|halt| !matches!(halt, Some(Halt::FailStop(_))))),
        }
    }
}

//! Checkers: what must hold after every step, and at the end.

use rcoe_core::{Halt, ReplicaSet};

use crate::fault::Fault;
use crate::group::Group;
use crate::process::Stage;
use crate::program::{Op, expected_outputs};

/// What a run was meant to be: everything a verdict about it needs.
#[derive(Clone, Debug)]
pub struct Charge {
    /// Outputs of the fault-free run.
    pub expected: Vec<(usize, u64)>,
    /// Who is hit, if anybody was yet.
    pub victim: Option<usize>,
    /// By what.
    pub fault: Option<Fault>,
}

impl Charge {
    /// No fault so far.
    #[must_use]
    pub fn new(program: &[Op]) -> Self {
        Self {
            expected: expected_outputs(program),
            victim: None,
            fault: None,
        }
    }

    fn healthy<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = usize> + 'a {
        (0..group.processes.len()).filter(|&index| Some(index) != self.victim)
    }
}

/// Holds after every step.
///
/// # Errors
/// Says what is wrong.
pub fn always(group: &Group, charge: &Charge) -> Result<(), String> {
    outputs_are_a_prefix(group, charge)?;
    memberships_agree(group, charge)?;
    let garbled = charge.fault.is_some_and(Fault::garbles);
    for index in charge.healthy(group) {
        let process = &group.processes[index];
        if process.finished(group.program.len()) {
            // It left after the last comparison; whoever still votes there finds it absent.
            continue;
        }
        let convicted = process.halt() == Some(Halt::Convicted);
        if (convicted || group.world.excluded.contains(process.node.id())) && !garbled {
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
    let mut expected = charge.expected.iter();
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
    let len = group.program.len();
    let complete = group.world.outputs.last() == charge.expected.last();
    let finished = |index: usize| group.processes[index].finished(len);
    let masked = complete && charge.healthy(group).any(finished);
    let halt = |index: usize| group.processes[index].halt();
    let lost = charge
        .healthy(group)
        .all(|index| halt(index) == Some(Halt::LostEffect));
    // A primary that died with its record published had no effect to lose.
    let settled = charge.fault == Some(Fault::Die)
        && charge
            .victim
            .is_some_and(|victim| group.processes[victim].stage == Stage::Settle);
    let lost = lost && !settled;
    // Damage to what a replica says can leave its readers on different sides of it: then those in
    // the right may be outvoted, and with an even number there may be no majority. Wrong effects
    // there are never.
    let even = group.processes.len().is_multiple_of(2);
    let split = charge.healthy(group).all(|index| match halt(index) {
        Some(Halt::LostEffect | Halt::Convicted) => true,
        Some(Halt::FailStop(_)) => even,
        None => false,
    });
    let stopped = charge.healthy(group).all(|index| {
        matches!(
            group.processes[index].halt(),
            Some(Halt::FailStop(_) | Halt::LostEffect)
        )
    });
    let halts: Vec<_> = group
        .processes
        .iter()
        .map(|process| process.halt())
        .collect();
    let verdict = match (group.processes.len(), charge.fault) {
        (_, None) => masked,
        (2, Some(fault)) if fault.must_show() => stopped,
        (2, Some(Fault::Die)) => stopped || masked,
        (2, Some(_)) => stopped || masked,
        (_, Some(fault)) => masked || lost || fault.garbles() && split,
    };
    if verdict {
        Ok(())
    } else {
        Err(format!("ends in {halts:?}, complete: {complete}"))
    }
}

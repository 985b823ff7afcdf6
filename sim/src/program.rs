//! The replicated program: a straight line of operations over one accumulator.

use rcoe_core::mix;

use crate::reading::content;
use crate::rng::Rng;

/// One operation of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Changes the accumulator; one event.
    Compute(u64),
    /// Reads from the world: the primary does it, the followers get the record.
    Input {
        /// Whether a new primary may read again.
        repeatable: bool,
    },
    /// Waits for the world, which answers once it has all outputs before: a rendezvous comes first
    /// if any was deferred. Not repeatable.
    Reply,
    /// The same without a rendezvous, unless the group masks faults or the primary tells, with the
    /// record of the answer, that something deferred is not out yet.
    Look,
    /// Rendezvous over the accumulator, then the primary writes it to the world.
    Output {
        /// Whether a new primary may write again.
        repeatable: bool,
    },
    /// Writes the accumulator to the world, deferred: see [`crate::deferred`]. In groups of two
    /// only.
    Deferred,
    /// Reads a piece of a file: each replica does, or gets it from the primary. See
    /// [`crate::reading`].
    Read,
    /// Rendezvous over the accumulator.
    Compare,
    /// Handles actions.
    Act,
    /// Asks the supervisor for orders: the primary does and publishes the answer. To copy a member
    /// and to admit the copy are such orders.
    Orders,
    /// Folds the data at rest into the accumulator.
    Recall,
    /// Votes without a cause. Not in random programs: a fault in the midst of a vote may stop the
    /// group.
    Alarm,
}

/// The program's data that it does not look at before [`Op::Recall`].
pub const AT_REST: u64 = 0x5151;

/// What the world answers to operation `at`.
#[must_use]
pub fn answer(at: usize) -> u64 {
    mix(at as u64 + 1)
}

/// The accumulator after an answer.
#[must_use]
pub fn absorb(accumulator: u64, value: u64) -> u64 {
    mix(accumulator.rotate_left(1) ^ value)
}

/// The outside effects of a fault-free run: operation and value of each output. `pieces`: what was
/// read of the file.
#[must_use]
pub fn expected_outputs(program: &[Op], pieces: &[(usize, u64)]) -> Vec<(usize, u64)> {
    let piece = |at| {
        let read = pieces.iter().rfind(|(place, _)| *place == at);
        read.map_or_else(|| content(at, 0), |(_, piece)| *piece)
    };
    let mut accumulator = 0;
    let mut outputs = Vec::new();
    for (at, &op) in program.iter().enumerate() {
        match op {
            Op::Compute(value) => accumulator = absorb(accumulator, value),
            Op::Input { .. } | Op::Reply | Op::Look => {
                accumulator = absorb(accumulator, answer(at));
            }
            Op::Output { .. } | Op::Deferred => {
                outputs.push((at, accumulator));
                accumulator = absorb(accumulator, answer(at));
            }
            Op::Read => accumulator = absorb(accumulator, piece(at)),
            Op::Recall => accumulator = absorb(accumulator, AT_REST),
            Op::Compare | Op::Act | Op::Alarm | Op::Orders => {}
        }
    }
    outputs
}

/// A random program of `len` operations, which ends in a comparison so that no fault can hide
/// behind its end.
#[must_use]
pub fn random(rng: &mut Rng, len: usize) -> Vec<Op> {
    let mut program: Vec<Op> = (0..len)
        .map(|_| match rng.below(10) {
            0 | 1 => Op::Compute(rng.draw()),
            2..=4 => Op::Input {
                repeatable: rng.below(2) == 0,
            },
            5..=7 => Op::Output {
                repeatable: rng.below(4) == 0,
            },
            8 => Op::Compare,
            _ => Op::Act,
        })
        .collect();
    program.push(Op::Compare);
    program
}

/// A random program with deferred effects, many of them in a row at times.
#[must_use]
pub fn random_deferring(rng: &mut Rng, len: usize) -> Vec<Op> {
    let mut program = random(rng, len);
    for _ in 0..1 + rng.index(len) {
        let op = if rng.one_in(5) {
            Op::Reply
        } else {
            Op::Deferred
        };
        program.insert(rng.index(program.len()), op);
    }
    if rng.one_in(8) {
        let at = rng.index(program.len());
        let many = 1 + rng.index(160);
        program.splice(at..at, std::iter::repeat_n(Op::Deferred, many));
    }
    if program.len().is_multiple_of(3) {
        let replies = program.iter_mut().filter(|op| **op == Op::Reply);
        replies.for_each(|op| *op = Op::Look);
    }
    program
}

/// A random program that reads from the file, mostly several times in a row.
#[must_use]
pub fn random_reading(rng: &mut Rng, len: usize) -> Vec<Op> {
    let mut program = random(rng, len);
    for _ in 0..1 + rng.index(3) {
        let at = rng.index(program.len());
        let many = 2 + rng.index(5);
        program.splice(at..at, std::iter::repeat_n(Op::Read, many));
    }
    program
}

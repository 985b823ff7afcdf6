//! Exhaustive exploration: all interleavings of a short program, with one fault at any step.
//!
//! A state is a whole [`Group`]; its successors are one step of each process, each fault on each
//! victim as long as none has struck, the awakening of a stopped replica, and the clock running out
//! on a replica that is gone or stopped. Every state is checked once. Visited states are remembered
//! by 128-bit fingerprints.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rcoe_core::{Guards, ReplicaId, snapshot};

use crate::check::{self, Charge};
use crate::fault::Fault;
use crate::group::{Arena, Group};
use crate::process::{Outcome, Stage};
use crate::program::Op;

/// What to explore.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// Number of replicas.
    pub n: usize,
    /// The program of each.
    pub program: &'a [Op],
    /// Faults, of which one may strike once.
    pub faults: &'a [Fault],
    /// Whom it may strike.
    pub victims: &'a [usize],
    /// Who was lost before the start, and of whom a copy is to replace it.
    pub reduced: Option<(usize, usize)>,
    /// Actions that the primary may trigger, at any time.
    pub triggers: u8,
    /// Effects that may be deferred between two rendezvous, at most [`rcoe_core::POSTS`].
    pub room: usize,
    /// Whether members come to actions whatever they compute.
    pub punctual: bool,
    /// Checks in force.
    pub guards: Guards,
    /// States after which to give up.
    pub limit: usize,
    /// Remember how each state was reached, for the report of a flaw; costs memory.
    pub paths: bool,
}

/// Result of a complete exploration.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// Different ends of runs.
    pub ends: usize,
    /// Those of them in which a newcomer was taken in.
    pub admitted: usize,
}

/// A state in which a checker found something.
#[derive(Clone, Debug)]
pub struct Flaw {
    /// What is wrong.
    pub what: String,
    /// Who was hit by what.
    pub fault: Option<(usize, Fault)>,
    /// States explored before.
    pub states: usize,
    /// How it came to that: which replica moved, and what it then did.
    pub path: Vec<String>,
}

/// The way to a state, last move first.
struct Trail {
    index: usize,
    call: String,
    before: Option<Rc<Self>>,
}

struct Explorer<'a> {
    scope: &'a Scope<'a>,
    arena: Arena,
    seen: HashSet<u128>,
    todo: Vec<(Group, Charge)>,
    /// For each entry of `todo`, how it was reached; only if paths are wanted.
    trails: Vec<Option<Rc<Trail>>>,
    here: Option<Rc<Trail>>,
    counts: Explored,
}

/// Explores all of `scope`.
///
/// # Errors
/// The first flaw found, or that there are more states than the limit.
pub fn explore(scope: &Scope<'_>) -> Result<Explored, Flaw> {
    let id = |index| ReplicaId::new(u8::try_from(index).expect("below eight"));
    let mut group = match scope.reduced {
        None => Group::new(scope.n, scope.program, scope.guards),
        Some((lost, donor)) => {
            Group::reduced(scope.n, id(lost), id(donor), scope.program, scope.guards)
        }
    };
    group.triggers = scope.triggers;
    for process in &mut group.processes {
        process.node.set_punctual(scope.punctual);
        process.deferred.room = scope.room;
    }
    let mut explorer = Explorer {
        scope,
        arena: Arena::new(),
        seen: HashSet::new(),
        todo: Vec::new(),
        trails: Vec::new(),
        here: None,
        counts: Explored {
            states: 0,
            steps: 0,
            ends: 0,
            admitted: 0,
        },
    };
    let charge = Charge::new(scope.program);
    explorer.visit(group, charge, 0)?;
    while let Some((group, charge)) = explorer.todo.pop() {
        explorer.here = explorer.trails.pop().flatten();
        explorer.expand(&group, &charge)?;
    }
    Ok(explorer.counts)
}

impl Explorer<'_> {
    fn flaw(&self, what: String, charge: &Charge) -> Flaw {
        let mut path = Vec::new();
        let mut trail = self.here.as_ref();
        while let Some(step) = trail {
            path.push(format!("R{} {}", step.index, step.call));
            trail = step.before.as_ref();
        }
        path.reverse();
        let fault = charge.victim.zip(charge.fault);
        Flaw {
            what,
            fault,
            states: self.counts.states,
            path,
        }
    }

    fn trail(&self, group: &Group, index: usize) -> Option<Rc<Trail>> {
        self.scope.paths.then(|| {
            let process = &group.processes[index];
            let call = process
                .call
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            let (at, stage, slow, halt) = (process.at, process.stage, process.slow, process.halt());
            let call = format!("at {at} {stage:?} slow {slow} {halt:?} {call}");
            Rc::new(Trail {
                index,
                call,
                before: self.here.clone(),
            })
        })
    }

    /// Checks a state and remembers to expand it, unless it is known.
    fn visit(&mut self, mut group: Group, charge: Charge, index: usize) -> Result<bool, Flaw> {
        for shared in &mut group.shared {
            // Bells only wake; nobody sleeps here.
            shared.snapshot[snapshot::DOORBELL] = 0;
        }
        self.counts.steps += 1;
        if !self.seen.insert(fingerprint(&(
            &group,
            charge.victim,
            charge.fault,
            charge.in_vote,
        ))) {
            return Ok(false);
        }
        self.counts.states += 1;
        check::always(&group, &charge).map_err(|what| self.flaw(what, &charge))?;
        if self.counts.states > self.scope.limit {
            return Err(self.flaw("more states than the limit".into(), &charge));
        }
        self.trails.push(self.trail(&group, index));
        self.todo.push((group, charge));
        Ok(true)
    }

    fn expand(&mut self, group: &Group, charge: &Charge) -> Result<(), Flaw> {
        if charge.fault.is_none() {
            self.strike(group, charge)?;
        }
        if group.is_verifiable() {
            let mut next = group.clone();
            next.verify();
            self.visit(next, charge.clone(), 0)?;
        }
        let mut stuck = true;
        for index in 0..self.scope.n {
            stuck &= !self.advance(group, charge, index)?;
        }
        if !stuck {
            return Ok(());
        }
        if (0..self.scope.n).any(|index| group.runs(index)) {
            return self.expire(group, charge);
        }
        self.counts.ends += 1;
        let taken_in = |index: usize| !group.processes[index].node.is_newcomer();
        let process = group.lost.filter(|&index| group.processes[index].born);
        self.counts.admitted += usize::from(process.is_some_and(taken_in));
        check::finally(group, charge).map_err(|what| self.flaw(what, charge))
    }

    /// Nobody gets on. Damaged words may leave replicas waiting for what has happened; then clocks
    /// run out.
    fn expire(&mut self, group: &Group, charge: &Charge) -> Result<(), Flaw> {
        if !charge.fault.is_some_and(Fault::garbles) {
            return Err(self.flaw("deadlock".into(), charge));
        }
        for index in 0..self.scope.n {
            let mut next = group.clone();
            if let Outcome::Waiting(what) = next.step(&mut self.arena, index) {
                next.miss(index, what.peer);
                self.visit(next, charge.clone(), index)?;
            }
        }
        Ok(())
    }

    /// Every fault on every victim.
    fn strike(&mut self, group: &Group, charge: &Charge) -> Result<(), Flaw> {
        for &victim in self.scope.victims {
            for &fault in self.scope.faults {
                let mut next = group.clone();
                if fault.strike(&mut next, victim) {
                    let mut charge = charge.clone();
                    charge.strike(group, victim, fault);
                    self.visit(next, charge, victim)?;
                }
            }
        }
        Ok(())
    }

    /// All that can happen to one process; says whether anything can.
    fn advance(&mut self, group: &Group, charge: &Charge, index: usize) -> Result<bool, Flaw> {
        if !group.runs(index) {
            return Ok(false);
        }
        let mut next = group.clone();
        if group.processes[index].slow {
            next.processes[index].slow = false;
            self.visit(next, charge.clone(), index)?;
            return Ok(true);
        }
        if group.triggers > 0 && group.processes[index].node.is_primary() {
            let mut next = group.clone();
            next.trigger(&mut self.arena, index);
            self.visit(next, charge.clone(), index)?;
        }
        let released = self.release(group, charge, index)?;
        let outcome = next.step(&mut self.arena, index);
        self.run_on(&mut next, index);
        let Outcome::Waiting(what) = outcome else {
            self.visit(next, charge.clone(), index)?;
            return Ok(true);
        };
        let told = next.shared[index] != group.shared[index];
        if told {
            self.visit(next.clone(), charge.clone(), index)?;
        }
        let peer = what.peer.index();
        if group.runs(peer) && !group.processes[peer].slow {
            return Ok(told || released);
        }
        next.miss(index, what.peer);
        self.visit(next, charge.clone(), index)?;
        Ok(true)
    }

    /// A deferred effect goes out at a moment of the primary's own; says whether one can.
    fn release(&mut self, group: &Group, charge: &Charge, index: usize) -> Result<bool, Flaw> {
        if group.processes[index].deferred.is_out() {
            return Ok(false);
        }
        let mut next = group.clone();
        let released = next.release(&mut self.arena, index);
        if released {
            self.visit(next, charge.clone(), index)?;
        }
        Ok(released)
    }

    /// Takes along the steps that touch nothing shared: no interleaving of them matters.
    fn run_on(&mut self, group: &mut Group, index: usize) {
        while group.runs(index) {
            let process = &group.processes[index];
            if process.call.is_some() || process.stage != Stage::Start {
                return;
            }
            group.step(&mut self.arena, index);
        }
    }
}

pub(crate) fn fingerprint(state: &impl Hash) -> u128 {
    let mut hasher = Fingerprint {
        low: 0x1234_5678_9abc_def1,
        high: 0xfeed_beef_1020_3041,
    };
    state.hash(&mut hasher);
    u128::from(hasher.finish()) << 64 | u128::from(hasher.low)
}

/// Two multiply-and-rotate lanes.
struct Fingerprint {
    low: u64,
    high: u64,
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.high ^ (self.high >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        // Most of a state are whole words, which make most of the work.
        let (words, rest) = bytes.as_chunks();
        for &word in words {
            self.write_u64(u64::from_le_bytes(word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.low = (self.low ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31);
        self.high = (self.high.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.high ^= self.high >> 32;
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte) + 0x100);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
}

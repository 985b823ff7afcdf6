//! All schedules of one attempt to agree, with one fault at any step.
//!
//! A state is a whole [`Group`]; its successors are one move of each replica, each fault on each
//! victim as long as none has struck, the awakening of one that is stopped, and the clock running
//! out on one that is gone or stopped. Replicas start at places of their own in the program, and
//! may each go on by some instructions before they begin.

use std::collections::HashSet;
use std::hash::Hash;

use rcoe_core::Guards;
use rcoe_core::coupling::{Backend, Pace};

use super::check::Charge;
use super::fault::Fault;
use super::group::{Arena, Group, Moved};
use super::vm::{Ins, Meter, Replica};
use crate::model::fingerprint;

/// What to explore.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// What all run.
    pub program: &'a [Ins],
    /// How many instructions and calls each has behind it; as many replicas as places.
    pub places: &'a [usize],
    /// Instructions that each may go on by before it begins.
    pub moves: usize,
    /// What an instruction costs each in CPU time.
    pub rates: &'a [u64],
    /// A counter of branches for each, or none.
    pub meters: &'a [Meter],
    /// What all may run, and how many phases they take.
    pub pace: Pace,
    /// Faults, of which one may strike once.
    pub faults: &'a [Fault],
    /// Whom it may strike.
    pub victims: &'a [usize],
    /// The last phase that may be needed if nobody is to notice anything.
    pub phases: u8,
    /// Guards in force.
    pub guards: Guards,
    /// States after which to give up.
    pub limit: usize,
}

/// Result of a complete exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Different ends.
    pub ends: usize,
    /// Replicas that acted on a point, in all ends together.
    pub acted: usize,
    /// The last phase in which anybody did.
    pub phases: u8,
}

/// Something that does not hold.
#[derive(Clone, Debug)]
pub struct Flaw {
    /// What.
    pub what: String,
    /// Who was hit by what.
    pub struck: Option<(usize, Fault)>,
    /// States explored before.
    pub states: usize,
}

#[derive(Clone)]
struct State<T> {
    group: Group<T>,
    charge: Charge,
    moves: Vec<usize>,
}

struct Explorer<'a, T> {
    scope: &'a Scope<'a>,
    arena: Arena,
    seen: HashSet<u128>,
    todo: Vec<State<T>>,
    counts: Explored,
}

/// Explores all of `scope`.
///
/// # Errors
/// The first flaw found, or that there are more states than the limit.
pub fn explore<T: Backend + Hash>(scope: &Scope<'_>) -> Result<Explored, Flaw> {
    let n = scope.places.len();
    let program = scope.program.into();
    let mut group = Group::<T>::new(n, &program, scope.guards);
    for (index, process) in group.processes.iter_mut().enumerate() {
        process.replica.rate = scope.rates[index];
        process.replica.meter = scope.meters.get(index).copied();
        // As if all had agreed on a point at the start.
        process.replica.since = 1;
        process.coupler.set_pace(scope.pace);
        for _ in 0..scope.places[index] {
            match process.replica.at_call() {
                true => process.replica.call(),
                false => process.replica.step(),
            }
        }
    }
    let mut explorer = Explorer {
        scope,
        arena: Arena::new(n),
        seen: HashSet::new(),
        todo: Vec::new(),
        counts: Explored::default(),
    };
    explorer.visit(State {
        group,
        charge: Charge::new(Replica::new(&program, T::EXACT)),
        moves: vec![scope.moves; n],
    })?;
    while let Some(state) = explorer.todo.pop() {
        explorer.expand(&state)?;
    }
    Ok(explorer.counts)
}

impl<T: Backend + Hash> Explorer<'_, T> {
    fn flaw(&self, what: String, charge: &Charge) -> Flaw {
        Flaw {
            what,
            struck: charge.struck,
            states: self.counts.states,
        }
    }

    /// Remembers to expand a state, unless it is known.
    fn visit(&mut self, state: State<T>) -> Result<(), Flaw> {
        let key = (&state.group, state.charge.struck, &state.moves);
        if !self.seen.insert(fingerprint(&key)) {
            return Ok(());
        }
        self.counts.states += 1;
        let held = state.charge.always(&state.group);
        held.map_err(|what| self.flaw(what, &state.charge))?;
        if self.counts.states > self.scope.limit {
            return Err(self.flaw("more states than the limit".into(), &state.charge));
        }
        self.todo.push(state);
        Ok(())
    }

    fn expand(&mut self, state: &State<T>) -> Result<(), Flaw> {
        if state.charge.struck.is_none() {
            self.strike(state)?;
        }
        let mut stuck = true;
        for index in 0..state.group.processes.len() {
            stuck &= !self.advance(state, index)?;
        }
        if stuck { self.end(state) } else { Ok(()) }
    }

    /// Every fault on every victim.
    fn strike(&mut self, state: &State<T>) -> Result<(), Flaw> {
        for &victim in self.scope.victims {
            for &fault in self.scope.faults {
                let mut next = state.clone();
                if fault.strike(&mut next.group, victim) {
                    let stamp = state.group.processes[victim].coupler.stamp();
                    next.charge.struck = Some((victim, fault));
                    next.charge.generation = stamp.generation;
                    self.visit(next)?;
                }
            }
        }
        Ok(())
    }

    /// All that can happen to one replica; says whether anything can.
    fn advance(&mut self, state: &State<T>, index: usize) -> Result<bool, Flaw> {
        let process = &state.group.processes[index];
        if !state.group.runs(index) || process.coupler.is_idle() && process.acted.is_some() {
            return Ok(false);
        }
        let mut next = state.clone();
        if process.slow {
            next.group.processes[index].slow = false;
            self.visit(next)?;
            return Ok(true);
        }
        if process.coupler.is_idle() {
            self.wander(state, index)?;
            return Ok(true);
        }
        let phase = process.coupler.stamp().phase;
        match next.group.advance(&mut self.arena, index, CHUNK) {
            Moved::Waits(peer) => {
                let runs = state.group.runs(peer.index());
                if runs && !state.group.processes[peer.index()].slow {
                    return Ok(false);
                }
                next.group.processes[index].coupler.overdue(peer);
            }
            Moved::Acted => self.acted(&mut next, index, phase)?,
            Moved::Removed(gone) => {
                let right = next.charge.removed(index, gone);
                right.map_err(|what| self.flaw(what, &state.charge))?;
            }
            Moved::On | Moved::Rests => {}
        }
        self.visit(next)?;
        Ok(true)
    }

    fn acted(&mut self, next: &mut State<T>, index: usize, phase: u8) -> Result<(), Flaw> {
        let acted = next.group.processes[index].acted.clone();
        let right = next.charge.acted(index, &acted.expect("it has just acted"));
        right.map_err(|what| self.flaw(what, &next.charge))?;
        self.counts.phases = self.counts.phases.max(phase);
        let masked = next
            .charge
            .struck
            .is_none_or(|(_, fault)| fault.is_masked());
        if masked && phase > self.scope.phases {
            return Err(self.flaw(format!("phase {phase} was needed"), &next.charge));
        }
        Ok(())
    }

    /// Before it begins: goes on with the program, or begins.
    fn wander(&mut self, state: &State<T>, index: usize) -> Result<(), Flaw> {
        let mut next = state.clone();
        next.group.processes[index].coupler.begin();
        self.visit(next)?;
        if state.moves[index] > 0 {
            let mut next = state.clone();
            next.moves[index] -= 1;
            let replica = &mut next.group.processes[index].replica;
            match replica.at_call() {
                true => replica.call(),
                false => replica.step(),
            }
            self.visit(next)?;
        }
        Ok(())
    }

    /// Nobody gets on: all that are healthy have acted, or two have stopped.
    fn end(&mut self, state: &State<T>) -> Result<(), Flaw> {
        self.counts.ends += 1;
        for (index, process) in state.group.processes.iter().enumerate() {
            self.counts.acted += usize::from(process.acted.is_some());
            let done = process.acted.is_some() || process.end().is_some();
            if state.charge.is_healthy(index) && !done {
                return Err(self.flaw(format!("R{index} waits for ever"), &state.charge));
            }
        }
        Ok(())
    }
}

/// Instructions of a run to the target that are one move.
const CHUNK: usize = 6;

//! A whole group as a value: programs, protocol states, and boards as plain words.

use rcoe_core::coupling::{
    Backend, Board, Boards, Coupler, End, LAST_PHASE, Machine as _, Order, Pace, Point, Shape, Stop,
};
use rcoe_core::primitive::{AtomicU64, Ordering};
use rcoe_core::{Guards, MAX_REPLICAS, ReplicaId, ReplicaSet};

use super::vm::{AREAS, Ins, REGISTERS, Ran, Replica, Vm, WORDS};

/// How much a replica may run to a target.
pub const PACE: Pace = Pace {
    base: 8,
    most: 40_000,
    lag: 100_000,
    phases: LAST_PHASE,
    undecided: LAST_PHASE,
    steep: u64::MAX,
};

/// The same where a verdict is to come soon.
pub const SOON: Pace = Pace {
    base: 2,
    phases: 7,
    undecided: 8,
    steep: 10_000,
    ..PACE
};

/// The boards of a group of `n`.
#[must_use]
pub const fn shape(n: usize) -> Shape {
    Shape {
        replicas: n,
        registers: REGISTERS + 1,
        pages: AREAS,
        sheet: WORDS,
    }
}

/// A point on which a replica acted, and its state there before it did.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acted {
    /// What was agreed.
    pub point: Point,
    /// The state.
    pub vm: Vm,
    /// Pages written since the event before.
    pub dirty: u8,
}

/// One replica.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process<T> {
    /// Its program.
    pub replica: Replica,
    /// Its part in the protocol.
    pub coupler: Coupler<T>,
    /// Whether it runs at all.
    pub alive: bool,
    /// Stopped for a while.
    pub slow: bool,
    /// A run to a target that is under way: what it has cost, and whether the place counts.
    pub running: Option<(u64, bool)>,
    /// It was before the target when its run began, as its counter tells.
    pub was_before: bool,
    /// Its next run finds nothing, since the code of its stub was hit.
    pub blind: bool,
    /// The last point on which it acted.
    pub acted: Option<Acted>,
}

/// What came of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// Something has changed.
    On,
    /// Nothing: it waits for this peer.
    Waits(ReplicaId),
    /// It acted on a point.
    Acted,
    /// It found that these are to go.
    Removed(ReplicaSet),
    /// No attempt is under way, or it stopped for good.
    Rests,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group<T> {
    /// The replicas.
    pub processes: Vec<Process<T>>,
    /// What they have published.
    pub boards: Vec<Vec<u64>>,
}

impl<T: Backend> Group<T> {
    /// `n` replicas at the start of `program`.
    #[must_use]
    pub fn new(n: usize, program: &std::rc::Rc<[Ins]>, guards: Guards) -> Self {
        let process = |id: ReplicaId| Process {
            replica: Replica::new(program, T::EXACT),
            coupler: guarded(Coupler::new(id, ReplicaSet::all(n), PACE), guards),
            alive: true,
            slow: false,
            running: None,
            was_before: false,
            blind: false,
            acted: None,
        };
        Self {
            processes: ReplicaSet::all(n).iter().map(process).collect(),
            boards: vec![vec![0; shape(n).words()]; n],
        }
    }

    /// Does this one take part?
    #[must_use]
    pub fn runs(&self, index: usize) -> bool {
        let process = &self.processes[index];
        process.alive && process.coupler.end().is_none()
    }

    /// Is an attempt under way that this replica does not know of?
    pub fn is_wanted(&self, arena: &mut Arena, index: usize) -> bool {
        arena.load(&self.boards);
        let boards = arena.boards(self.boards.len());
        self.processes[index].coupler.is_wanted(&boards)
    }

    /// One step of the protocol of this replica, or up to so many instructions of its run.
    pub fn advance(&mut self, arena: &mut Arena, index: usize, steps: usize) -> Moved {
        arena.load(&self.boards);
        let boards = arena.boards(self.boards.len());
        let process = &mut self.processes[index];
        let order = process.coupler.step(&boards, &mut process.replica);
        let moved = process.obey(order, steps);
        arena.save(&mut self.boards[index], index);
        moved
    }

    /// A copy of `donor` takes the place of `lost`, while all stand at one call. It has no vote.
    pub fn copy(&mut self, lost: usize, donor: usize) {
        let id = ReplicaSet::all(MAX_REPLICAS)
            .iter()
            .nth(lost)
            .expect("a number");
        let copy = &self.processes[donor];
        let process = Process {
            coupler: copy.coupler.copy(id),
            ..copy.clone()
        };
        self.processes[lost] = process;
        self.boards[lost].fill(0);
        let voters = self.processes[donor].coupler.members();
        self.change(voters.with(id), voters);
    }

    /// The copy is a member like the others from here on; all stand at one call.
    pub fn admit(&mut self, newcomer: usize) {
        let members = self.processes[newcomer].coupler.members();
        self.change(members, members);
    }

    fn change(&mut self, members: ReplicaSet, voters: ReplicaSet) {
        for member in members {
            let process = &mut self.processes[member.index()];
            let epoch = process.coupler.stamp().epoch + 1;
            process.coupler.set_epoch(members, voters, epoch);
            process.running = None;
        }
    }
}

impl<T: Backend> Process<T> {
    fn obey(&mut self, order: Order, steps: usize) -> Moved {
        if !matches!(order, Order::Run { .. }) {
            self.stop();
        }
        match order {
            Order::Again => Moved::On,
            Order::Wait(peer) => Moved::Waits(peer),
            Order::Place => {
                self.replica.place();
                self.coupler.placed();
                Moved::On
            }
            Order::Run { budget, again } => {
                self.run(budget, again, steps);
                Moved::On
            }
            Order::Agreed(point) => {
                self.acted = Some(Acted {
                    point,
                    vm: self.replica.vm.clone(),
                    dirty: self.replica.dirty,
                });
                self.replica.act(point.generation);
                Moved::Acted
            }
            Order::Removed(gone) => Moved::Removed(gone),
            Order::Halted(_) | Order::Idle => Moved::Rests,
        }
    }

    fn run(&mut self, budget: u64, again: bool, steps: usize) {
        let begun = self.running.take();
        let (stub, target) = (self.coupler.stub(), self.coupler.target());
        if begun.is_none() && !again {
            let here = self.replica.standing().counted;
            self.was_before = here.is_before(&target.counted);
        }
        let (mut spent, mut again) = begun.unwrap_or((0, again));
        let paid = (budget, &mut spent);
        let ran = self.replica.run(stub, target, paid, &mut again, steps);
        let stop = match ran {
            Ran::Matched if std::mem::take(&mut self.blind) => {
                self.running = Some((spent, true));
                return;
            }
            Ran::Matched => Stop::Matched,
            Ran::Call => Stop::Call,
            Ran::Paused if self.was_before && self.replica.is_past(target) => Stop::Passed,
            Ran::Paused if spent >= budget => Stop::Overran,
            Ran::Paused => {
                self.running = Some((spent, again));
                return;
            }
        };
        self.replica.uproot();
        self.coupler.ran(stop, spent);
    }

    /// A run that is under way ends, as there is something else to do.
    fn stop(&mut self) {
        self.running = None;
        self.replica.uproot();
    }

    /// Why it stopped, if it did.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.coupler.end()
    }
}

#[cfg(feature = "planted")]
const fn guarded<T: Backend>(mut coupler: Coupler<T>, guards: Guards) -> Coupler<T> {
    coupler.set_guards(guards);
    coupler
}

#[cfg(not(feature = "planted"))]
fn guarded<T: Backend>(coupler: Coupler<T>, _guards: Guards) -> Coupler<T> {
    coupler
}

/// Real boards, into which a state is loaded for a step.
#[derive(Debug)]
pub struct Arena {
    boards: Vec<Vec<AtomicU64>>,
}

impl Arena {
    /// Room for a group of `n`.
    #[must_use]
    pub fn new(n: usize) -> Self {
        let board = || (0..shape(n).words()).map(|_| AtomicU64::new(0)).collect();
        Self {
            boards: (0..n).map(|_| board()).collect(),
        }
    }

    fn load(&mut self, boards: &[Vec<u64>]) {
        for (cells, words) in self.boards.iter().zip(boards) {
            for (cell, &word) in cells.iter().zip(words) {
                cell.store(word, Ordering::Relaxed);
            }
        }
    }

    fn save(&self, words: &mut [u64], index: usize) {
        for (word, cell) in words.iter_mut().zip(&self.boards[index]) {
            *word = cell.load(Ordering::Relaxed);
        }
    }

    fn boards(&self, n: usize) -> Boards<'_> {
        let mut boards = [None; MAX_REPLICAS];
        for (board, cells) in boards.iter_mut().zip(&self.boards) {
            *board = Some(Board::new(cells, shape(n)));
        }
        boards
    }
}

//! All schedules of replicas that take turns by the baton ([`rcoe_core::baton`]), with one fault at
//! any step.
//!
//! A replica runs for at most one unit of time, hands the baton on by telling it and then waking
//! the next, and dozes until it is woken or it is time to look. Looking and taking are two steps,
//! between which others go on. Time passes only when nobody who is healthy has something to do. A
//! run ends after so many words.
//!
//! What must hold: no two healthy replicas have the baton; without a fault nobody is accused; with
//! one, nobody who is healthy is accused or stopped, and every replica that is left runs a program
//! now and then, one that was late, too; of two nobody is stopped; of three, no program runs while
//! one goes round for ever that has lost the baton.
//!
//! Not covered: words that are read one by one while others write them; the interrupts themselves;
//! two faults.

use std::collections::HashSet;

use rcoe_core::baton::{Baton, Next, Wait, Words};
use rcoe_core::{Guards, MAX_REPLICAS, ReplicaId, ReplicaSet};

use crate::model::fingerprint;

/// What becomes of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// It does nothing any more.
    Dies,
    /// It executes for ever, whoever's turn it is.
    Loops,
    /// It keeps the baton for longer than the others wait, and then goes on.
    Late,
    /// This bit of its word flips.
    Flip(u32),
}

/// Numbers of words that nobody comes to by turns are greater.
const DAMAGED: u64 = 1 << 20;

/// What to explore.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// How many take turns.
    pub replicas: usize,
    /// The fault, which strikes anybody at any step, once.
    pub fault: Option<Fault>,
    /// Words after which a run ends.
    pub words: u64,
    /// Guards in force.
    pub guards: Guards,
}

/// What was explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Replicas that were stopped, in all of them.
    pub stopped: usize,
}

/// What a replica is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// It has the baton, for so long.
    Runs(u8),
    /// It has told who is next, whom it has to wake.
    Wakes(ReplicaId),
    /// It waits, and looks after so long.
    Dozes(Wait, u8),
    /// It has seen that it is to take the baton.
    Takes(Wait),
    /// It is stopped, or dead.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Replica {
    baton: Baton,
    phase: Phase,
    woken: bool,
    /// Time since it ran a program.
    idle: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    words: Words,
    replicas: Vec<Replica>,
    /// Whom the fault has struck.
    victim: Option<usize>,
    /// The victim executes for ever, and could not be stopped yet.
    loops: bool,
    /// The victim keeps the baton.
    late: bool,
    /// The victim has lost the baton, as somebody found.
    lost: bool,
    flaw: Option<&'static str>,
}

/// A step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Strike(usize),
    Give(usize),
    Wake(usize),
    Look(usize),
    Take(usize),
    Time,
}

fn few(replicas: usize) -> u8 {
    u8::try_from(replicas).expect("replicas are few")
}

fn id(replica: usize) -> ReplicaId {
    ReplicaId::new(few(replica))
}

impl Scope {
    /// For how long the first of them waits: longer than a round takes.
    fn base(&self) -> u8 {
        few(self.replicas) + 1
    }

    /// For how long the last of them waits, and a little more.
    fn longest(&self) -> u8 {
        let replicas = few(self.replicas);
        self.base() * (replicas + 1) + replicas
    }

    fn start(&self) -> State {
        let ring = ReplicaSet::all(self.replicas);
        let replicas = (0..self.replicas).map(|at| {
            let baton = Baton::new(id(at), ring, self.guards);
            Replica {
                baton,
                phase: Phase::Dozes(baton.wait(self.base().into()), 0),
                woken: true,
                idle: 0,
            }
        });
        State {
            words: [0; MAX_REPLICAS],
            replicas: replicas.collect(),
            victim: None,
            loops: false,
            late: false,
            lost: false,
            flaw: None,
        }
    }
}

impl State {
    /// Does this replica do what it should?
    fn is_healthy(&self, at: usize) -> bool {
        self.victim != Some(at)
    }

    /// Does it do anything?
    fn acts(&self, at: usize, scope: &Scope) -> bool {
        let stands = matches!(scope.fault, Some(Fault::Dies | Fault::Loops));
        self.is_healthy(at) || !stands
    }

    /// The greatest number of a word that nobody damaged.
    fn newest(&self) -> u64 {
        let numbers = self.words.iter().map(|word| word >> 16 & 0xff_ffff_ffff);
        numbers.filter(|&it| it < DAMAGED).max().unwrap_or(0)
    }

    fn steps(&self, scope: &Scope) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut urgent = false;
        for (at, replica) in self.replicas.iter().enumerate() {
            if self.victim.is_none() && scope.fault.is_some_and(|it| can_strike(it, replica)) {
                steps.push(Step::Strike(at));
            }
            if !self.acts(at, scope) {
                continue;
            }
            let step = match replica.phase {
                Phase::Runs(_) => Step::Give(at),
                Phase::Wakes(_) => Step::Wake(at),
                Phase::Dozes(_, left) if replica.woken || left == 0 => Step::Look(at),
                Phase::Takes(_) => Step::Take(at),
                Phase::Dozes(..) | Phase::Gone => continue,
            };
            steps.push(step);
            let may_wait = match replica.phase {
                Phase::Runs(age) => age < longest_turn(self, at, scope),
                _ => false,
            };
            urgent |= !may_wait;
        }
        if !urgent {
            steps.push(Step::Time);
        }
        steps
    }

    fn apply(&mut self, step: Step, scope: &Scope) {
        match step {
            Step::Strike(at) => self.strike(at, scope),
            Step::Give(at) => self.give(at, scope),
            Step::Wake(at) => self.wake(at, scope),
            Step::Look(at) => self.look(at),
            Step::Take(at) => self.take(at, scope),
            Step::Time => self.pass_time(scope),
        }
    }

    fn strike(&mut self, at: usize, scope: &Scope) {
        self.victim = Some(at);
        match scope.fault {
            Some(Fault::Dies) => self.replicas[at].phase = Phase::Gone,
            Some(Fault::Loops) => self.loops = true,
            Some(Fault::Flip(bit)) => self.words[at] ^= 1 << bit,
            Some(Fault::Late) => self.late = true,
            None => {}
        }
    }

    /// Runs its program, unless somebody who is accused may run, and hands on.
    fn give(&mut self, at: usize, scope: &Scope) {
        let words = self.words;
        let late = self.late && self.victim == Some(at);
        self.late &= !late;
        let holds = self.replicas[at].baton.holds(&words);
        if late {
            return self.goes_on(at, holds, scope);
        }
        let replica = &mut self.replicas[at];
        match replica.baton.give() {
            Some(given) => {
                self.words[at] = given.word;
                self.replicas[at].phase = Phase::Wakes(given.next);
            }
            None => self.doze(at, scope),
        }
    }

    /// One that was late runs its program, if it still has the baton. From here on it is as good as
    /// any.
    fn goes_on(&mut self, at: usize, holds: bool, scope: &Scope) {
        self.replicas[at].idle = 0;
        if !holds {
            return self.doze(at, scope);
        }
        self.replicas[at].phase = Phase::Runs(0);
        let runs = |it: &Replica| matches!(it.phase, Phase::Runs(_));
        if self.replicas.iter().filter(|it| runs(it)).count() > 1 {
            self.flaw = Some("two have the baton");
        }
    }

    /// It looks before it dozes.
    fn doze(&mut self, at: usize, scope: &Scope) {
        let replica = &mut self.replicas[at];
        let wait = replica.baton.wait(scope.base().into());
        (replica.phase, replica.woken) = (Phase::Dozes(wait, 0), true);
    }

    fn wake(&mut self, at: usize, scope: &Scope) {
        if let Phase::Wakes(next) = self.replicas[at].phase {
            self.replicas[next.index()].woken = true;
        }
        self.doze(at, scope);
    }

    fn look(&mut self, at: usize) {
        let words = self.words;
        let replica = &mut self.replicas[at];
        let Phase::Dozes(mut wait, _) = replica.phase else {
            return;
        };
        replica.woken = false;
        let next = replica.baton.look(&mut wait, &words);
        self.replicas[at].phase = match next {
            Next::Doze(time) => Phase::Dozes(wait, u8::try_from(time).expect("not long")),
            Next::Speak(word) => {
                self.words[at] = word;
                Phase::Dozes(wait, 0)
            }
            Next::Take => Phase::Takes(wait),
        };
    }

    fn take(&mut self, at: usize, scope: &Scope) {
        let Phase::Takes(wait) = self.replicas[at].phase else {
            return;
        };
        let words = self.words;
        let Some(taken) = self.replicas[at].baton.take(&wait, &words) else {
            self.replicas[at].phase = Phase::Dozes(wait, 0);
            return;
        };
        if let Some(word) = taken.word {
            self.words[at] = word;
        }
        self.lost |= taken.lost;
        for stopped in taken.stop {
            self.stop(stopped.index(), scope);
        }
        self.replicas[at].phase = Phase::Runs(0);
        self.check_runner(at, scope);
    }

    fn stop(&mut self, at: usize, scope: &Scope) {
        if self.is_healthy(at) {
            self.flaw = Some("a healthy one is stopped");
        }
        if scope.replicas == 2 {
            self.flaw = Some("one of two stops the other");
        }
        self.replicas[at].phase = Phase::Gone;
        self.loops &= self.victim != Some(at);
    }

    /// This one has the baton, and runs a program if it may.
    fn check_runner(&mut self, at: usize, scope: &Scope) {
        if !self.is_healthy(at) {
            self.replicas[at].idle = 0;
            return;
        }
        let others = (0..scope.replicas).filter(|&it| it != at && self.is_healthy(it));
        let others: Vec<usize> = others.collect();
        let baton = self.replicas[at].baton;
        let holds = |&it: &usize| matches!(self.replicas[it].phase, Phase::Runs(_));
        if others.iter().any(holds) {
            self.flaw = Some("two have the baton");
        } else if others.iter().any(|&it| baton.misses(id(it))) {
            self.flaw = Some("a healthy one is accused");
        } else if self.victim.is_none() && self.lost {
            self.flaw = Some("somebody is accused without a fault");
        }
        if self.replicas[at].baton.accuses() {
            return;
        }
        if self.loops && self.lost && scope.replicas > 2 {
            self.flaw = Some("a program runs while one goes round for ever");
        }
        self.replicas[at].idle = 0;
    }

    fn pass_time(&mut self, scope: &Scope) {
        for at in 0..scope.replicas {
            let acts = self.acts(at, scope);
            let replica = &mut self.replicas[at];
            match &mut replica.phase {
                Phase::Runs(age) => *age += 1,
                Phase::Dozes(wait, left) if *left > 0 => {
                    *left -= 1;
                    wait.pass(1);
                }
                _ => {}
            }
            replica.idle += 1;
            let rests = matches!(replica.phase, Phase::Gone | Phase::Runs(_));
            if acts && !rests && replica.idle > scope.longest() {
                self.flaw = Some("one does not run any more");
            }
        }
    }
}

/// May this strike a replica that is at this?
const fn can_strike(fault: Fault, replica: &Replica) -> bool {
    match fault {
        Fault::Dies | Fault::Flip(_) => true,
        // Who dozes executes nothing.
        Fault::Loops | Fault::Late => matches!(replica.phase, Phase::Runs(_)),
    }
}

/// For how long this one may have the baton.
fn longest_turn(state: &State, at: usize, scope: &Scope) -> u8 {
    let late = state.late && state.victim == Some(at);
    if late { scope.longest() } else { 1 }
}

/// Explores everything.
///
/// # Errors
/// What does not hold, with the steps that led there.
pub fn explore(scope: &Scope) -> Result<Explored, String> {
    let start = scope.start();
    let mut explored = Explored::default();
    let mut seen = HashSet::from([fingerprint(&start)]);
    // From where each was come to, and how.
    let mut ways: Vec<(usize, Step)> = vec![(0, Step::Time)];
    let mut open = vec![(start, 0)];
    while let Some((state, way)) = open.pop() {
        explored.states += 1;
        let gone = |it: &&Replica| it.phase == Phase::Gone;
        explored.stopped += state.replicas.iter().filter(gone).count();
        if state.newest() >= scope.words {
            continue;
        }
        for step in state.steps(scope) {
            let mut next = state.clone();
            next.apply(step, scope);
            if let Some(flaw) = next.flaw {
                return Err(format!("{flaw}, by {}, {step:?}", told(&ways, way)));
            }
            if seen.insert(fingerprint(&next)) {
                ways.push((way, step));
                open.push((next, ways.len() - 1));
            }
        }
    }
    Ok(explored)
}

/// The steps of a way.
fn told(ways: &[(usize, Step)], mut way: usize) -> String {
    let mut steps = Vec::new();
    while way != 0 {
        steps.push(format!("{:?}", ways[way].1));
        way = ways[way].0;
    }
    steps.reverse();
    steps.join(" ")
}

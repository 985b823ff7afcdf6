//! A whole group as a value: processes, their shared memory as plain words, and the world.
//!
//! Shared memory lives in real outboxes only while a step runs; see [`Arena`]. So a state can be
//! cloned, hashed and compared.

use rcoe_core::primitive::{AtomicU64, Ordering};
use rcoe_core::{
    Bug, Guards, MAX_REPLICAS, Node, Outbox, POSTS, Port, Ports, ReplicaId, ReplicaSet,
    SNAPSHOT_WORDS, Snapshot,
};

use crate::process::{Outcome, Process, World};
use crate::program::Op;
use crate::supervisor::Supervisor;

/// Words of each ring: two records of one word fit, so that runs meet the full ring.
pub const RING: usize = 8;

/// What somebody who was lost has left: a vote far ahead, which all confirm.
const GARBAGE: Snapshot = [0x0000_0001_0003_0000; SNAPSHOT_WORDS];

/// What a replica published, as plain words.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shared {
    /// The outbox.
    pub snapshot: Snapshot,
    /// The words posted, as far as any are: mostly none.
    pub posts: Vec<u64>,
    /// The results ring.
    pub ring: [u64; RING],
}

/// State of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// What all of them run.
    pub program: std::rc::Rc<[Op]>,
    /// Private states.
    pub processes: Vec<Process>,
    /// Published states.
    pub shared: Vec<Shared>,
    /// The surroundings.
    pub world: World,
    /// Actions that may still be triggered.
    pub triggers: u8,
    /// Checks in force.
    pub guards: Guards,
    /// The number that was lost before the start.
    pub lost: Option<usize>,
}

impl Group {
    /// A group of `n` at the start of `program`.
    #[must_use]
    pub fn new(n: usize, program: &[Op], guards: Guards) -> Self {
        let mut arena = Arena::new();
        let fresh = Shared {
            snapshot: [0; SNAPSHOT_WORDS],
            posts: Vec::new(),
            ring: [0; RING],
        };
        let mut group = Self {
            program: program.into(),
            processes: Vec::new(),
            shared: vec![fresh; n],
            world: World::default(),
            triggers: 0,
            guards,
            lost: None,
        };
        group.populate(&mut arena, ReplicaSet::all(n), guards);
        group
    }

    /// A group of `n` that has lost one, whose outbox is full of garbage, and is to get it back as
    /// a copy of `donor`.
    #[must_use]
    pub fn reduced(
        n: usize,
        lost: ReplicaId,
        donor: ReplicaId,
        program: &[Op],
        guards: Guards,
    ) -> Self {
        let mut arena = Arena::new();
        let mut group = Self::new(n, program, guards);
        let byte = |id: ReplicaId| u8::try_from(id.index()).expect("below eight");
        group.world.supervisor = Supervisor::Wants {
            newcomer: byte(lost),
            donor: byte(donor),
        };
        group.processes.clear();
        group.lost = Some(lost.index());
        group.shared[lost.index()].snapshot = GARBAGE;
        group.populate(&mut arena, ReplicaSet::all(n).without(lost), guards);
        group
    }

    /// The processes of these members; other numbers are nobody's.
    fn populate(&mut self, arena: &mut Arena, members: ReplicaSet, guards: Guards) {
        let n = self.shared.len();
        arena.load(self);
        let ports = arena.ports(n);
        let first = members.lowest().expect("a group has members");
        for id in ReplicaSet::all(n) {
            let born = members.contains(id);
            let node = Node::new(if born { id } else { first }, members, &ports);
            let mut process = Process::new(guarded(node, guards), guards);
            process.alive = born;
            process.born = born;
            process.deferred.masks = n > 2;
            self.processes.push(process);
        }
        for id in members {
            arena.save(self, id.index());
        }
    }

    /// The donor has met the others: its copy begins.
    fn copy(&mut self, arena: &mut Arena, donor: usize) {
        let mut copy = self.processes[donor].clone();
        let Some(id) = copy.node.newcomer() else {
            return;
        };
        arena.load(self);
        let ports = arena.ports(self.processes.len());
        copy.become_newcomer(&ports);
        self.processes[id.index()] = copy;
        arena.save(self, id.index());
    }

    /// Can the supervisor find that what was copied is what the others have?
    #[must_use]
    pub fn is_verifiable(&self) -> bool {
        let members = || self.processes.iter().filter(|process| process.born);
        let first = members().find_map(|process| process.frozen);
        let all = || members().all(|process| process.frozen == first);
        let unverified = self.guards.off(Bug::AdmitUnverified);
        self.world.supervisor == Supervisor::Copied && first.is_some() && (unverified || all())
    }

    /// The supervisor has compared, and is content.
    pub const fn verify(&mut self) {
        self.world.supervisor = Supervisor::Verified;
    }

    /// Lets process `index` step.
    pub fn step(&mut self, arena: &mut Arena, index: usize) -> Outcome {
        arena.load(self);
        let ports = arena.ports(self.processes.len());
        let outcome = self.processes[index].step(&self.program, &ports, &mut self.world);
        let _ = self.processes[index].node.take_wake();
        arena.save(self, index);
        for id in self.world.stopped {
            self.processes[id.index()].alive = false;
        }
        if let Some(donor) = self.world.donor.take() {
            self.copy(arena, donor);
        }
        outcome
    }

    /// Process `index` flags an action.
    pub fn trigger(&mut self, arena: &mut Arena, index: usize) {
        arena.load(self);
        let ports = arena.ports(self.processes.len());
        self.triggers -= 1;
        self.processes[index].node.trigger_action(&ports, 1);
        let _ = self.processes[index].node.take_wake();
        arena.save(self, index);
    }

    /// Process `index` releases a deferred effect at this moment of its own, if it can.
    pub fn release(&mut self, arena: &mut Arena, index: usize) -> bool {
        if self.processes[index].deferred.is_out() {
            return false;
        }
        arena.load(self);
        let ports = arena.ports(self.processes.len());
        let process = &mut self.processes[index];
        if !process.can_release(self.program.len(), &ports, &self.world) {
            return false;
        }
        process.release(&ports, &mut self.world);
        arena.save(self, index);
        true
    }

    /// Process `index` learns that it waits in vain for `peer`: that it is dead, if it is.
    pub fn miss(&mut self, index: usize, peer: ReplicaId) {
        let dead = !self.processes[peer.index()].alive;
        match &mut self.processes[index].call {
            Some(call) if dead => call.gone(peer),
            Some(call) => call.overdue(peer),
            None => {}
        }
    }

    /// Can process `index` still step?
    #[must_use]
    pub fn runs(&self, index: usize) -> bool {
        self.processes[index].runs(self.program.len())
    }
}

#[cfg(feature = "planted")]
const fn guarded(mut node: Node, guards: Guards) -> Node {
    node.set_guards(guards);
    node
}

#[cfg(not(feature = "planted"))]
const fn guarded(node: Node, _guards: Guards) -> Node {
    node
}

/// Real outboxes and rings, into which a state is loaded for a step.
#[derive(Debug)]
pub struct Arena {
    outboxes: [Outbox; MAX_REPLICAS],
    rings: [[AtomicU64; RING]; MAX_REPLICAS],
    /// How many posts of each outbox may differ from 0.
    posts: [usize; MAX_REPLICAS],
}

impl Arena {
    /// An arena; one serves any number of groups in turn.
    #[must_use]
    pub fn new() -> Self {
        Self {
            outboxes: [const { Outbox::new() }; MAX_REPLICAS],
            rings: [const { [const { AtomicU64::new(0) }; RING] }; MAX_REPLICAS],
            posts: [0; MAX_REPLICAS],
        }
    }

    fn load(&mut self, group: &Group) {
        for (index, shared) in group.shared.iter().enumerate() {
            self.outboxes[index].restore(&shared.snapshot);
            let left = self.posts[index].saturating_sub(shared.posts.len());
            let posts = shared.posts.iter().copied();
            self.outboxes[index].restore_posts(posts.chain(std::iter::repeat_n(0, left)));
            self.posts[index] = shared.posts.len();
            for (cell, &word) in self.rings[index].iter().zip(&shared.ring) {
                cell.store(word, Ordering::Relaxed);
            }
        }
    }

    /// Only the process that stepped wrote, and only its own.
    fn save(&mut self, group: &mut Group, index: usize) {
        let posted = group.processes[index].node.posted();
        let posts = usize::try_from(posted).map_or(POSTS, |posted| posted.min(POSTS));
        let shared = &mut group.shared[index];
        shared.snapshot = self.outboxes[index].snapshot();
        shared.posts.clear();
        shared
            .posts
            .extend(self.outboxes[index].posts().take(posts));
        self.posts[index] = posts;
        for (word, cell) in shared.ring.iter_mut().zip(&self.rings[index]) {
            *word = cell.load(Ordering::Relaxed);
        }
    }

    fn ports(&self, n: usize) -> Ports<'_> {
        let mut ports = [None; MAX_REPLICAS];
        for (index, port) in ports.iter_mut().enumerate().take(n) {
            *port = Some(Port {
                outbox: &self.outboxes[index],
                ring: &self.rings[index],
            });
        }
        ports
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

//! Deferred effects: taken over at once, had later.
//!
//! Intuition: an effect whose result is known in advance holds nobody up. Each replica *asks* for
//! it, posts that it has, and goes on with the result. The primary keeps a private queue and
//! *releases* an entry, at any moment of its own, once all have posted alike; what is left goes out
//! after the next rendezvous, before anything else does, and a record tells that it has.
//!
//! Where the group masks faults the others keep a queue, too, until they hear that record. Only the
//! world knows how many effects a lost primary has had. Its successor asks that once, before it
//! releases anything, and drops them from its own queue: what was released was posted by all, so it
//! is there.
//!
//! Contract: how many may be asked for between two rendezvous is counted by all replicas alike, and
//! how far the primary has released never matters to the program. Who waits for what the world
//! answers to an effect has a rendezvous first: if the other went astray the effect is held back,
//! and the primary would wait for ever without anybody to notice. Nobody goes on from a rendezvous,
//! or ends, before it has heard that the queue is empty: else a primary could be lost with effects
//! that all believe they had. An entry carries a seal of what
//! was asked for, looked at when it goes out: the queue is private, so nobody else could see that
//! it has changed.
//!
//! Not covered: a world that does not know how many effects it has had.

use rcoe_core::{Bug, Guards, Node, POSTS, Ports, mix};

/// An effect that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Effect {
    /// The operation that asks for it.
    pub at: usize,
    /// What goes out.
    pub value: u64,
}

impl Effect {
    /// As the world sees it.
    #[must_use]
    pub const fn output(self) -> (usize, u64) {
        (self.at, self.value)
    }

    fn seal(self) -> u64 {
        mix(mix(self.at as u64) ^ self.value)
    }
}

/// One effect in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Entry {
    effect: Effect,
    seal: u64,
    /// The post by which it was asked for.
    post: u64,
    /// How many were asked for before.
    number: u64,
}

/// An entry is not what was taken into the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed;

/// What one replica has deferred.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Deferred {
    /// The most effects between two rendezvous; the same in all replicas.
    pub room: usize,
    /// Asked for since the last rendezvous; the same in all replicas.
    since: usize,
    /// All have met, and the record that tells that everything is out is still to come.
    settling: bool,
    /// Followers keep a queue, too: the group goes on without its primary.
    pub masks: bool,
    /// Not released yet, as far as this replica knows, the oldest first.
    queue: Vec<Entry>,
    /// Nobody else has released anything of the queue.
    own: bool,
    /// Asked for since the start.
    number: u64,
    /// Asked for and not posted yet.
    asking: Option<Effect>,
    /// All that this replica has posted. For checkers: no replica looks at it.
    pub asked: Vec<Effect>,
    /// Checks in force.
    pub guards: Guards,
}

impl Deferred {
    /// Nothing yet.
    #[must_use]
    pub const fn new(guards: Guards) -> Self {
        Self {
            room: POSTS,
            since: 0,
            settling: false,
            masks: false,
            queue: Vec::new(),
            own: false,
            number: 0,
            asking: None,
            asked: Vec::new(),
            guards,
        }
    }

    /// Must a rendezvous come before the next effect is deferred?
    #[must_use]
    pub fn is_full(&self) -> bool {
        let count = match self.guards.off(Bug::DeferByBacklog) {
            true => self.queue.len(),
            false => self.since,
        };
        count >= self.room
    }

    /// Must a rendezvous come before a wait for what the world answers? An effect that is held back
    /// because the other went astray would be waited for in vain.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        self.since > 0 && !self.guards.off(Bug::AwaitUnmet)
    }

    /// Asks for an effect, to be posted by [`Deferred::post`].
    pub fn ask(&mut self, effect: Effect, node: &Node) {
        self.since += 1;
        self.asking = Some(effect);
        let follows = self.masks && !self.guards.off(Bug::KeepNothing);
        if node.is_primary() || follows {
            self.own |= self.queue.is_empty() && node.is_primary();
            self.queue.push(Entry {
                effect,
                seal: effect.seal(),
                post: node.posted(),
                number: self.number,
            });
        }
        self.number += 1;
    }

    /// Primary, before it releases anything: the world has had so many. A lost primary may have
    /// released them.
    pub fn catch_up(&mut self, had: u64) {
        if !self.own && !self.guards.off(Bug::ReleaseAgain) {
            self.queue.retain(|entry| entry.number >= had);
        }
        self.own = true;
    }

    /// A copy of a primary is none.
    pub const fn disown(&mut self) {
        self.own = false;
    }

    /// Posts that the effect was asked for.
    pub fn post(&mut self, node: &mut Node, ports: &Ports<'_>) {
        self.asked.extend(self.asking.take());
        node.post(ports);
    }

    /// All have met, and agree on what was asked for up to here. Is there anything to be settled
    /// before they go on?
    pub const fn meet(&mut self) -> bool {
        self.settling = self.since > 0;
        self.since = 0;
        self.settling
    }

    /// Is there the record to come that tells that everything is out? It has come, if so.
    pub fn hear(&mut self) -> bool {
        if self.settling {
            self.queue.clear();
            self.own = false;
        }
        std::mem::replace(&mut self.settling, false)
    }

    /// Has anything been asked for since all last knew that everything is out?
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.since > 0
    }

    /// The primary tells that everything asked for is out, as all had posted it alike.
    pub fn went_out(&mut self) {
        if self.is_open() {
            self.since = 0;
            self.queue.clear();
            self.own = false;
        }
    }

    /// Is that record still to come?
    #[must_use]
    pub const fn is_settling(&self) -> bool {
        self.settling
    }

    /// Has everything gone out?
    #[must_use]
    pub const fn is_out(&self) -> bool {
        self.queue.is_empty()
    }

    /// Is this the primary, and have all posted the effect that goes out next?
    #[must_use]
    pub fn is_agreed(&self, node: &Node, ports: &Ports<'_>) -> bool {
        let posted =
            |entry: &Entry| entry.post < node.posted() && node.is_posted_alike(entry.post, ports);
        node.is_primary() && self.next().is_some_and(|at| posted(&self.queue[at]))
    }

    /// Takes the next effect out of the queue, for it to be had; `early` if that is before the
    /// next rendezvous.
    ///
    /// # Errors
    /// It is not what was asked for.
    pub fn release(&mut self, early: bool) -> Result<Option<Effect>, Changed> {
        let Some(at) = self.next() else {
            return Ok(None);
        };
        let entry = self.queue[at];
        if entry.effect.seal() != entry.seal && !self.guards.off(Bug::ReleaseChanged) {
            return Err(Changed);
        }
        if !(early && self.guards.off(Bug::ReleaseTwice)) {
            self.queue.remove(at);
        }
        Ok(Some(entry.effect))
    }

    /// Which entry goes out next.
    fn next(&self) -> Option<usize> {
        let newest = self.guards.off(Bug::ReleaseNewest);
        let last = self.queue.len().checked_sub(1)?;
        Some(if newest { last } else { 0 })
    }

    /// One bit of the next effect flips; false if there is none.
    pub fn flip(&mut self, bit: u32) -> bool {
        let first = self.queue.first_mut();
        first.is_some_and(|entry| {
            entry.effect.value ^= 1 << (bit % 64);
            true
        })
    }
}

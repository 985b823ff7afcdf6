//! Posts: a replica says where it stands without waiting for the others.
//!
//! Intuition: a rendezvous asks that all stand at one point at one time. An effect whose result is
//! known in advance needs less: that, before it goes out, each replica has *passed* the point at
//! which it was asked for, with the same trace. So each leaves a word of its signature there and
//! goes on; whoever is the primary has the effect once it finds the same word of all, or after the
//! next rendezvous, which compares everything up to there.
//!
//! Contract: at most [`POSTS`] posts between two rendezvous. After a rendezvous nobody looks at
//! posts from before it any more: all effects up to it are agreed.
//!
//! Not covered: who differs. A post that differs, or never comes, means that the effect waits for
//! the rendezvous, which finds out.

use crate::ReplicaId;
use crate::guards::Bug;
use crate::node::{Node, Ports, port};
use crate::primitive::Ordering;

/// Posts that stay readable: the most between two rendezvous.
pub const POSTS: usize = 64;

#[inline]
fn slot(index: u64) -> usize {
    const LAST: u64 = POSTS as u64 - 1;
    usize::from((index & LAST).to_le_bytes()[0])
}

impl Node {
    /// Says that this replica has come to this point of its trace; the number of the post.
    #[inline]
    pub fn post(&mut self, ports: &Ports<'_>) -> u64 {
        let own = port(ports, self.id).outbox;
        let index = self.posted;
        own.posts[slot(index)].store(self.trace.signature().word(), Ordering::Relaxed);
        self.posted = index + 1;
        own.posted.store(self.posted, Ordering::Release);
        index
    }

    /// Posts so far.
    #[must_use]
    #[inline]
    pub const fn posted(&self) -> u64 {
        self.posted
    }

    /// Have all other members posted the same as this one at `index`, one of the last [`POSTS`] of
    /// its own?
    #[must_use]
    #[inline]
    pub fn is_posted_alike(&self, index: u64, ports: &Ports<'_>) -> bool {
        let own = port(ports, self.id).outbox.posts[slot(index)].load(Ordering::Relaxed);
        let mut others = self.others.iter();
        self.halted.is_none() && others.all(|peer| self.has_posted(peer, index, own, ports))
    }

    #[inline]
    fn has_posted(&self, peer: ReplicaId, index: u64, word: u64, ports: &Ports<'_>) -> bool {
        let outbox = port(ports, peer).outbox;
        // One that has not come so far yet wraps around to a large number.
        let behind = outbox
            .posted
            .load(Ordering::Acquire)
            .wrapping_sub(index + 1);
        if behind >= POSTS as u64 {
            return self.guards.off(Bug::PostUnseen);
        }
        let same = outbox.posts[slot(index)].load(Ordering::Relaxed) == word;
        same || self.guards.off(Bug::PostUncompared)
    }
}

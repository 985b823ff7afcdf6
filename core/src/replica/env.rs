//! What a replica needs of its surroundings.

use crate::node::WaitFor;
use crate::outbox::Outbox;
use crate::{ReplicaId, ReplicaSet};

/// What the environment says of an awaited peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Test the condition again.
    Retry,
    /// The peer is stopped or too late by the sphere's judgement.
    Overdue,
    /// The peer is dead: what it has not published by now it never will. Only for a sphere that
    /// knows this for certain.
    Gone,
}

/// One wait of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Who is awaited.
    pub peer: ReplicaId,
    /// The peer's doorbell, read before the condition was last tested: the expected value of a
    /// futex wait.
    pub bell: u32,
    /// How often this wait was already asked for in a row, from 0.
    pub round: u32,
    /// What is awaited.
    pub reason: WaitFor,
}

/// Time, waiting, waking and stopping, which each sphere has in its own way.
pub trait Env {
    /// Passes time until the peer's doorbell may have moved off `w.bell`: spin, yield, sleep. A
    /// sleeper uses [`Outbox::begin_sleep`] on `own`. Must return in bounded time.
    fn wait(&mut self, own: &Outbox, w: &Wait) -> Waited;

    /// Passes a moment, as short as can be; false if that is not worth while.
    fn pause(&mut self) -> bool {
        false
    }

    /// Somebody sleeps on `own.doorbell()`.
    fn wake(&mut self, own: &Outbox);

    /// The members agreed that `gone` are faulty; all survivors call it. If `primary` is one of
    /// them, it has no outside effect any more when this returns. Followers have none anyway:
    /// nobody need wait for their end.
    fn exclude(&mut self, own: &Outbox, gone: ReplicaSet, primary: ReplicaId) {
        let _ = (own, gone, primary);
    }
}

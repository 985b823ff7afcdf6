//! Where the thread that serves and the supervisor's loop meet.
//!
//! The loop alone can look at a run. The thread asks it through an event descriptor that the loop
//! polls anyway, and waits; the loop never waits for the thread.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::times::cpu_time;

use super::pages::FRESH;
use super::snapshot::{CpuView, Snapshot, Totals};

/// Longest time that a client waits for the supervisor.
const ANSWER_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Board {
    bell: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Posted by the loop, not yet taken.
    posted: Option<Snapshot>,
    /// The last one given out, and when it was taken.
    given: Option<(Instant, Arc<Snapshot>)>,
}

impl Board {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            bell,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panics ends the process: there is no half-done state to find.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's side: a snapshot that is fresh enough, or nothing if the supervisor is busy.
    pub(super) fn ask(&self) -> Option<Arc<Snapshot>> {
        let mut state = self.lock();
        if let Some((taken, snapshot)) = &state.given
            && taken.elapsed() < FRESH
        {
            return Some(Arc::clone(snapshot));
        }
        state.posted = None;
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok()?;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, ANSWER_TIME, |state| state.posted.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = state.posted.take()?;
        let before = state.given.take().map(|(_, snapshot)| snapshot);
        drop(state);
        complete(&mut snapshot);
        if let Some(before) = before {
            never_less(&mut snapshot.totals, &before.totals);
        }
        let snapshot = Arc::new(snapshot);
        self.lock().given = Some((Instant::now(), Arc::clone(&snapshot)));
        Some(snapshot)
    }

    /// The loop's side: whether somebody asks, which this forgets.
    pub(super) fn is_asked(&self) -> bool {
        rustix::io::read(&self.bell, &mut [0; 8]).is_ok()
    }

    /// The loop's side: the answer.
    pub(super) fn post(&self, snapshot: Snapshot) {
        self.lock().posted = Some(snapshot);
        self.changed.notify_one();
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Adds the CPU times of living replicas, which anyone can read.
fn complete(snapshot: &mut Snapshot) {
    let mut sums = BTreeMap::new();
    for cpu in &snapshot.totals.cpu {
        *sums.entry((cpu.replica, cpu.core)).or_insert(0.0) += cpu.seconds;
    }
    for replica in snapshot
        .processes
        .iter_mut()
        .flat_map(|it| &mut it.replicas)
    {
        let living = cpu_time(replica.pid).map_or(0.0, |time| time.as_secs_f64());
        // What its ended predecessors used is in the sums already.
        replica.cpu_seconds += living;
        *sums.entry((replica.id, replica.core)).or_insert(0.0) += living;
    }
    snapshot.totals.cpu = sums
        .into_iter()
        .map(|((replica, core), seconds)| CpuView {
            replica,
            core,
            seconds,
        })
        .collect();
}

/// A counter must not go down, or it is taken for a new one: a successor can be a little behind the
/// primary that was lost, and a replica can end between two looks.
fn never_less(now: &mut Totals, before: &Totals) {
    for (now, before) in [
        (&mut now.processes, before.processes),
        (&mut now.calls, before.calls),
        (&mut now.rendezvous, before.rendezvous),
        (&mut now.votes, before.votes),
        (&mut now.bytes_voted, before.bytes_voted),
    ] {
        *now = (*now).max(before);
    }
    for old in &before.cpu {
        let same = |it: &&mut CpuView| (it.replica, it.core) == (old.replica, old.core);
        match now.cpu.iter_mut().find(same) {
            Some(it) => it.seconds = it.seconds.max(old.seconds),
            None => now.cpu.push(old.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_answers_what_the_thread_asks() {
        let board = Board::new().expect("a board");
        assert!(!board.is_asked());
        let answer = std::thread::scope(|scope| {
            let asker = scope.spawn(|| board.ask());
            while !board.is_asked() {
                std::thread::yield_now();
            }
            board.post(Snapshot {
                pid: 7,
                ..Snapshot::default()
            });
            asker.join().expect("joined")
        });
        assert_eq!(answer.expect("answered").pid, 7);
    }

    #[test]
    fn counters_never_go_down() {
        let totals = |calls, seconds| Totals {
            calls,
            cpu: vec![CpuView {
                replica: 0,
                core: 1,
                seconds,
            }],
            ..Totals::default()
        };
        let mut now = totals(3, 0.5);
        never_less(&mut now, &totals(5, 0.25));
        assert_eq!((now.calls, now.cpu[0].seconds), (5, 0.5));
        let mut none = Totals::default();
        never_less(&mut none, &now);
        assert_eq!(none, now);
    }
}

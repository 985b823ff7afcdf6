//! A process that is stopped by a signal, and goes on.
//!
//! All its replicas are stopped by the host, wherever they are: that changes nothing in them, so it
//! needs no agreement on where. Meanwhile nothing reaches them, and nobody is late. A kick waits
//! for each, so that one that somebody else continues (a shell continues the whole process group
//! that rcoe is in) goes no further than into the agent's handler before the supervisor lets it.
//!
//! Contract: a process that shares memory is only stopped where it has given its turn back, which
//! it does before it asks for the stop itself; see [`Team::can_be_stopped`].

use std::sync::atomic::Ordering::Acquire;
use std::time::Instant;

use rcoe_linux_abi::{JobState, SIG_KICK};
use rcoe_linux_sys::host::SignalInfo;

use super::{SIGKILL, State, Team};
use crate::memory::Numbered;

/// What job control keeps of a process.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Since when it is stopped, if it is.
    since: Option<Instant>,
    /// Signals that came meanwhile.
    pub(super) held: Vec<SignalInfo>,
    /// Times it was stopped or continued.
    changes: u32,
    /// The queue's length with the last signal to go on.
    pub(super) continued: u64,
    /// A signal that came before the process could be stopped.
    early: Option<SignalInfo>,
    /// Whom to answer when it goes on, and which request.
    asked: Option<(u32, Numbered)>,
}

impl Job {
    /// The program is over.
    pub(super) fn end(&mut self) {
        self.since = None;
        self.early = None;
        self.held.clear();
    }
}

impl Team {
    /// Whether it is stopped.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.job.since.is_some()
    }

    /// Whether the signal's default action stops the program, by the account of all living members.
    pub(crate) fn would_stop(&self, number: u32) -> bool {
        self.all_say(number, |report| &report.stops)
    }

    /// Whether all its replicas are there and have told what signals do to them.
    pub(crate) fn is_settled(&self) -> bool {
        let told = self.all_say(SIGKILL, |report| &report.fatal);
        self.state == State::Living && self.group.is_complete() && told
    }

    /// Keeps a signal that stops processes until the replicas are there.
    pub(crate) fn keep_early(&mut self, signal: SignalInfo) {
        self.job.early = Some(signal);
    }

    /// Takes the signal that was kept, if the replicas are there.
    pub(crate) fn take_early(&mut self) -> Option<SignalInfo> {
        if self.is_settled() {
            self.job.early.take()
        } else {
            None
        }
    }

    /// A signal to go on takes one away that was kept.
    pub(crate) fn forget_early(&mut self) {
        self.job.early = None;
    }

    /// Whether it can be stopped wherever it is, because it shares no memory. It does not begin to
    /// share any before it goes on.
    pub(crate) fn can_be_stopped(&self) -> bool {
        self.memory.set(|control| &control.doomed, 1);
        let alone = !self.is_bound();
        if !alone {
            self.memory.set(|control| &control.doomed, 0);
        }
        alone
    }

    /// Whether a signal to go on was sent after all signals that this replica has taken.
    pub(crate) fn is_to_go_on(&self, pid: u32) -> bool {
        let asker = self.members().find(|&it| self.group.pid(it) == Some(pid));
        let taken = |index: usize| self.memory.report(index).taken.load(Acquire);
        asker.is_none_or(|index| self.job.continued > taken(index))
    }

    /// Stops all replicas. If they have asked for it, the answer is due when they go on.
    pub(crate) fn stop(&mut self, signal: u8, asked: Option<(u32, Numbered)>) {
        self.job.since = Some(Instant::now());
        self.job.asked = asked;
        self.group.pause();
        self.change(Some(signal));
        // Comes to each before it makes another step, whoever lets it go on, and holds it.
        self.members()
            .for_each(|index| self.group.signal(index, SIG_KICK));
    }

    /// Lets all replicas go on, for the sake of this signal. It is there, with all that came before
    /// it, when they do.
    pub(crate) fn go_on(&mut self, signal: Option<SignalInfo>) {
        let Some(since) = self.job.since.take() else {
            return;
        };
        for signal in std::mem::take(&mut self.job.held).into_iter().chain(signal) {
            self.deliver(signal);
        }
        self.memory.add_pause(since.elapsed());
        self.patience = None;
        self.change(None);
        self.memory.set(|control| &control.doomed, 0);
        if let Some((to, number)) = self.job.asked.take() {
            self.answered = number;
            self.memory.answer(to, number, 0);
        }
        self.group.resume();
    }

    fn change(&mut self, stopped_by: Option<u8>) {
        self.job.changes += 1;
        self.memory.set_job(JobState {
            count: self.job.changes,
            stopped_by,
        });
    }
}

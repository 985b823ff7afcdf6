//! Requests of the replicas: found where they lie, checked, carried out once, answered.
//!
//! Intuition: a request is a record in the region of the replica that makes it, so who asks is
//! known by place, and no other process can ask in its name. What is no record is passed over.
//!
//! Contract: only what most living members would ask is carried out; what of it is compared stands
//! with [`rcoe_linux_abi::Request`]. What was answered is answered again, for the successor of a
//! lost primary, and not carried out again; what is older is nobody's request any more.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use rcoe_linux_abi::arena::Place;
use rcoe_linux_abi::{Ask, NOT_AGREED, NOT_OURS, Record, Request, SIG_KICK};
use rcoe_linux_sys::host::SignalInfo;

use super::{Family, Newborn};
use crate::error::RunError;
use crate::judge::Process;
use crate::memory::Numbered;
use crate::team::{State, Team};

impl Family {
    /// Whether somebody asks for something.
    pub(crate) fn is_asked(&self) -> bool {
        let asks = |team: &Team| {
            let mut members = team.members();
            members.any(|index| team.group.has_request(index, &team.memory))
        };
        self.teams.iter().flatten().any(|team| asks(team))
    }

    /// Has a child become known since this was asked? It may have called before it was, and whoever
    /// is not known is not heard.
    pub(crate) const fn has_newborn(&mut self) -> bool {
        std::mem::replace(&mut self.newborn, false)
    }

    /// Does what replicas ask for. All who have ended must have been reaped before.
    pub(crate) fn hear_requests(&mut self) -> Result<(), RunError> {
        for group in self.groups() {
            // Hearing one settles what is due, so that groups may go meanwhile.
            let places = self.teams[group].as_ref();
            for index in 0..places.map_or(0, |team| team.removed.len()) {
                self.hear_replica(group, index)?;
            }
        }
        Ok(())
    }

    fn hear_replica(&mut self, group: usize, index: usize) -> Result<(), RunError> {
        let asks = |family: &Self| {
            let team = family.teams[group].as_ref()?;
            let pid = team.group.pid(index)?;
            let counts = !team.removed[index] && team.group.has_request(index, &team.memory);
            counts.then_some(pid)
        };
        if asks(self).is_none() {
            return Ok(());
        }
        self.settle()?;
        self.make_room()?;
        let Some(pid) = asks(self).filter(|_| self.team(group).state == State::Living) else {
            return Ok(());
        };
        let team = self.team_mut(group);
        for request in team.group.take_requests(index, &team.memory) {
            self.request(group, index, pid, request);
        }
        Ok(())
    }

    /// A request of the group's replica with this number, which is this process.
    fn request(&mut self, group: usize, index: usize, pid: u32, request: Request) {
        match request.ask {
            Ask::Expired { signal } => return self.team_mut(group).expire(signal),
            Ask::Background { signal } => return self.rebuke(group, signal),
            _ => {}
        }
        let Request {
            number, attempt, ..
        } = request;
        let asked = Numbered { number, attempt };
        let team = self.team(group);
        let last = team.answered;
        let again = number == last.number;
        if number < last.number {
            return;
        }
        if !is_agreed(team, index, request) {
            return team.memory.answer(pid, asked, NOT_AGREED);
        }
        let control = team.memory.control();
        // What a lost primary was given, or one whose child was lost, is no use to another.
        let same = asked == last && control.answered_to.load(Relaxed) == pid;
        if again && (same || !matches!(request.ask, Ask::Birth { .. })) {
            let answer = control.answer.load(Relaxed).cast_signed();
            team.memory.answer(pid, asked, answer);
            return;
        }
        if let Some(answer) = self.carry_out(group, pid, request) {
            let team = self.team_mut(group);
            team.answered = asked;
            team.memory.answer(pid, asked, answer);
        }
    }

    /// The answer to a request; `None` if it comes later.
    fn carry_out(&mut self, group: usize, pid: u32, request: Request) -> Option<i64> {
        let Request {
            number, attempt, ..
        } = request;
        Some(match request.ask {
            Ask::Birth {
                members,
                stand_in,
                exit_signal,
            } => {
                let wanted = Newborn {
                    members,
                    stand_in,
                    exit_signal,
                };
                self.birth(group, pid, wanted)
            }
            Ask::Kill { target, signal } => self.kill(group, target, signal, None),
            Ask::Queue {
                pid: target,
                signal,
            } => {
                let enclosed = enclosed(request.enclosed);
                self.kill(group, target.cast_signed(), signal, Some(enclosed))
            }
            Ask::StandIn { pid } => match self.by_pid(pid) {
                Some(group) => self.team_mut(group).stand_in(),
                None => NOT_OURS,
            },
            Ask::SetGroup { pid, group: id } => self.set_group(group, pid, id),
            Ask::NewSession => self.new_session(group),
            Ask::GetGroup { pid } => self.id_of(pid, false),
            Ask::GetSession { pid } => self.id_of(pid, true),
            Ask::SetForeground { group: id } => self.set_foreground(group, id),
            Ask::TakeTerminal { fd, steal } => self.take_terminal(group, pid, fd, steal),
            Ask::LeaveTerminal => self.leave_terminal(group),
            Ask::Stop { signal } => {
                let asked = Numbered { number, attempt };
                if self.stop_as_asked(group, signal, (pid, asked)) {
                    return None;
                }
                0
            }
            Ask::Expired { .. } | Ask::Background { .. } => return None,
        })
    }

    /// Has replicas come to a point between calls for which a sibling waits. Who waits there, too,
    /// is left alone.
    pub(crate) fn call_to_points(&self) {
        for team in self.teams.iter().flatten() {
            // A copy that is no member yet comes, too.
            let alive = |index: &usize| team.group.fate(*index) == Process::Alive;
            let waits = |index: &usize| team.memory.report(*index).meeting.load(SeqCst) != 0;
            let all = || (0..team.memory.replicas()).filter(alive);
            if !all().any(|index| waits(&index)) {
                continue;
            }
            for index in all().filter(|index| !waits(index)) {
                team.group.signal(index, SIG_KICK);
            }
        }
    }

    /// Has replicas look that wait for something outside and were called by one of another process
    /// which shares memory with them.
    pub(crate) fn rouse(&self) {
        for team in self.teams.iter().flatten() {
            for index in team.members().filter(|&index| team.uses_slice(index)) {
                let place = &team.memory.gate(index).places[team.memory.group()];
                if place.idle.load(SeqCst) == Place::CALLED {
                    team.group.signal(index, SIG_KICK);
                }
            }
        }
    }
}

/// Whether most living members would ask what this one asks. All have left it before the vote after
/// which it asks, and leave nothing else until it is answered.
fn is_agreed(team: &Team, asker: usize, request: Request) -> bool {
    let lives = |index: &usize| team.group.fate(*index) == Process::Alive;
    let living = team.members().filter(lives);
    let others = living.filter(|&index| index != asker);
    has_majority(
        request,
        others.map(|index| team.memory.report(index).plan.words()),
    )
}

/// Whether whoever asks this is, with those of the others that have left the same, a majority.
fn has_majority(request: Request, others: impl Iterator<Item = Record>) -> bool {
    let (mut same, mut all) = (1, 1);
    for plan in others {
        all += 1;
        same += usize::from(request.is_planned(plan));
    }
    2 * same > all
}

/// What a request encloses with a signal.
fn enclosed([code, sender, value]: [u64; 3]) -> SignalInfo {
    let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
    SignalInfo {
        number: 0,
        code: low(code).cast_signed(),
        sender: low(sender),
        user: low(sender >> 32),
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill(target: i32) -> Request {
        Request {
            number: 7,
            attempt: 0,
            ask: Ask::Kill { target, signal: 10 },
            enclosed: [0; 3],
        }
    }

    fn agree(asked: i32, left: &[Record]) -> bool {
        has_majority(kill(asked), left.iter().copied())
    }

    #[test]
    fn only_what_most_would_ask_is_done() {
        let [right, wrong] = [5, 13].map(|target| kill(target).planned().pack());
        let earlier = Request {
            number: 6,
            ..kill(5)
        };
        let none = [0; 6];
        assert!(agree(5, &[]), "alone");
        assert!(agree(5, &[right]));
        assert!(agree(5, &[right, wrong]), "an odd follower");
        assert!(agree(5, &[none, right]), "one has no record yet");
        assert!(agree(5, &[right, wrong, right]));
        for left in [wrong, none, earlier.planned().pack()] {
            assert!(!agree(5, &[left]), "one of two");
        }
        assert!(!agree(13, &[right, right]), "an odd primary");
        assert!(!agree(5, &[right, wrong, wrong]), "two and two");
    }
}

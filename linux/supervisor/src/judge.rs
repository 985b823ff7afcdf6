//! Decides what the supervisor does next, from facts alone.
//!
//! Who is faulty is the replicas' own vote. Left to the supervisor are the ends of processes, the
//! agreement of what living replicas already say, and what to do when nobody is left to vote. No
//! clock and no process in here, so every rule has a test.
//!
//! Contract: [`judge`] is asked again after each of its verdicts has been carried out.

use rcoe_linux_abi::{Ending, Phase};

/// What the kernel said last of a replica's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// Not seen yet.
    Unborn,
    /// Its group was born without it.
    Absent,
    /// Alive, running or stopped.
    Alive,
    /// Ended by itself with this status.
    Exited(i32),
    /// Ended by this signal.
    Killed(i32),
}

impl Process {
    /// Whether it is gone.
    pub(crate) const fn is_gone(self) -> bool {
        matches!(self, Self::Absent | Self::Exited(_) | Self::Killed(_))
    }
}

/// A replica's own word on why it stopped for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The group must stop.
    FailStop,
    /// The others outvoted this one.
    Convicted,
}

/// All that is known of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) process: Process,
    pub(crate) phase: Phase,
    pub(crate) ending: Option<Ending>,
    pub(crate) load_error: u32,
    pub(crate) halt: Option<Halt>,
    /// Members of the group by this replica's account, one bit each.
    pub(crate) members: Option<u8>,
    /// Already removed from the group.
    pub(crate) removed: bool,
    /// Stopped from outside, by the kernel's last word.
    pub(crate) stopped: bool,
    /// It shares memory with replicas of other processes, which wait for the ends of its turns.
    pub(crate) shares: bool,
    /// Nothing shows that it got on since the supervisor began to wait.
    pub(crate) still: bool,
}

/// Why a replica was removed, or the group stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its process ended without the program's end.
    Death,
    /// Its agent failed.
    Agent,
    /// The vote found it faulty.
    Verdict,
    /// The program ended in it and not in others, or in others and not in it.
    NoEnd,
    /// So many are stopped from outside that those left are no majority.
    Stopped,
    /// It sleeps in a turn for which replicas of other processes wait.
    Asleep,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing until something changes.
    Wait,
    /// Nothing yet, but ask again with `overdue` when patience ends.
    Linger,
    /// Remove this replica; the others go on.
    Remove(usize, Fault),
    /// Stop everything because of this replica, or of nobody in particular.
    FailStop(Option<usize>, Fault),
    /// The program is over.
    Finish(Ending),
    /// The program could not be loaded, with this errno.
    LoadFailed(u32),
    /// The agent failed in all replicas alike; the last words are this replica's.
    AgentFailed(usize),
    /// This one died before all replicas lived.
    StartFailed(usize),
}

/// Decides; `overdue` says that the patience of a previous [`Decision::Linger`] has ended.
pub(crate) fn judge(facts: &[Facts], mask: bool, overdue: bool) -> Decision {
    assert!(!facts.is_empty(), "a group has at least one replica");
    let court = Court {
        facts,
        mask,
        overdue,
    };
    court
        .start()
        .or_else(|| court.deaths())
        .or_else(|| court.convictions())
        .or_else(|| court.failures())
        .or_else(|| court.halts())
        .or_else(|| court.standstill())
        .or_else(|| court.endings())
        .unwrap_or(Decision::Wait)
}

struct Court<'a> {
    facts: &'a [Facts],
    mask: bool,
    overdue: bool,
}

impl Court<'_> {
    fn members(&self) -> impl Iterator<Item = (usize, &Facts)> {
        self.facts
            .iter()
            .enumerate()
            .filter(|(_, facts)| !facts.removed)
    }

    fn count(&self, property: impl Fn(&Facts) -> bool) -> usize {
        self.members().filter(|(_, facts)| property(facts)).count()
    }

    fn find(&self, property: impl Fn(&Facts) -> bool) -> Option<usize> {
        self.members()
            .find(|(_, facts)| property(facts))
            .map(|(index, _)| index)
    }

    /// Removes a replica where the rest still is a majority that can go on; stops otherwise.
    fn remove(&self, index: usize, fault: Fault) -> Decision {
        if self.mask && self.count(|_| true) >= 3 {
            Decision::Remove(index, fault)
        } else {
            Decision::FailStop(Some(index), fault)
        }
    }

    fn start(&self) -> Option<Decision> {
        let nobody_ran = self
            .facts
            .iter()
            .all(|facts| matches!(facts.phase, Phase::None | Phase::Loading | Phase::Failed));
        let load_error = self
            .facts
            .iter()
            .map(|facts| facts.load_error)
            .find(|&error| error != 0);
        if nobody_ran && let Some(error) = load_error {
            return Some(Decision::LoadFailed(error));
        }
        let unborn = self.find(|facts| facts.process == Process::Unborn)?;
        let gone = self.find(|facts| facts.process.is_gone())?;
        Some(match self.facts[gone].phase {
            Phase::Failed => Decision::AgentFailed(gone),
            Phase::None | Phase::Loading => Decision::StartFailed(gone),
            // The others exist and are about to be seen.
            _ if !self.overdue => Decision::Linger,
            _ => Decision::FailStop(Some(unborn), Fault::NoEnd),
        })
    }

    /// Failed agents: all alike is rcoe's own failure, one alone is a faulty replica.
    fn failures(&self) -> Option<Decision> {
        let failed = |facts: &Facts| facts.phase == Phase::Failed;
        let first = self.find(failed)?;
        if self.count(failed) == self.count(|_| true) {
            return Some(Decision::AgentFailed(first));
        }
        if self.find(|facts| facts.halt.is_some()).is_some() {
            return None;
        }
        Some(if self.overdue {
            self.remove(first, Fault::Agent)
        } else {
            Decision::Linger
        })
    }

    /// Processes that are gone though neither the program ended nor the agent failed.
    fn deaths(&self) -> Option<Decision> {
        let dead = |facts: &Facts| {
            facts.process.is_gone()
                && !matches!(facts.phase, Phase::Ended | Phase::Failed)
                && facts.halt.is_none()
        };
        self.find(dead)
            .map(|index| self.remove(index, Fault::Death))
    }

    /// Replicas that know themselves outvoted, or that most of the others no longer count.
    fn convictions(&self) -> Option<Decision> {
        let convicted = self.members().find(|&(index, facts)| {
            let accusers = self
                .members()
                .filter(|&(other, _)| other != index)
                .filter(|(_, other)| other.members.is_some_and(|bits| bits & (1 << index) == 0))
                .count();
            facts.halt == Some(Halt::Convicted) || 2 * accusers > self.count(|_| true)
        });
        convicted.map(|(index, facts)| {
            let fault = match (facts.phase, facts.process.is_gone()) {
                (Phase::Failed, _) => Fault::Agent,
                (_, true) => Fault::Death,
                _ => Fault::Verdict,
            };
            self.remove(index, fault)
        })
    }

    /// Replicas that ask for a fail-stop: overruled only by a majority of others that get on
    /// without them. Whoever is stopped, or stands still, does not: then those that halted are
    /// right.
    fn halts(&self) -> Option<Decision> {
        let halted = |facts: &Facts| facts.halt == Some(Halt::FailStop);
        let able = |facts: &Facts| facts.halt.is_none() && !facts.stopped;
        let first = self.find(halted)?;
        let stop = Decision::FailStop(None, Fault::Verdict);
        if 2 * self.count(able) <= self.count(|_| true) {
            return Some(stop);
        }
        if !self.overdue {
            return Some(Decision::Linger);
        }
        let gets_on = self.find(|facts| able(facts) && !facts.still).is_some();
        Some(if gets_on {
            self.remove(first, Fault::Verdict)
        } else {
            stop
        })
    }

    /// Replicas that are stopped while those left are no majority: nobody could vote them out, and
    /// perhaps nobody is left to wait for them. One that is the only one of its program is not
    /// missed. One that shares memory is missed by replicas of other processes, which its own
    /// siblings need not know.
    fn standstill(&self) -> Option<Decision> {
        let stopped = |facts: &Facts| facts.stopped && facts.phase != Phase::Ended;
        let all = self.count(|_| true);
        if all < 2 {
            return None;
        }
        if 2 * self.count(stopped) < all {
            let missed = self.find(|facts| stopped(facts) && facts.shares)?;
            return Some(if self.overdue {
                self.remove(missed, Fault::Stopped)
            } else {
                Decision::Linger
            });
        }
        let culprit = self.find(stopped).filter(|_| self.count(stopped) == 1);
        Some(if self.overdue {
            Decision::FailStop(culprit, Fault::Stopped)
        } else {
            Decision::Linger
        })
    }

    /// The end of the program, which all members must tell alike.
    fn endings(&self) -> Option<Decision> {
        let ended = |facts: &Facts| facts.phase == Phase::Ended;
        let first = self.find(ended)?;
        let ending = self.facts[first].ending;
        let alike = self.count(|facts| ended(facts) && facts.ending == ending);
        let all = self.count(|_| true);
        match ending {
            Some(ending) if alike == all => Some(Decision::Finish(ending)),
            _ if self.count(ended) == all => Some(Decision::FailStop(None, Fault::NoEnd)),
            _ if !self.overdue => Some(Decision::Linger),
            // The minority is at fault: it ended alone, or it missed the end.
            _ if 2 * alike <= all && all > 2 => Some(self.remove(first, Fault::NoEnd)),
            _ => {
                let late = self.find(|facts| !ended(facts))?;
                Some(self.remove(late, Fault::NoEnd))
            }
        }
    }
}

#[cfg(test)]
mod tests;

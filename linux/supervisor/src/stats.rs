//! Counters of the replicas, for `--stats`: of all processes of the program together.
//!
//! Replicas are told apart by their number, and a child has as many as its parent had when it was
//! made. Not counted is what a replica did that another has replaced.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rcoe_linux_abi::{Report, STAT_CLASSES, StatClass};

use crate::protocol::Published;
use crate::tally::Tally;
use crate::team::Team;

const CLASSES: [(StatClass, &str); STAT_CLASSES] = [
    (StatClass::Local, "calls: local"),
    (StatClass::Emulated, "calls: emulated"),
    (StatClass::Input, "calls: input"),
    (StatClass::Output, "calls: output"),
    (StatClass::Process, "calls: process"),
    (StatClass::Unsupported, "calls: unsupported"),
    (StatClass::Instruction, "trapped instructions"),
];

/// Counters of all replicas at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    rows: Vec<(&'static str, Vec<u64>)>,
    recoveries: Tally,
}

const RENDEZVOUS: &str = "rendezvous";
const PHASES: &str = "phases to points";
const MOST_PHASES: &str = "most phases to a point";
const BYTES_VOTED: &str = "bytes voted";
const REMOVALS: &str = "removing replicas: ns";

impl Stats {
    /// Adds a process.
    pub(crate) fn add(&mut self, team: &Team) {
        let memory = &team.memory;
        let replicas = 0..memory.replicas();
        let counted = Self::gather(replicas.map(|index| {
            let rendezvous = Published::read(memory, index).rendezvous;
            (memory.report(index), rendezvous)
        }));
        self.take_in(counted);
    }

    fn take_in(&mut self, counted: Self) {
        for (at, (name, values)) in counted.rows.into_iter().enumerate() {
            if self.rows.len() == at {
                self.rows.push((name, Vec::new()));
            }
            let sums = &mut self.rows[at].1;
            sums.resize(sums.len().max(values.len()), 0);
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = match name {
                    MOST_PHASES => value.max(*sum),
                    _ => sum.wrapping_add(value),
                };
            }
        }
    }

    /// Reads the counters of each replica's report, given with its number of rendezvous.
    fn gather<'a>(replicas: impl Iterator<Item = (&'a Report, u64)>) -> Self {
        let replicas = replicas.collect::<Vec<_>>();
        let column = |counter: &dyn Fn(&Report) -> &AtomicU64| {
            replicas
                .iter()
                .map(|(report, _)| counter(report).load(Relaxed))
                .collect::<Vec<_>>()
        };
        let mut rows = Vec::new();
        for (class, name) in CLASSES {
            rows.push((name, column(&|report| &report.calls[class as usize])));
        }
        rows.push(("through dispatch", column(&|report| &report.dispatched)));
        rows.push((
            "through rewritten sites",
            column(&|report| &report.rewritten),
        ));
        rows.push(("rewritten sites", column(&|report| &report.sites)));
        rows.push((
            RENDEZVOUS,
            replicas.iter().map(|&(_, rendezvous)| rendezvous).collect(),
        ));
        rows.push((BYTES_VOTED, column(&|report| &report.bytes_voted)));
        rows.push(("effects released later", column(&|report| &report.deferred)));
        rows.push((
            "rendezvous that released",
            column(&|report| &report.flushes),
        ));
        rows.push(("points between calls", column(&|report| &report.points[0])));
        rows.push(("points not agreed on", column(&|report| &report.points[1])));
        rows.push((PHASES, column(&|report| &report.phases[0])));
        rows.push((MOST_PHASES, column(&|report| &report.phases[1])));
        rows.push((
            "going to points: ns",
            column(&|report| &report.attempts_ns[0]),
        ));
        rows.push((
            "of these behind: ns",
            column(&|report| &report.attempts_ns[1]),
        ));
        rows.push(("points counted from", column(&|report| &report.counted[0])));
        rows.push(("targets passed", column(&|report| &report.counted[1])));
        rows.push(("waits: yielded", column(&|report| &report.yields)));
        rows.push(("waits: slept", column(&|report| &report.sleeps)));
        rows.push(("requests made again", column(&|report| &report.asked_again)));
        rows.push((REMOVALS, column(&|report| &report.removals_ns)));
        Self {
            rows,
            recoveries: Tally::default(),
        }
    }

    /// Adds what recoveries took.
    pub(crate) const fn set_recoveries(&mut self, recoveries: Tally) {
        self.recoveries = recoveries;
    }

    fn value(&self, row: &str, replica: usize) -> u64 {
        let found = self.rows.iter().find(|(name, _)| *name == row);
        found
            .and_then(|(_, values)| values.get(replica).copied())
            .unwrap_or(0)
    }

    /// System calls and trapped instructions of a replica.
    pub(crate) fn calls(&self, replica: usize) -> u64 {
        CLASSES
            .iter()
            .map(|&(_, name)| self.value(name, replica))
            .sum()
    }

    /// Rendezvous of a replica.
    pub(crate) fn rendezvous(&self, replica: usize) -> u64 {
        self.value(RENDEZVOUS, replica)
    }

    /// Nanoseconds for which removals of other replicas have held up a replica.
    pub(crate) fn removals_ns(&self, replica: usize) -> u64 {
        self.value(REMOVALS, replica)
    }

    /// Bytes of output content voted by a replica.
    pub(crate) fn bytes_voted(&self, replica: usize) -> u64 {
        self.value(BYTES_VOTED, replica)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = self.rows.first().map_or(0, |(_, values)| values.len());
        write!(f, "{:<24}", "")?;
        for replica in 0..replicas {
            write!(f, " {:>14}", format!("replica {replica}"))?;
        }
        for (name, values) in &self.rows {
            write!(f, "\n{name:<24}")?;
            for value in values {
                write!(f, " {value:>14}")?;
            }
        }
        write!(f, "{}", self.recoveries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_added_up_but_for_what_is_the_most() {
        let process = |phases: [u64; 2], most: [u64; 2]| Stats {
            rows: vec![(PHASES, phases.to_vec()), (MOST_PHASES, most.to_vec())],
            ..Stats::default()
        };
        let mut all = Stats::default();
        all.take_in(process([7, 9], [3, 2]));
        all.take_in(process([4, 1], [1, 5]));
        assert_eq!(all, process([11, 10], [3, 5]));
    }
}

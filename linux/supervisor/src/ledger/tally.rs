//! Sums up the ledger: which cores are suspect.
//!
//! The intuition is that of mercurial cores (Hochschild et al., HotOS 2021): a particle hits any
//! core once, a defective core is wrong again and again. So a core is suspect when enough faults of
//! the last months were its own. A fault of two replicas that merely differ counts half for each.
//!
//! Contract: with a threshold of T, a core whose every fault is charged to it alone is suspect
//! after T faults; one that is always one of two after 2 T, and then the other one is too.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::entry::{Blame, Entry};

/// Faults after which a core is suspect, unless the user says otherwise.
pub const SUSPECT_AFTER: u32 = 3;
/// Days for which a fault counts.
pub const WINDOW_DAYS: u32 = 90;

const DAY: f64 = 86_400.0;

/// The record of one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreRecord {
    /// Its number.
    pub core: u32,
    /// Whether placement avoids it.
    pub suspect: bool,
    /// Faults that were its own.
    pub faults: u32,
    /// Faults that were its own or another one's.
    pub shared: u32,
    /// Faults of replicas on it that do not count.
    pub uncounted: u32,
    /// Time of the first of all these, in seconds since 1970.
    pub first: f64,
    /// Time of the last of all these, in seconds since 1970.
    pub last: f64,
    /// Programs that were run in those that count.
    pub programs: BTreeSet<String>,
}

impl CoreRecord {
    /// What counts against it, in halves.
    #[must_use]
    pub const fn halves(&self) -> u32 {
        self.faults.saturating_mul(2).saturating_add(self.shared)
    }
}

/// The records of a machine's cores, in ascending order; `suspect_after` of 0 suspects nobody.
#[must_use]
pub fn tally(entries: &[Entry], host: &str, now: f64, suspect_after: u32) -> Vec<CoreRecord> {
    let mut records = BTreeMap::<u32, CoreRecord>::new();
    for entry in entries.iter().filter(|entry| entry.host() == host) {
        match entry {
            Entry::Clear(clearing) => match clearing.core {
                Some(core) => drop(records.remove(&core)),
                None => records.clear(),
            },
            Entry::Fault(charge) if now - charge.time > f64::from(WINDOW_DAYS) * DAY => {}
            Entry::Fault(charge) => {
                for &core in &charge.cores {
                    let record = records.entry(core).or_insert_with(|| CoreRecord {
                        core,
                        first: charge.time,
                        ..CoreRecord::default()
                    });
                    let counter = match charge.blame {
                        Blame::Core => &mut record.faults,
                        Blame::Shared => &mut record.shared,
                        Blame::Nobody => &mut record.uncounted,
                    };
                    *counter = counter.saturating_add(1);
                    record.last = record.last.max(charge.time);
                    if charge.blame != Blame::Nobody {
                        record.programs.insert(charge.program.clone());
                    }
                }
            }
        }
    }
    let limit = suspect_after.saturating_mul(2);
    let mut records = records.into_values().collect::<Vec<_>>();
    for record in &mut records {
        record.suspect = limit > 0 && record.halves() >= limit;
    }
    records
}

/// The suspect cores, those with the shortest record first.
#[must_use]
pub fn suspects(records: &[CoreRecord]) -> Vec<u32> {
    let mut found = records
        .iter()
        .filter(|record| record.suspect)
        .collect::<Vec<_>>();
    found.sort_by_key(|record| record.halves());
    found.into_iter().map(|record| record.core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::{assign_cores, avoid};
    use crate::events::DivergenceKind;
    use crate::ledger::{Charge, Clearing};

    fn fault(time: f64, blame: Blame, cores: &[u32]) -> Entry {
        Entry::Fault(Charge {
            time,
            host: "here".into(),
            kind: DivergenceKind::Mismatch,
            program: "/bin/p".into(),
            pid: 1,
            replica: None,
            cores: cores.to_vec(),
            blame,
            reason: String::new(),
            detail: String::new(),
        })
    }

    const NOBODY: [u32; 0] = [];

    fn suspected(entries: &[Entry], after: u32) -> Vec<u32> {
        suspects(&tally(entries, "here", 100.0, after))
    }

    #[test]
    fn a_core_is_suspect_after_the_threshold_and_not_before() {
        let mut entries = vec![
            fault(1.0, Blame::Core, &[0]),
            fault(1.0, Blame::Nobody, &[2]),
        ];
        for _ in 0..2 {
            entries.push(fault(2.0, Blame::Core, &[3]));
        }
        assert_eq!(suspected(&entries, 3), NOBODY);
        entries.push(fault(3.0, Blame::Core, &[3]));
        assert_eq!(suspected(&entries, 3), [3]);
        assert_eq!(suspected(&entries, 4), NOBODY);
        assert_eq!(suspected(&entries, 0), NOBODY);
        assert_eq!(suspected(&entries, 1), [0, 3], "the shorter record first");
    }

    #[test]
    fn what_does_not_count_never_makes_a_suspect() {
        let entries = vec![fault(1.0, Blame::Nobody, &[1]); 1000];
        assert_eq!(suspected(&entries, 1), NOBODY);
    }

    #[test]
    fn other_machines_and_long_ago_do_not_count() {
        let entries = vec![fault(1.0, Blame::Core, &[1]); 9];
        assert!(tally(&entries, "there", 2.0, 3).is_empty());
        let later = f64::from(WINDOW_DAYS).mul_add(DAY, 2.0);
        assert!(tally(&entries, "here", later, 3).is_empty());
    }

    #[test]
    fn clearing_takes_back_what_stands_before() {
        let mut entries = vec![fault(1.0, Blame::Core, &[1]), fault(1.0, Blame::Core, &[2])];
        let clear = |core| {
            Entry::Clear(Clearing {
                time: 2.0,
                host: "here".into(),
                core,
            })
        };
        entries.push(clear(Some(1)));
        assert_eq!(suspected(&entries, 1), [2]);
        entries.push(clear(None));
        assert_eq!(suspected(&entries, 1), NOBODY);
        entries.push(fault(3.0, Blame::Core, &[1]));
        assert_eq!(suspected(&entries, 1), [1]);
    }

    /// Runs a machine on which one core is always wrong until no replica is on it; the number of
    /// faults that took. With three replicas the vote knows the core, with two nobody does.
    fn faults_until_left(cores: &[u32], sticky: u32, replicas: usize, threshold: u32) -> u32 {
        let mut entries = Vec::new();
        for faults in 0.. {
            let found = suspected(&entries, threshold);
            let used = assign_cores(replicas, &avoid(replicas, cores, &found));
            if !used.contains(&sticky) {
                return faults;
            }
            assert!(faults < 1000, "never left");
            let blame = if replicas > 2 {
                Blame::Core
            } else {
                Blame::Shared
            };
            let charged = if replicas > 2 { vec![sticky] } else { used };
            entries.push(fault(1.0, blame, &charged));
        }
        unreachable!()
    }

    #[test]
    fn a_sticky_core_is_left_within_the_bound() {
        for threshold in 1..=5 {
            for sticky in 0..3 {
                let known = faults_until_left(&[0, 1, 2, 3], sticky, 3, threshold);
                assert_eq!(known, threshold, "core {sticky}");
            }
            for sticky in 0..2 {
                let unknown = faults_until_left(&[0, 1, 2, 3], sticky, 2, threshold);
                assert_eq!(unknown, 2 * threshold, "core {sticky}");
            }
        }
    }
}

//! Chooses whom to kill: two times of three a primary, else any replica, of any process.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::faults::Done;
use super::load::Workload;
use super::start_as;
use super::watch::Watch;
use crate::child::Setup;
use crate::plan::Rng;

/// What was done, in the folder of a run.
pub(super) const FAULTS: &str = "faults";
/// How often rcoe is asked while it tells nothing.
const GLANCE: Duration = Duration::from_millis(20);

/// Where a workload runs.
pub(super) struct Place<'a> {
    pub(super) setup: &'a Setup,
    pub(super) folder: &'a Path,
    workload: Workload,
    /// The process of rcoe.
    pub(super) job: u32,
}

/// A replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    /// Number of its process of the program, among those that are shown.
    process: usize,
    pub(super) pid: i32,
    /// Is it a primary?
    pub(super) leads: bool,
}

impl<'a> Place<'a> {
    pub(super) fn new(setup: &'a Setup, folder: &'a Path, workload: Workload, job: u32) -> Self {
        Self {
            setup,
            folder,
            workload,
            job,
        }
    }

    /// Has the workload several processes?
    pub(super) const fn is_family(&self) -> bool {
        self.workload.is_family()
    }

    /// Has the workload processes that only wait for others?
    pub(super) const fn may_idle(&self) -> bool {
        matches!(self.workload, Workload::Shell | Workload::Users)
    }

    /// So many of the replicas that are there, each of another process; fewer if there are fewer.
    pub(super) fn choose(&self, watch: &Watch, rng: &mut Rng, count: u64) -> Result<Vec<Victim>> {
        let mut all = if self.is_family() {
            running(&self.snapshot()?)
        } else {
            let seen = &watch.seen;
            let known = seen.pids.iter().map(|(&id, &pid)| Victim {
                process: 0,
                pid,
                leads: id == seen.primary,
            });
            known.collect()
        };
        let mut chosen = Vec::new();
        for _ in 0..count {
            let Some(victim) = one_of(&all, rng) else {
                break;
            };
            all.retain(|other| other.process != victim.process);
            chosen.push(victim);
        }
        ensure!(!chosen.is_empty(), "there is no replica to kill");
        Ok(chosen)
    }

    /// Waits until replicas that were signalled are gone, and all processes have all replicas
    /// again. Of those that share memory others go with them, and of those that end none comes
    /// back.
    pub(super) fn until_whole(&self, watch: &mut Watch, lost: &[i32]) -> Result<()> {
        let mut told = None;
        watch.until("the lost replicas' return", |seen| {
            // Only what was told changes anything, but for processes that end.
            let (news, now) = (seen.news, Instant::now());
            let same = |(old, at): (u64, Instant)| old == news && at + GLANCE > now;
            if told.is_some_and(same) {
                return false;
            }
            told = Some((news, now));
            self.snapshot().is_ok_and(|shown| is_whole(&shown, lost))
        })
    }

    /// Writes down what was done to a replica, with the moment of the run as events have it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn note(&self, done: &Done, victim: &Victim) -> Result<()> {
        let path = self.folder.join(FAULTS);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        let uptime = self.snapshot()?["uptime_seconds"].as_f64();
        let at = uptime.map_or_else(|| "?".into(), |at| format!("{at:.3}"));
        let leads = if victim.leads { "primary" } else { "follower" };
        writeln!(file, "{at} s: {leads} {}: {done:?}", victim.pid)?;
        Ok(())
    }

    /// A number that grows as this replica gets on; `None` if it is none any more.
    ///
    /// # Errors
    /// If rcoe shows nothing.
    pub(super) fn steps(&self, pid: i32) -> Result<Option<u64>> {
        let shown = self.snapshot()?;
        let found = replicas(&shown).find(|(_, it)| it["pid"] == pid);
        Ok(found.map(|(_, it)| {
            let words = ["calls", "rendezvous", "stream_bytes"];
            words.iter().filter_map(|&word| it[word].as_u64()).sum()
        }))
    }

    /// All replicas of all processes, as rcoe shows them to its user. A run that is too busy to
    /// answer in time is asked again.
    pub(super) fn snapshot(&self) -> Result<Value> {
        /// Each waits for an answer as long as `rcoe top` does.
        const ATTEMPTS: usize = 5;
        let mut shown = self.ask();
        for _ in 1..ATTEMPTS {
            if shown.is_ok() {
                break;
            }
            shown = self.ask();
        }
        shown
    }

    fn ask(&self) -> Result<Value> {
        let shown = start_as(self.workload, &self.setup.rcoe)
            .args(["top", &self.job.to_string(), "--json"])
            .env("XDG_RUNTIME_DIR", self.folder)
            .output()
            .context("cannot start rcoe top")?;
        serde_json::from_slice(&shown.stdout).with_context(|| {
            let errors = String::from_utf8_lossy(&shown.stderr);
            format!("rcoe top shows nothing: {}", errors.trim())
        })
    }
}

/// All replicas of a snapshot, with the numbers of their processes.
fn replicas(snapshot: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let processes = snapshot["processes"].as_array().into_iter().flatten();
    processes.enumerate().flat_map(|(process, it)| {
        let replicas = it["replicas"].as_array().into_iter().flatten();
        replicas.map(move |replica| (process, replica))
    })
}

/// A primary two times of three, if one is there.
fn one_of(all: &[Victim], rng: &mut Rng) -> Option<Victim> {
    let leading: Vec<Victim> = all.iter().copied().filter(|it| it.leads).collect();
    let from = if rng.next() % 3 < 2 && !leading.is_empty() {
        &leading
    } else {
        all
    };
    let count = u64::try_from(from.len()).ok().filter(|&count| count > 0)?;
    from.get(usize::try_from(rng.next() % count).ok()?).copied()
}

/// Does every process have all replicas, and is none of these one of them?
fn is_whole(snapshot: &Value, lost: &[i32]) -> bool {
    let mut all = replicas(snapshot).map(|(_, replica)| replica).peekable();
    let is_lost = |it: &Value| lost.iter().any(|&pid| it["pid"] == pid);
    let there = |it: &Value| it["state"] == "running" && !is_lost(it);
    all.peek().is_some() && all.all(there)
}

/// The replicas that run, by a snapshot.
fn running(snapshot: &Value) -> Vec<Victim> {
    let running = replicas(snapshot).filter(|(_, replica)| replica["state"] == "running");
    let victim = |(process, replica): (usize, &Value)| {
        let pid = i32::try_from(replica["pid"].as_i64()?).ok()?;
        let leads = replica["primary"] == true;
        (pid > 0).then_some(Victim {
            process,
            pid,
            leads,
        })
    };
    running.filter_map(victim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_run_are_chosen() {
        let snapshot = serde_json::json!({"processes": [
            {"replicas": [{"pid": 5, "state": "running", "primary": true}]},
            {"replicas": [
                {"pid": 6, "state": "removed", "primary": false},
                {"pid": 7, "state": "running", "primary": false},
                {"pid": 0, "state": "running", "primary": false},
            ]},
        ]});
        let expected = [(0, 5, true), (1, 7, false)];
        let expected = expected.map(|(process, pid, leads)| Victim {
            process,
            pid,
            leads,
        });
        assert_eq!(running(&snapshot), expected);
        let mut rng = Rng::new(&[1]);
        for _ in 0..20 {
            let first = one_of(&expected, &mut rng).expect("a victim");
            assert!(expected.contains(&first));
        }
        assert_eq!(one_of(&[], &mut rng), None);
    }

    #[test]
    fn a_program_is_whole_if_all_its_replicas_run_but_the_lost_one() {
        let shown = |pid: i32, state: &str| {
            let replica = serde_json::json!({"pid": pid, "state": state});
            serde_json::json!({"processes": [{"replicas": [replica]}]})
        };
        assert!(is_whole(&shown(5, "running"), &[6]));
        assert!(!is_whole(&shown(5, "removed"), &[6]));
        assert!(!is_whole(&shown(6, "running"), &[6]));
        assert!(!is_whole(&serde_json::json!({"processes": []}), &[6]));
    }
}

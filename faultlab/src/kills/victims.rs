//! Chooses whom to kill: two times of three a primary, else any replica, of any process.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::load::Workload;
use super::watch::Watch;
use crate::child::Setup;
use crate::plan::Rng;

/// Where a workload runs.
pub(super) struct Place<'a> {
    pub(super) setup: &'a Setup,
    pub(super) folder: &'a Path,
    /// The workload has several processes.
    family: bool,
    /// The process of rcoe.
    job: u32,
}

/// A replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) pid: i32,
    /// Is it a primary?
    pub(super) leads: bool,
}

impl<'a> Place<'a> {
    pub(super) fn new(setup: &'a Setup, folder: &'a Path, workload: Workload, job: u32) -> Self {
        Self {
            setup,
            folder,
            family: workload == Workload::Shell,
            job,
        }
    }

    /// One of the replicas that are there.
    pub(super) fn choose(&self, watch: &Watch, rng: &mut Rng) -> Result<Victim> {
        let mut all = if self.family {
            self.family()?
        } else {
            let seen = &watch.seen;
            let known = seen.pids.iter().map(|(&id, &pid)| Victim {
                pid,
                leads: id == seen.primary,
            });
            known.collect()
        };
        if rng.next() % 3 < 2 {
            all.retain(|victim| victim.leads);
        }
        let count = u64::try_from(all.len())?.max(1);
        let at = usize::try_from(rng.next() % count)?;
        all.get(at).copied().context("there is no replica to kill")
    }

    /// All replicas of all processes, as rcoe shows them to its user.
    fn family(&self) -> Result<Vec<Victim>> {
        let shown = Command::new(&self.setup.rcoe)
            .args(["top", &self.job.to_string(), "--json"])
            .env("XDG_RUNTIME_DIR", self.folder)
            .output()
            .context("cannot start rcoe top")?;
        let shown = serde_json::from_slice(&shown.stdout).context("rcoe top shows nothing")?;
        Ok(running(&shown))
    }
}

/// The replicas that run, by a snapshot.
fn running(snapshot: &Value) -> Vec<Victim> {
    let processes = snapshot["processes"].as_array().into_iter().flatten();
    let replicas = processes.flat_map(|it| it["replicas"].as_array().into_iter().flatten());
    let running = replicas.filter(|replica| replica["state"] == "running");
    let victim = |replica: &Value| {
        let pid = i32::try_from(replica["pid"].as_i64()?).ok()?;
        let leads = replica["primary"] == true;
        (pid > 0).then_some(Victim { pid, leads })
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
        let expected = [(5, true), (7, false)].map(|(pid, leads)| Victim { pid, leads });
        assert_eq!(running(&snapshot), expected);
    }
}

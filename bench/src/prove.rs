//! `rcoe-bench prove`: long campaigns of faults and all suites of costs, as evidence.
//!
//! A plan (`evidence/prove.toml`) names campaigns of the fault lab, each with a count that it has
//! to reach. They are carried out in turn, a *part* of each, by the lab's own commands; what a part
//! counted is one line of a file below `target/prove/COMMIT`, and the sum of all parts is one entry
//! in the campaign's group of `evidence/`. So a proof can be ended at any moment and goes on with
//! the next part, and a short one has something of everything.
//!
//! Contract: what is written belongs to a commit and a machine; parts of others are never added up.
//! Seeds follow from the commit, so that each commit is tried with others. A part with a finding
//! counts like any other and fails the proof; one that the lab could not carry out counts nothing,
//! and the campaign stops there.
//!
//! Not covered: campaigns with replicas of the system sphere on AArch64, and suites of costs that
//! need a registry or a machine of the system sphere.

mod parts;
mod plan;
mod written;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rcoe_faultlab::host;

use parts::{Part, Parts};
use plan::{Campaign, Plan};

use crate::evidence::{FOLDER, File};

/// At a higher load average no costs are measured.
const QUIET: f64 = 1.0;

/// What is to be proven.
#[derive(Args, Clone, Debug)]
pub struct Order {
    /// Only these campaigns and suites; --list names all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Begin no part after so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Only tell how far all are.
    #[arg(long)]
    list: bool,
    /// Also with changes that no commit has: to try a campaign.
    #[arg(long)]
    trial: bool,
    /// The plan [default: prove.toml of the evidence].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Where parts are kept.
    #[arg(long, value_name = "FOLDER", default_value = "target/prove")]
    work: PathBuf,
}

/// How far one of them is.
struct State {
    name: String,
    /// What it has, and what it is to have.
    count: [u64; 2],
    /// Of what.
    unit: String,
    findings: usize,
    /// Why it stopped early, if it did.
    error: Option<String>,
}

impl State {
    fn is_due(&self) -> bool {
        self.count[0] < self.count[1] && self.error.is_none()
    }
}

/// Carries out what is due, and tells how far all are. True if nothing was found.
///
/// # Errors
///
/// If the plan, the parts or the evidence cannot be read or written, or there are changes.
pub fn run(order: &Order, evidence: Option<&Path>) -> Result<bool> {
    let evidence = evidence.unwrap_or_else(|| Path::new(FOLDER));
    let own = || evidence.join("prove.toml");
    let plan = Plan::read(&order.plan.clone().unwrap_or_else(own), &order.only)?;
    let proof = Proof {
        commit: host::commit(),
        machine: host::machine(),
        evidence: evidence.to_owned(),
        lab: std::env::current_exe()?.with_file_name("rcoe-faultlab"),
        folder: order.work.join(host::commit()),
    };
    ensure!(
        order.list || order.trial || !proof.commit.ends_with("-dirty"),
        "there are changes that no commit has: commit them, or say --trial"
    );
    let mut states = Vec::new();
    for campaign in &plan.campaign {
        states.push(proof.state(campaign)?);
    }
    for suite in &plan.suite {
        states.push(proof.state_of_suite(&suite.name));
    }
    if !order.list {
        std::fs::create_dir_all(&proof.folder)?;
        println!("commit {}, seeds from {}", proof.commit, proof.seed());
        let end = order.minutes.map(|it| Duration::from_secs_f64(it * 60.0));
        let end = end.map(|length| Instant::now() + length);
        let (campaigns, suites) = states.split_at_mut(plan.campaign.len());
        proof.measure(suites, end)?;
        proof.inject(&plan.campaign, campaigns, end)?;
    }
    Ok(told(&states))
}

/// A table of all; true if nothing was found.
fn told(states: &[State]) -> bool {
    println!("\n{:<18} {:>12} {:>12}  of", "name", "has", "is to have");
    for state in states {
        let [has, goal] = state.count;
        let found = match (&state.error, state.findings) {
            (Some(error), _) => format!("; {error}"),
            (None, 0) => String::new(),
            (None, findings) => format!("; FOUND SOMETHING in {findings} parts"),
        };
        println!(
            "{:<18} {has:>12} {goal:>12}  {}{found}",
            state.name, state.unit
        );
    }
    let failed = states
        .iter()
        .any(|it| it.findings > 0 || it.error.is_some());
    if states.iter().any(State::is_due) {
        println!("\nnot all is done: the same command goes on");
    }
    !failed
}

/// Where and of what.
struct Proof {
    commit: String,
    machine: String,
    evidence: PathBuf,
    lab: PathBuf,
    folder: PathBuf,
}

impl Proof {
    /// The first seed: of this commit, and of no other.
    fn seed(&self) -> u64 {
        let digits = self.commit.get(..7).unwrap_or("1");
        u64::from_str_radix(digits, 16).unwrap_or(1)
    }

    fn parts(&self, campaign: &Campaign) -> Result<Parts> {
        Parts::open(&self.folder, &campaign.name, &campaign.command)
    }

    fn state(&self, campaign: &Campaign) -> Result<State> {
        let parts = self.parts(campaign)?;
        Ok(State {
            name: campaign.name.clone(),
            count: [parts.sum(&campaign.count), campaign.at_least],
            unit: campaign.count.clone(),
            findings: parts.findings(),
            error: None,
        })
    }

    /// Parts of all campaigns in turn, until none is due or the time is over.
    fn inject(
        &self,
        campaigns: &[Campaign],
        states: &mut [State],
        end: Option<Instant>,
    ) -> Result<()> {
        while states.iter().any(State::is_due) {
            for (campaign, state) in campaigns.iter().zip(&mut *states) {
                if end.is_some_and(|end| Instant::now() >= end) {
                    return Ok(());
                }
                if state.is_due() {
                    self.advance(campaign, state)?;
                }
            }
        }
        Ok(())
    }

    /// One part of a campaign.
    fn advance(&self, campaign: &Campaign, state: &mut State) -> Result<()> {
        let mut parts = self.parts(campaign)?;
        let began = Instant::now();
        let (seed, log) = (self.seed() + 1000 * parts.len(), parts.log());
        match Part::carry_out(&self.lab, campaign, seed, &log) {
            Ok(part) => parts.add(part)?,
            Err(error) => {
                state.error = Some(format!("stopped: {error:#}"));
                println!("{}: {error:#}", campaign.name);
                return Ok(());
            }
        }
        *state = self.state(campaign)?;
        let [has, goal] = state.count;
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{}: {has} of {goal} {}, {} parts with a finding ({seconds:.0} s; {})",
            campaign.name,
            campaign.count,
            state.findings,
            log.display()
        );
        written::put(
            &self.evidence,
            campaign,
            &parts,
            [&self.commit, &self.machine],
        )
    }

    /// A suite is done where its file is of this commit.
    fn state_of_suite(&self, name: &str) -> State {
        let path = self.evidence.join("cost").join(format!("{name}.json"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let file = serde_json::from_str::<File>(&text);
        let done = file.is_ok_and(|file| file.commit == self.commit);
        State {
            name: name.to_owned(),
            count: [u64::from(done), 1],
            unit: "suite".into(),
            findings: 0,
            error: None,
        }
    }

    /// Measures what no file has, as long as the machine is quiet.
    fn measure(&self, states: &mut [State], end: Option<Instant>) -> Result<()> {
        for state in states.iter_mut().filter(|state| state.is_due()) {
            if end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let load = load()?;
            if load > QUIET {
                let name = &state.name;
                println!(
                    "{name}: not measured at a load of {load}: above {QUIET} it tells nothing"
                );
                continue;
            }
            println!("{}: measuring", state.name);
            let mut bench = Command::new(std::env::current_exe()?);
            bench
                .args(["--only", &state.name, "--evidence"])
                .arg(&self.evidence);
            let status = bench.status().context("cannot start the bench")?;
            *state = self.state_of_suite(&state.name);
            if !status.success() {
                state.error = Some(format!("stopped: the bench ended with {status}"));
            }
        }
        Ok(())
    }
}

/// The load average of the last minute.
fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    let first = text.split(' ').next().and_then(|load| load.parse().ok());
    first.context("no load average")
}

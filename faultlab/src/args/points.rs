//! The command line of `points`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use rcoe_faultlab::child::Setup;
use rcoe_faultlab::host;
use rcoe_faultlab::points::programs::{self, Subject};
use rcoe_faultlab::points::report::Header;
use rcoe_faultlab::points::verify::Case;

use crate::args::RcoeArgs;

#[derive(Args, Debug)]
pub(crate) struct PointsArgs {
    /// Programs, separated by commas, or all that are installed.
    #[arg(long, default_value = "all")]
    pub(crate) program: String,
    /// Numbers of replicas, in turn.
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2,3",
        value_parser = clap::value_parser!(u64).range(2..=8))]
    pub(crate) replicas: Vec<u64>,
    /// Points to verify in each run.
    #[arg(long, default_value_t = 100)]
    pub(crate) points: u64,
    /// Rounds through all programs and numbers of replicas.
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: u64,
    /// Decides when signals are sent.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// rcoe's slice.
    #[arg(long, default_value = "5ms")]
    pub(crate) slice: String,
    /// rcoe's ticks, as in 20ms: replicas count how far they are, and one that comes to no point is
    /// taken for faulty; none if left out.
    #[arg(long, value_name = "TIME")]
    pub(crate) tick: Option<String>,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    pub(crate) rcoe: Option<PathBuf>,
    /// Seconds after which a run counts as a hang and is ended.
    #[arg(long, default_value_t = 300)]
    pub(crate) deadline: u64,
    /// Where results are appended, one JSON line each.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Go on with an existing journal: runs that it holds are left out.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print totals as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

impl PointsArgs {
    /// Replicas stand still while they are compared, which is no reason to remove them.
    pub(crate) fn setup(&self, folder: &Path) -> Result<Setup> {
        let common = RcoeArgs {
            rcoe: self.rcoe.clone(),
            timeout: "60s".into(),
            deadline: self.deadline,
        };
        let mut more: Vec<String> = ["--slice", &self.slice, "--stats"]
            .map(str::to_owned)
            .into();
        if let Some(tick) = &self.tick {
            more.extend(["--tick".to_owned(), tick.clone()]);
        }
        Ok(Setup {
            more,
            held: true,
            ..common.setup(folder)?
        })
    }

    pub(crate) fn header(&self) -> Header {
        Header {
            campaign: format!(
                "programs {}, n {:?}, {} points a run, slice {}, tick {}, seed {}",
                self.program,
                self.replicas,
                self.points,
                self.slice,
                self.tick.as_deref().unwrap_or("off"),
                self.seed
            ),
            commit: host::commit(),
            machine: host::machine(),
        }
    }

    /// All runs, in order.
    pub(crate) fn cases(&self) -> Result<Vec<Case>> {
        let subjects: Vec<Subject> = programs::select(&self.program)?;
        let mut cases = Vec::new();
        for _ in 0..self.rounds {
            for subject in &subjects {
                for &replicas in &self.replicas {
                    cases.push(Case {
                        index: cases.len() as u64,
                        seed: self.seed,
                        subject: *subject,
                        replicas: usize::try_from(replicas)?,
                        points: self.points,
                    });
                }
            }
        }
        Ok(cases)
    }
}

//! What is asked of `frames`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rcoe_faultlab::system::frames::{Campaign, Setup};

#[derive(Args, Debug)]
pub(crate) struct FramesArgs {
    /// The machine: x86_64 or aarch64.
    #[arg(long, default_value = "x86_64")]
    pub(crate) arch: String,
    /// Number of frames.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) count: u64,
    /// Number of replicas.
    #[arg(short = 'n', long, default_value_t = 2)]
    pub(crate) replicas: usize,
    /// What rcoe compares: io, args or every.
    #[arg(long, default_value = "args")]
    compare: String,
    /// Seed: it decides what is made up.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    rcoe: Option<PathBuf>,
    /// Seconds that an answer may take: half a connection of somebody who is gone ends after 180.
    #[arg(long, default_value_t = 400)]
    deadline: u64,
}

impl FramesArgs {
    pub(crate) fn campaign(&self) -> Campaign {
        Campaign {
            arch: self.arch.clone(),
            seed: self.seed,
            replicas: self.replicas,
            compare: self.compare.clone(),
            frames: self.count,
        }
    }

    pub(crate) fn setup(&self, folder: &Path) -> Result<Setup> {
        Ok(Setup {
            rcoe: super::rcoe(self.rcoe.as_deref())?,
            folder: folder.to_owned(),
            deadline: Duration::from_secs(self.deadline),
        })
    }
}

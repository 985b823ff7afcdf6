//! An rcoe that runs a machine, with a folder of its own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use crate::events::Events;
use crate::interrupt;

/// A command that runs this rcoe, which ends with the lab, however that ends. The thread that
/// starts it must be there as long.
pub(super) fn rcoe(path: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(path);
    command
}

/// An rcoe with its folder, neither of which outlives this.
pub(super) struct Process {
    pub(super) child: Child,
    folder: PathBuf,
}

impl Process {
    /// Starts rcoe in a folder, with what it says in the files `out` and `err`.
    pub(super) fn start(mut command: Command, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let file = |name: &str| File::create(folder.join(name));
        command.current_dir(folder).process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(file("out")?)
            .stderr(file("err")?);
        let child = interrupt::let_through(|| command.spawn());
        Ok(Self {
            child: child.context("cannot start rcoe")?,
            folder: folder.to_owned(),
        })
    }

    /// A file of the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// What the events have told so far.
    pub(super) fn seen(&self) -> Events {
        Events::read(&self.file("events"))
    }

    /// The last that rcoe said.
    pub(super) fn told(&self) -> String {
        const LINES: usize = 12;
        let text = fs::read_to_string(self.file("err")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("; ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended or not, nothing of it stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

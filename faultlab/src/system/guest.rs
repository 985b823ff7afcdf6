//! A machine that runs an operating system as a guest, which is what is hit.
//!
//! Registers are hit while the victim's program runs, which is the guest as a rule; memory is that
//! which the guest has, as far as it was ever written. It is judged by what it prints: of Linux
//! what its programs print, since what the kernel tells of itself has the time in it.
//!
//! Not covered: the monitor and the kernel below the guest, which other campaigns hit, and
//! registers of level 1.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// What runs as a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its file.
    pub file: PathBuf,
    /// First files of Linux.
    pub initrd: Option<PathBuf>,
    /// Its argument, or the words of its command line.
    pub words: Vec<String>,
    /// Memory of each replica, in MiB.
    pub memory: u64,
    /// The line with which its start is over: machines go on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Are its registers hit alone, and not its memory?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub registers: bool,
}

impl Guest {
    /// The same, by paths that hold in any folder.
    ///
    /// # Errors
    /// If a file is not there.
    pub fn absolute(mut self) -> Result<Self> {
        for path in [Some(&mut self.file), self.initrd.as_mut()]
            .into_iter()
            .flatten()
        {
            let found = path.canonicalize();
            *path = found.with_context(|| path.display().to_string())?;
        }
        Ok(self)
    }

    /// As reports name it.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Bytes of each replica's partition.
    pub(super) const fn partition(&self) -> u64 {
        self.memory << 20
    }

    /// Has rcoe run it.
    pub(super) fn tell(&self, command: &mut Command) {
        command.arg("--guest").arg(&self.file);
        if let Some(files) = &self.initrd {
            command.arg("--initrd").arg(files);
        }
        command.args(["--memory", &format!("{}M", self.memory)]);
    }
}

/// What programs printed: all lines but those of Linux itself, which begin with the time.
pub(super) fn printed(out: &[u8]) -> Vec<u8> {
    let lines = out.split_inclusive(|&byte| byte == b'\n');
    let own = lines.filter(|line| !line.starts_with(b"["));
    own.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::printed;

    #[test]
    fn what_linux_tells_of_itself_is_not_judged() {
        let out = b"[    0.1] Booting\r\nbegin\r\n[    2.0] reboot: Power down\r\nend";
        assert_eq!(printed(out), b"begin\r\nend");
        assert_eq!(printed(b"[    0."), b"");
    }
}

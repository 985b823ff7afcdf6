//! What keeps a machine from being started or watched.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::Arch;

/// Why the system sphere cannot be used.
#[derive(Debug, Error)]
pub enum SystemError {
    /// No emulator.
    #[error(
        "{} is not installed; run this, then try again:\n  \
         sudo apt-get install -y --no-install-recommends {}",
        .0.emulator(),
        .0.package()
    )]
    NoEmulator(Arch),
    /// No kernel.
    #[error("there is no system image at {0}; build it with: cargo xtask image")]
    NoImage(PathBuf),
    /// A kernel that was not built from what this command was built from.
    #[error(
        "the system image at {path} is {found}, and this command is of build {own}: they may not \
         understand each other; build both from one checkout (cargo xtask image; cargo build \
         --release -p rcoe), or install both from one package"
    )]
    OtherBuild {
        /// The folder of the image.
        path: PathBuf,
        /// What its kernel says of itself.
        found: String,
        /// The identity of this build.
        own: &'static str,
    },
    /// A program that cannot be started.
    #[error("{path}: {why}")]
    Program {
        /// Which.
        path: String,
        /// Why not.
        why: String,
    },
    /// A program that is not there.
    #[error("{0}: neither a program of the system image nor a file ({1})")]
    NotFound(String, String),
    /// A setting that the machine cannot have.
    #[error("{0}")]
    Setting(String),
    /// The host failed us.
    #[error("{what}")]
    Host {
        /// What was to be done.
        what: String,
        /// What came of it: the cause, which whoever shows the error shows behind it.
        source: io::Error,
    },
}

impl SystemError {
    /// Wraps a failure of the host.
    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Host { what, source }
    }
}

//! Why a run could not start or had to be given up, with the exit status that says so.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Exit status after a detected fault that could not be masked.
pub const EXIT_FAIL_STOP: u8 = 86;
/// Exit status of rcoe's own failures.
pub const EXIT_OWN_FAILURE: u8 = 125;
/// Exit status for a program that cannot be executed.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// Exit status for a program that does not exist.
pub const EXIT_NOT_FOUND: u8 = 127;

/// Where a name was looked for, as the end of a sentence.
fn searched(name: &std::ffi::OsStr) -> &'static str {
    if name.as_encoded_bytes().contains(&b'/') {
        ""
    } else {
        " in any folder of PATH"
    }
}

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such file, directly or along `PATH`.
    #[error("{}: not found{}", .0.display(), searched(.0))]
    NotFound(OsString),
    /// The `#!` interpreter does not exist.
    #[error(
        "{}: its interpreter {} (named in its first line) does not exist",
        .script.display(), .interpreter.display()
    )]
    NoScriptInterpreter {
        /// The script.
        script: PathBuf,
        /// What its first line names.
        interpreter: PathBuf,
    },
    /// The dynamic loader does not exist.
    #[error("{}: its dynamic loader {} does not exist", .program.display(), .loader.display())]
    NoLoader {
        /// The program.
        program: PathBuf,
        /// What its `PT_INTERP` names.
        loader: PathBuf,
    },
    /// It exists but may not or cannot be executed.
    #[error("{}: {}", .0.display(), .1)]
    Refused(PathBuf, String),
    /// The file cannot be examined.
    #[error("{}: cannot be read, which rcoe must do to load it: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
}

impl ProgramError {
    /// 127 if something is missing, 126 otherwise, as `env` has it.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::NotFound(_) | Self::NoScriptInterpreter { .. } | Self::NoLoader { .. } => {
                EXIT_NOT_FOUND
            }
            Self::Refused(..) | Self::Unreadable(..) => EXIT_NOT_EXECUTABLE,
        }
    }
}

/// Why a run could not start or had to be given up.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program cannot be run.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The agent could not load the program.
    #[error("{}: the agent could not load it: {error}", .program.display())]
    Load {
        /// The program.
        program: PathBuf,
        /// The errno it met.
        error: io::Error,
    },
    /// The agent gave up in every replica alike.
    #[error("the agent failed: {0}")]
    Agent(String),
    /// A request of the user that this machine cannot fulfil.
    #[error("{0}")]
    Setting(String),
    /// A system call of the supervisor failed.
    #[error("{doing}: {error}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

impl RunError {
    /// The exit status that tells the user's shell.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Program(error) => error.exit_status(),
            Self::Load { .. } => EXIT_NOT_EXECUTABLE,
            Self::Agent(_) | Self::Setting(_) | Self::System { .. } => EXIT_OWN_FAILURE,
        }
    }
}

/// Names what was being done when a system call failed.
pub(crate) trait Doing<T> {
    /// Turns the error into a [`RunError::System`].
    fn doing(self, doing: &'static str) -> Result<T, RunError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, RunError> {
        self.map_err(|error| RunError::System {
            doing,
            error: error.into(),
        })
    }
}

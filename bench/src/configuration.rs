//! The ways a program is run.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Bare, or under rcoe with so many replicas and this mode of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Configuration {
    /// Replicas; 0 is native.
    pub replicas: usize,
    /// `--compare`; meaningless for native.
    pub compare: &'static str,
    /// So many at once, if more than one: the floor that native copies set.
    pub copies: usize,
    /// `--scrub`, if not as by default; 0 for none.
    pub scrub: Option<u16>,
    /// Unless `--no-reintegrate`.
    pub reintegrate: bool,
    /// `--timeout`, if not as by default.
    pub timeout: Option<&'static str>,
    /// Unless `--defer off`.
    pub defer: bool,
    /// As `--slice` has it; `None` as it is by default.
    pub slice: Option<&'static str>,
    /// Unless `--no-ledger`: with what earlier runs have found in programs.
    pub ledger: bool,
    /// Native only: under Syscall User Dispatch that lets every call through.
    pub dispatched: bool,
}

/// Preloads `dispatched.c`, which a workshop compiles into its folder.
const PRELOAD: &str = "LD_PRELOAD=./dispatched.so";

/// Without rcoe.
pub const NATIVE: Configuration = Configuration {
    replicas: 0,
    compare: "",
    copies: 1,
    scrub: None,
    reintegrate: true,
    timeout: None,
    defer: true,
    slice: None,
    ledger: true,
    dispatched: false,
};

/// Without rcoe, but entered by the host as slowly as what rcoe runs: what no program under it goes
/// below.
pub const DISPATCHED: Configuration = Configuration {
    dispatched: true,
    ..NATIVE
};

/// Under rcoe.
#[must_use]
pub const fn protected(replicas: usize, compare: &'static str) -> Configuration {
    Configuration {
        replicas,
        compare,
        copies: 1,
        scrub: None,
        reintegrate: true,
        timeout: None,
        defer: true,
        slice: None,
        ledger: true,
        dispatched: false,
    }
}

impl Configuration {
    /// The words that run `command` this way; events go to `events` if given.
    #[must_use]
    pub fn words(self, rcoe: &Path, events: Option<&Path>, command: &[OsString]) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if self.dispatched {
            words.extend(["env", "DISPATCHED=1", PRELOAD].map(OsString::from));
        }
        if self.replicas > 0 {
            words.extend([rcoe.as_os_str().to_owned(), "run".into(), "-n".into()]);
            words.extend([
                self.replicas.to_string().into(),
                "--compare".into(),
                self.compare.into(),
            ]);
            words.extend(
                events
                    .map(|path| ["--events".into(), path.as_os_str().to_owned()])
                    .into_iter()
                    .flatten(),
            );
            if let Some(mib) = self.scrub {
                words.extend(["--scrub".into(), mib.to_string().into()]);
            }
            if let Some(time) = self.timeout {
                words.extend(["--timeout".into(), time.into()]);
            }
            if let Some(slice) = self.slice {
                words.extend(["--slice".into(), slice.into()]);
            }
            if !self.ledger {
                words.push("--no-ledger".into());
            }
            if !self.reintegrate {
                words.push("--no-reintegrate".into());
            }
            if !self.defer {
                words.extend(["--defer".into(), "off".into()]);
            }
            words.push("--".into());
        }
        words.extend_from_slice(command);
        words
    }

    /// The same, so many times at once.
    #[must_use]
    pub const fn copies(self, copies: usize) -> Self {
        Self { copies, ..self }
    }

    /// Whether this is the plain program, once.
    #[must_use]
    pub fn is_native(self) -> bool {
        self == NATIVE
    }

    /// Whether replicas outnumber `cpus`.
    #[must_use]
    pub fn is_crowded(self, cpus: usize) -> bool {
        self.replicas.max(self.copies) > cpus
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replicas {
            0 if self.dispatched => f.write_str("native under dispatch"),
            0 if self.copies > 1 => write!(f, "floor: {} native", self.copies),
            0 => f.write_str("native"),
            n => {
                write!(f, "n={n} {}", self.compare)?;
                match self.scrub {
                    None => {}
                    Some(0) => f.write_str(", scrub off")?,
                    Some(mib) => write!(f, ", scrub {mib}")?,
                }
                if let Some(slice) = self.slice {
                    write!(f, ", slice {slice}")?;
                }
                f.write_str(if self.ledger { "" } else { ", first run" })?;
                f.write_str(if self.defer { "" } else { ", defer off" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Configuration, DISPATCHED, NATIVE, protected};

    #[test]
    fn words_of_both_kinds() {
        let command = ["true".into()];
        assert_eq!(NATIVE.words(Path::new("rcoe"), None, &command), ["true"]);
        let words = protected(2, "io").words(Path::new("rcoe"), Some(Path::new("e")), &command);
        let expected = [
            "rcoe",
            "run",
            "-n",
            "2",
            "--compare",
            "io",
            "--events",
            "e",
            "--",
            "true",
        ];
        assert_eq!(words, expected);
    }
    #[test]
    fn dispatch_is_preloaded() {
        let words = DISPATCHED.words(Path::new("rcoe"), None, &["true".into()]);
        let expected = ["env", "DISPATCHED=1", "LD_PRELOAD=./dispatched.so", "true"];
        assert_eq!(words, expected);
        assert_eq!(DISPATCHED.to_string(), "native under dispatch");
        assert!(!DISPATCHED.is_native());
    }

    #[test]
    fn what_is_switched_off_is_told() {
        let configuration = Configuration {
            defer: false,
            scrub: Some(0),
            ledger: false,
            ..protected(2, "args")
        };
        let told = "n=2 args, scrub off, first run, defer off";
        assert_eq!(configuration.to_string(), told);
        let words = configuration.words(Path::new("rcoe"), None, &["true".into()]);
        let switches: Vec<_> = words[6..].iter().filter_map(|word| word.to_str()).collect();
        let expected = [
            "--scrub",
            "0",
            "--no-ledger",
            "--defer",
            "off",
            "--",
            "true",
        ];
        assert_eq!(switches, expected);
        assert_eq!(protected(2, "args").to_string(), "n=2 args");
    }
}

//! A folder with the compiled probe and the input files, and how programs are run in it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rcoe_faultlab::plan::Rng;

use crate::configuration::Configuration;

const PROBE: &str = concat!(include_str!("dispatched.c"), include_str!("probe.c"));
const DISPATCHED: &str = include_str!("dispatched.c");

/// The folder vanishes with this value.
#[derive(Debug)]
pub struct Workshop {
    folder: PathBuf,
    rcoe: PathBuf,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Repetitions of suites with long runs.
    pub long: usize,
    /// Repetitions of suites with short runs.
    pub short: usize,
    /// Repetitions of suites that take minutes.
    pub rare: usize,
    /// Calls per loop.
    pub calls: u64,
    /// Divides the work of CPU-bound programs.
    pub divide: u64,
    /// Iterations that are counted instruction by instruction.
    pub iterations: usize,
    /// Rounds of the suite about servers.
    pub rounds: usize,
    /// Seconds for which a server is measured in one turn.
    pub seconds: f64,
}

impl Scale {
    /// For published figures.
    pub const FULL: Self = Self {
        long: 7,
        short: 31,
        rare: 3,
        calls: 200_000,
        divide: 1,
        iterations: 9,
        rounds: 5,
        seconds: 3.0,
    };
    /// To see that everything works.
    pub const QUICK: Self = Self {
        long: 3,
        short: 5,
        rare: 1,
        calls: 20_000,
        divide: 10,
        iterations: 3,
        rounds: 2,
        seconds: 2.0,
    };
}

impl Workshop {
    /// Makes the folder, compiles the probe, writes the inputs.
    ///
    /// # Errors
    ///
    /// If there is no C compiler, no rcoe, or no room.
    pub fn open(rcoe: &Path) -> Result<Self> {
        ensure!(
            rcoe.exists(),
            "{} does not exist: build it or give --rcoe",
            rcoe.display()
        );
        let name = format!("rcoe-bench-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).context("cannot create the work folder")?;
        let workshop = Self {
            folder,
            rcoe: std::path::absolute(rcoe)?,
        };
        workshop.compile("probe", PROBE, &["-static", "-pthread"])?;
        workshop.compile("dispatched.so", DISPATCHED, &["-shared", "-fPIC"])?;
        workshop.write_inputs()?;
        Ok(workshop)
    }

    /// Compiles a program or library from C, into the folder.
    ///
    /// # Errors
    ///
    /// If there is no C compiler, or it refuses.
    pub fn compile(&self, name: &str, text: &str, flags: &[&str]) -> Result<()> {
        let source = self.path(&format!("{name}.c"));
        fs::write(&source, text)?;
        let mut compiler = Command::new("cc");
        compiler
            .arg("-O2")
            .args(flags)
            .arg("-o")
            .arg(self.path(name))
            .arg(&source);
        let status = compiler
            .status()
            .context("cannot run cc: apt-get install gcc libc6-dev")?;
        ensure!(status.success(), "cc failed: {status}");
        Ok(())
    }

    fn write_inputs(&self) -> Result<()> {
        let mut rng = Rng::new(&[0x6265_6e63_6800]);
        let random: Vec<u8> = (0..(32 << 20) / 8)
            .flat_map(|_| rng.next().to_le_bytes())
            .collect();
        fs::write(self.path("random-32m"), &random)?;
        let digits = random[..4 << 20]
            .iter()
            .map(|byte| b"0123456789 ,;\n-+"[usize::from(byte % 16)]);
        fs::write(self.path("text-4m"), digits.collect::<Vec<_>>())?;
        Ok(())
    }

    /// A file in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A command that runs `words` as configured, in the folder, in a fixed environment, without
    /// input and output.
    #[must_use]
    pub fn command(
        &self,
        configuration: Configuration,
        events: Option<&Path>,
        words: &[OsString],
    ) -> Command {
        self.execute(&configuration.words(&self.rcoe, events, words))
    }

    /// The same, but it is killed when the thread that starts it ends, and so with this program,
    /// however that ends.
    ///
    /// # Errors
    ///
    /// If there is no `setpriv`, which arranges that.
    pub fn tethered(
        &self,
        configuration: Configuration,
        events: Option<&Path>,
        words: &[OsString],
    ) -> Result<Command> {
        let mut line = vec![tool("setpriv", "util-linux")?.into_os_string()];
        line.extend(["--pdeathsig", "KILL", "--"].map(OsString::from));
        line.extend(configuration.words(&self.rcoe, events, words));
        Ok(self.execute(&line))
    }

    /// The words of such a command.
    #[must_use]
    pub fn words(&self, configuration: Configuration, words: &[OsString]) -> Vec<OsString> {
        configuration.words(&self.rcoe, None, words)
    }

    fn execute(&self, words: &[OsString]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.folder);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            // Where rcoe keeps what it has found in programs, as it does for any user.
            .env("HOME", &self.folder)
            .env("LC_ALL", "C");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        command
    }

    /// Seconds from start to end of a run, which must succeed.
    ///
    /// # Errors
    ///
    /// If the program cannot be started or fails.
    pub fn seconds(&self, configuration: Configuration, words: &[OsString]) -> Result<f64> {
        let mut command = self.command(configuration, None, words);
        let started = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("cannot start {command:?}"))?;
        let taken = started.elapsed().as_secs_f64();
        ensure!(status.success(), "{command:?} ended with {status}");
        Ok(taken)
    }

    /// Output of a run, which must succeed.
    ///
    /// # Errors
    ///
    /// If the program cannot be started or fails.
    pub fn output(&self, configuration: Configuration, words: &[OsString]) -> Result<String> {
        let mut command = self.command(configuration, None, words);
        let done = command.stdout(Stdio::piped()).output();
        let done = done.with_context(|| format!("cannot start {command:?}"))?;
        ensure!(
            done.status.success(),
            "{command:?} ended with {}",
            done.status
        );
        String::from_utf8(done.stdout).context("output is not text")
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // A folder left in the place for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The configurations of repetition `repetition`: all of them, in an order that rotates.
pub fn rotated(all: &[Configuration], repetition: usize) -> impl Iterator<Item = Configuration> {
    all.iter()
        .copied()
        .cycle()
        .skip(repetition % all.len().max(1))
        .take(all.len())
}

/// Where this program lies.
///
/// # Errors
///
/// If it is not installed; says which Debian package brings it.
pub fn tool(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What only root is thought to start is not in everybody's path.
    let more = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(name));
    let found = places.find(|place| place.is_file());
    found.with_context(|| format!("{name} is missing: apt-get install {package}"))
}

/// Words of a command.
#[must_use]
pub fn words(line: &[&str]) -> Vec<OsString> {
    line.iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Child;

    use super::{Workshop, rotated, tool, words};
    use crate::configuration::{NATIVE, protected};

    #[test]
    fn every_repetition_holds_all_configurations() {
        let all = [NATIVE, protected(1, "args"), protected(2, "args")];
        assert_eq!(rotated(&all, 0).collect::<Vec<_>>(), all);
        assert_eq!(
            rotated(&all, 4).collect::<Vec<_>>(),
            [all[1], all[2], all[0]]
        );
    }

    #[test]
    fn who_misses_a_program_is_told_its_package() {
        let error = tool("no-such-server", "its-package").unwrap_err();
        assert!(error.to_string().ends_with("apt-get install its-package"));
    }

    /// Starts a sleep, and returns when that is what runs.
    fn sleeper() -> Child {
        let workshop = Workshop {
            folder: std::env::temp_dir(),
            rcoe: "rcoe".into(),
        };
        let command = workshop.tethered(NATIVE, None, &words(&["sleep", "1000"]));
        // Its folder is not its own.
        std::mem::forget(workshop);
        let child = command.unwrap().spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn a_tethered_command_ends_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(sleeper).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}

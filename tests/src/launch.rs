//! Starts one command in a session of its own, with a deadline, and tells what came of it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::{postmortem, proc};

/// How long a dying process of a session may take to go after the session's leader: it has to give
/// back its memory, on a machine that is busy.
const GRACE: Duration = Duration::from_secs(10);

/// The only environment a launched program sees.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/bin:/bin:/usr/sbin:/sbin:/usr/games"),
    ("LC_ALL", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

/// The environment of a launched program, but for its home.
pub(crate) fn environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENVIRONMENT.iter().copied()
}

/// How a command ended, as a shell would show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// Not by itself: the deadline passed and it was killed.
    Late,
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Late,
        }
    }
}

/// Everything a finished command left behind outside its directory.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Processes of its session that still lived when it had ended (then killed).
    pub survivors: usize,
    /// Wall-clock time it took.
    pub took: Duration,
}

impl Outcome {
    /// Standard output as text.
    #[must_use]
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// A command that runs in a session of its own.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    started: Instant,
}

/// Begins a command that runs in a session of its own. A shell without job control starts what it
/// puts into the background with the terminal's signals ignored, and `nohup` ignores its loss; both
/// are inherited. Here all signals have their usual effect, however the tests were started.
pub(crate) fn in_new_session() -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", "/usr/bin/setsid"]);
    command
}

/// Starts `argv` in `directory`, reading from `stdin` or from an empty file.
///
/// # Errors
/// If the temporary files cannot be made or the process cannot be started.
pub fn start(argv: &[String], directory: &Path, stdin: Option<&Path>) -> Result<Running> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let input = File::open(stdin.unwrap_or(Path::new("/dev/null")))?;
    let child = in_new_session()
        .args(argv)
        .current_dir(directory)
        .env_clear()
        .envs(environment())
        .env("HOME", directory)
        .stdin(input)
        .stdout(Stdio::from(stdout.try_clone()?))
        .stderr(Stdio::from(stderr.try_clone()?))
        .spawn()
        .with_context(|| format!("starting {argv:?}"))?;
    Ok(Running {
        child,
        stdout,
        stderr,
        started: Instant::now(),
    })
}

impl Running {
    /// The id of the started process, which is also that of its session.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has the started process ended?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // One that cannot be found any more has.
        wait_for(self.pid(), Duration::ZERO).unwrap_or(true)
    }

    /// What it has written to standard output so far.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub fn stdout_so_far(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&content(&self.stdout)?).into_owned())
    }

    /// What it has written to standard error so far.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub fn stderr_so_far(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&content(&self.stderr)?).into_owned())
    }

    /// Waits for the end, at most `limit`, and then kills what is left of the session.
    ///
    /// # Errors
    /// If waiting fails or the output cannot be read.
    pub fn finish(self, limit: Duration) -> Result<Outcome> {
        self.finish_with_grace(limit, GRACE)
    }

    fn finish_with_grace(mut self, limit: Duration, grace: Duration) -> Result<Outcome> {
        let in_time = wait_for(self.pid(), limit)?;
        let took = self.started.elapsed();
        let survivors = if in_time {
            survivors_after(self.pid(), grace)
        } else {
            0
        };
        kill_session(self.pid());
        let status = self.child.wait()?;
        Ok(Outcome {
            ended: if in_time { status.into() } else { Ended::Late },
            stdout: content(&self.stdout)?,
            stderr: content(&self.stderr)?,
            survivors,
            took,
        })
    }
}

/// A test that fails tells what it can of the command, and leaves nothing behind.
impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let errors = self.stderr_so_far().unwrap_or_default();
            eprintln!("{}", postmortem::processes(self.pid()));
            eprintln!("standard error:\n{}", postmortem::tail(&errors));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_session(self.pid());
            // It is gone or was never there: nobody is left to be told.
            let _ = self.child.wait();
        }
    }
}

/// Starts and finishes `argv`.
///
/// # Errors
/// As [`start`] and [`Running::finish`].
pub fn run(
    argv: &[String],
    directory: &Path,
    stdin: Option<&Path>,
    limit: Duration,
) -> Result<Outcome> {
    start(argv, directory, stdin)?.finish(limit)
}

/// Sends a signal to a process that this test started.
///
/// # Errors
/// If there is no such process.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("not a process id")?;
    Ok(kill_process(pid, signal)?)
}

/// Whether the child `pid` ended within `limit`; it stays to be reaped.
fn wait_for(pid: u32, limit: Duration) -> Result<bool> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("not a process id")?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: 1_000_000,
        };
        let mut handles = [PollFd::new(&handle, PollFlags::IN)];
        match poll(&mut handles, Some(&left)) {
            Ok(0) if Instant::now() < deadline => {}
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How many processes of the session outlive its leader by so long.
fn survivors_after(session: u32, grace: Duration) -> usize {
    let deadline = Instant::now() + grace;
    loop {
        let left = proc::session(session)
            .iter()
            .filter(|process| process.pid != session)
            .count();
        if left == 0 || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills all processes of a session.
pub(crate) fn kill_session(session: u32) {
    for process in proc::session(session) {
        // It may have ended since it was listed: then there is nothing left to kill.
        let _ = signal(process.pid, Signal::KILL);
    }
}

/// Reads the whole file by position: its offset belongs to the process that still writes it.
fn content(file: &File) -> Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len())?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Outcome {
        let argv = ["sh", "-c", script].map(str::to_owned);
        run(&argv, Path::new("/"), None, limit).unwrap()
    }

    #[test]
    fn output_and_status_are_kept_apart() {
        let outcome = sh("echo out; echo err >&2; exit 7", Duration::from_secs(60));
        assert_eq!(
            (outcome.out().as_str(), outcome.err().as_str()),
            ("out\n", "err\n")
        );
        assert_eq!((outcome.ended, outcome.survivors), (Ended::Exit(7), 0));
    }

    #[test]
    fn death_by_signal_is_told() {
        let outcome = sh("kill -TERM $$", Duration::from_secs(60));
        assert_eq!(outcome.ended, Ended::Signal(15));
    }

    #[test]
    fn a_late_command_is_killed_with_its_children() {
        let outcome = sh("sleep 1000 & echo $!; wait", Duration::from_secs(3));
        assert_eq!(outcome.ended, Ended::Late);
        let child: u32 = outcome.out().trim().parse().unwrap();
        assert!(proc::find(child).is_none_or(|process| process.session != child));
    }

    #[test]
    fn a_survivor_is_counted_and_killed() {
        let argv = ["sh", "-c", "sleep 1000 & exit 0"].map(str::to_owned);
        let running = start(&argv, Path::new("/"), None).unwrap();
        let soon = Duration::from_millis(50);
        let outcome = running
            .finish_with_grace(Duration::from_secs(60), soon)
            .unwrap();
        assert_eq!((outcome.ended, outcome.survivors), (Ended::Exit(0), 1));
    }
}

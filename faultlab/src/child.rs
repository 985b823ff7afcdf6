//! Runs one program, bare or under rcoe, and observes it from outside until its whole tree is gone.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::events::Events;
use crate::inject::{alive, is_running};
use crate::interrupt;
use crate::program::Program;

/// More output than any program of the lab writes; a corrupted one may write for ever.
const OUTPUT_LIMIT: u64 = 32 << 20;

/// How programs are started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `rcoe` binary.
    pub rcoe: PathBuf,
    /// Number of replicas; 0 starts the program bare.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// `--on-fault`, unless rcoe's default is wanted.
    pub on_fault: Option<String>,
    /// `--timeout`.
    pub timeout: String,
    /// Folder with the inputs; programs run in it.
    pub folder: PathBuf,
    /// Time after which a run is a hang.
    pub deadline: Duration,
    /// `RCOE_THREAD_SEED`, which decides how threads take turns.
    pub seed: Option<u64>,
    /// Further options of `rcoe run`.
    pub more: Vec<String>,
    /// Whether standard input is a pipe that [`Running::release`] fills, or nothing.
    pub held: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// Exit status.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }
}

/// What could be seen of a finished run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How the started process ended; `None` if it had to be killed at the deadline.
    pub exit: Option<Exit>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error output.
    pub stderr: String,
    /// What rcoe reported.
    pub events: Events,
    /// Wall-clock time from start to end.
    pub wall: Duration,
    /// When rcoe's clock began at the latest, as time since the start ([`Running::replica`]).
    pub clock: Option<Duration>,
    /// Processes of the run that were still there after its end, and were then killed.
    pub leftovers: usize,
}

/// A run in progress.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    deadline: Instant,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    events_file: PathBuf,
    bare: bool,
    stdin: Option<ChildStdin>,
    clock: OnceLock<Duration>,
}

impl Running {
    /// Starts a program; `tag` keeps concurrent runs apart.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(setup: &Setup, program: &Program, tag: u64) -> Result<Self> {
        program.make(&setup.folder)?;
        let events_file = setup.folder.join(format!("events-{tag}"));
        File::create(&events_file).context("cannot create the events file")?;
        let words = command_line(setup, program, &events_file);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(&setup.folder)
            .process_group(0);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C");
        if let Some(seed) = setup.seed {
            command.env("RCOE_THREAD_SEED", seed.to_string());
        }
        let input = match setup.held {
            true => Stdio::piped(),
            false => Stdio::null(),
        };
        command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = interrupt::let_through(|| command.spawn())
            .with_context(|| format!("cannot start {}", words[0].display()))?;
        let stdout = drain(child.stdout.take().context("no stdout")?);
        let stderr = drain(child.stderr.take().context("no stderr")?);
        let stdin = child.stdin.take();
        let deadline = started + setup.deadline;
        let bare = setup.replicas == 0;
        Ok(Self {
            child,
            started,
            deadline,
            stdout,
            stderr,
            events_file,
            bare,
            stdin,
            clock: OnceLock::new(),
        })
    }

    /// Gives a program that is held one byte of standard input, and its end.
    ///
    /// # Errors
    ///
    /// If it reads no more.
    pub fn release(&mut self) -> Result<()> {
        if let Some(mut stdin) = self.stdin.take() {
            stdin.write_all(b"\n").context("the program is gone")?;
        }
        Ok(())
    }

    /// When the run counts as a hang.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the program runs without rcoe.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.bare
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Time from the start until then.
    #[must_use]
    pub fn since_start(&self, then: Instant) -> Duration {
        then.saturating_duration_since(self.started)
    }

    /// Process id of the started process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// Process id of a replica, as soon as rcoe has announced it; of the program if it runs bare.
    /// `None` if the run ended before.
    ///
    /// The announcement ties rcoe's clock to ours: it is seen after it was told, so rcoe's clock
    /// began no later than so much before. What was told later is never placed too early.
    #[must_use]
    pub fn replica(&self, id: usize) -> Option<i32> {
        if self.bare {
            return Some(self.pid());
        }
        loop {
            let events = Events::read(&self.events_file);
            if let Some(told) = events.started {
                let seen = self.elapsed();
                self.clock.get_or_init(|| seen.saturating_sub(told));
            }
            if let Some(replica) = events
                .replicas
                .iter()
                .find(|replica| replica.id == id as u64)
            {
                return Some(replica.pid);
            }
            if !alive(self.pid()) || Instant::now() >= self.deadline {
                return None;
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Process id of some replica of some process of the program, chosen by a random word among
    /// those that live; all of them are children of the supervisor. `None` if there is none.
    #[must_use]
    pub fn any_replica(&self, random: u64) -> Option<i32> {
        let mut pids = made_by(self.pid());
        pids.retain(|pid| alive(*pid));
        // Most processes of a job wait for others.
        if pids.iter().any(|pid| is_running(*pid)) {
            pids.retain(|pid| is_running(*pid));
        }
        pids.sort_unstable();
        let index = random.checked_rem(pids.len() as u64)?;
        pids.get(usize::try_from(index).ok()?).copied()
    }

    /// Waits for the end, at most until the deadline, and sees to it that nothing is left over.
    ///
    /// # Errors
    ///
    /// If the process cannot be waited for.
    pub fn finish(mut self) -> Result<Finished> {
        // End of output is the usual sign of the end, and needs no polling.
        let rest = self.deadline.saturating_duration_since(Instant::now());
        let early = self.stdout.recv_timeout(rest).ok();
        let exit = self.wait()?;
        let wall = self.started.elapsed();
        let events = Events::read(&self.events_file);
        if exit.is_none() {
            self.kill_all(&events);
            self.child.wait().context("cannot reap")?;
        }
        let leftovers = self.sweep(&events);
        let stdout = early
            .or_else(|| self.stdout.recv().ok())
            .unwrap_or_default();
        let stderr = String::from_utf8_lossy(&self.stderr.recv().unwrap_or_default()).into_owned();
        // The work folder is removed as a whole anyway.
        let _ = fs::remove_file(&self.events_file);
        Ok(Finished {
            exit,
            stdout,
            stderr,
            events,
            wall,
            clock: self.clock.get().copied(),
            leftovers,
        })
    }

    fn wait(&mut self) -> Result<Option<Exit>> {
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the run")? {
                return Ok(Some(status.into()));
            }
            if Instant::now() >= self.deadline {
                return Ok(None);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Kills the started process and its replicas, each by its own id, if it still is ours.
    fn kill_all(&self, events: &Events) {
        let replicas = events.replicas.iter().map(|replica| replica.pid);
        for pid in replicas.chain([self.pid()]).filter(|pid| self.owns(*pid)) {
            // It may end by itself between check and signal.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Whether a process belongs to the process group that this run was started in.
    fn owns(&self, pid: i32) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return false;
        };
        let group = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(2));
        group.and_then(|group| group.parse().ok()) == Some(self.pid())
    }

    /// Reaps what the run left behind (the lab is its subreaper); kills what does not end so.
    fn sweep(&self, events: &Events) -> usize {
        let group = Pid::from_raw(-self.pid());
        let patience = Instant::now() + Duration::from_millis(500);
        let mut killed = 0;
        loop {
            match waitpid(group, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
                Err(Errno::ECHILD) => return killed,
                Ok(status) if status.pid().is_some() => {}
                _ if Instant::now() < patience => thread::sleep(Duration::from_micros(200)),
                _ => {
                    killed = killed.max(1);
                    self.kill_all(events);
                    thread::sleep(Duration::from_millis(1));
                }
            }
            if Instant::now() > patience + Duration::from_secs(5) {
                return killed;
            }
        }
    }
}

/// The words of the command that runs the program as `setup` asks.
fn command_line(setup: &Setup, program: &Program, events: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if setup.replicas > 0 {
        let count = setup.replicas.to_string();
        words.extend([
            setup.rcoe.clone().into_os_string(),
            "run".into(),
            "--no-ledger".into(),
            "-n".into(),
            count.into(),
        ]);
        words.extend(["--compare".into(), setup.compare.clone().into()]);
        if let Some(on_fault) = &setup.on_fault {
            words.extend(["--on-fault".into(), on_fault.into()]);
        }
        words.extend(setup.more.iter().map(OsString::from));
        words.extend([
            "--timeout".into(),
            setup.timeout.clone().into(),
            "--events".into(),
        ]);
        words.extend([events.as_os_str().to_owned(), "--".into()]);
    }
    words.push(program.path.into());
    words.extend(program.args.iter().map(OsString::from));
    words
}

/// Reads a pipe to its end in a thread of its own; what exceeds the limit is dropped.
fn drain(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A read error ends the output like its end does.
        let _ = pipe.by_ref().take(OUTPUT_LIMIT).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        // Nobody listens any more if the run was given up.
        let _ = sender.send(bytes);
    });
    receiver
}

/// What a supervisor has made for the program: its children but for those of its own kind, such as
/// the guardian, which execute what it executes itself.
#[must_use]
pub fn made_by(supervisor: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    let image = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = image(supervisor);
    let list = list.unwrap_or_default();
    let pids = list.split_ascii_whitespace();
    pids.filter_map(|word| word.parse().ok())
        .filter(|&pid| own.is_none() || image(pid) != own)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Exit, Running, Setup, command_line};
    use crate::program::Program;

    fn setup(replicas: usize, deadline: Duration) -> (tempfile::TempDir, Setup) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let setup = Setup {
            rcoe: "rcoe".into(),
            replicas,
            compare: "args".into(),
            on_fault: Some("stop".into()),
            timeout: "1s".into(),
            folder: folder.path().to_owned(),
            deadline,
            seed: None,
            more: Vec::new(),
            held: false,
        };
        (folder, setup)
    }

    fn shell(script: &'static [&'static str]) -> Program {
        Program {
            name: "sh",
            path: "/bin/sh",
            args: script,
            package: "dash",
            children: false,
        }
    }

    #[test]
    fn output_and_status_are_seen() {
        let (_folder, setup) = setup(0, Duration::from_secs(20));
        let program = shell(&["-c", "echo out; echo err >&2; exit 3"]);
        let done = Running::start(&setup, &program, 0)
            .expect("starts")
            .finish()
            .expect("ends");
        assert_eq!(done.exit, Some(Exit::Code(3)));
        assert_eq!(
            (done.stdout.as_slice(), done.stderr.as_str()),
            (&b"out\n"[..], "err\n")
        );
        assert_eq!(done.leftovers, 0);
    }

    #[test]
    fn a_hang_is_ended_at_the_deadline() {
        // Time enough to speak first.
        let (_folder, setup) = setup(0, Duration::from_secs(3));
        let program = shell(&["-c", "echo early; exec sleep 1000"]);
        let done = Running::start(&setup, &program, 0)
            .expect("starts")
            .finish()
            .expect("ends");
        assert_eq!(done.exit, None);
        assert_eq!(done.stdout, b"early\n");
    }

    #[test]
    fn death_by_signal_is_told_apart() {
        let (_folder, setup) = setup(0, Duration::from_secs(20));
        let program = shell(&["-c", "kill -SEGV $$"]);
        let done = Running::start(&setup, &program, 0)
            .expect("starts")
            .finish()
            .expect("ends");
        assert_eq!(done.exit, Some(Exit::Signal(11)));
    }

    #[test]
    fn protected_runs_go_through_rcoe() {
        let (_folder, setup) = setup(2, Duration::from_secs(1));
        let words = command_line(&setup, &shell(&["-c", ":"]), "events".as_ref());
        let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let expected = "rcoe run --no-ledger -n 2 --compare args --on-fault stop --timeout 1s \
                        --events events -- /bin/sh -c :";
        assert_eq!(line.join(" "), expected);
    }
}

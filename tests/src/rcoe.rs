//! The built `rcoe` command, and what the behaviour tests share.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use tempfile::TempDir;

use crate::launch::{self, Ended, Outcome, Running};
use crate::postmortem;

/// Longest time any single command of a test may take; far more than it needs.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Path of the `rcoe` to test: `RCOE_BIN` if set, else the workspace's own, built when first asked.
///
/// # Errors
/// If it cannot be built.
pub fn binary() -> Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = BUILT.get() {
        return Ok(path.clone());
    }
    let path = match std::env::var_os("RCOE_BIN") {
        Some(path) => PathBuf::from(path).canonicalize().context("RCOE_BIN")?,
        None => build()?,
    };
    Ok(BUILT.get_or_init(|| path).clone())
}

/// Builds rcoe into the folder this test binary lies in.
fn build() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.ancestors().find(|folder| folder.join("deps").is_dir());
    let folder = folder.context("not run by cargo: set RCOE_BIN")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "rcoe"]);
    if folder.ends_with("release") {
        command.arg("--release");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    ensure!(command.status()?.success(), "building rcoe failed");
    Ok(folder.join("rcoe"))
}

/// A directory of its own for one test, and commands run in it.
#[derive(Debug)]
pub struct Scene {
    directory: TempDir,
}

impl Scene {
    /// Makes the directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where a group of this scene tells its events.
    fn events(&self) -> PathBuf {
        self.path().join("events")
    }

    /// Writes a file.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("a writable directory");
        path
    }

    /// Compiles a C program with the system's compiler and returns its path.
    ///
    /// # Panics
    /// If it does not compile.
    #[must_use]
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> String {
        self.compile_by(&["cc", "-O1"], name, source, flags);
        self.path().join(name).display().to_string()
    }

    /// Compiles a C program with these words of a compiler, and flags behind its text.
    ///
    /// # Panics
    /// If it does not compile.
    pub fn compile_by(&self, compiler: &[&str], name: &str, source: &str, flags: &[&str]) {
        let file = self.write(&format!("{name}.c"), source);
        let status = Command::new(compiler[0])
            .args(&compiler[1..])
            .arg("-o")
            .arg(self.path().join(name))
            .arg(file)
            .args(flags)
            .status()
            .expect("a C compiler");
        assert!(status.success(), "{name} does not compile");
    }

    /// Runs any command to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&self, argv: &[&str]) -> Outcome {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        launch::run(&argv, self.path(), None, LIMIT).expect("a command that starts")
    }

    /// A pipe with a name in the directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn make_pipe(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        path
    }

    /// Starts any command, which reads a pipe, and where that is written.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_reading(&self, argv: &[String]) -> (Running, File) {
        let pipe = self.make_pipe("input");
        // For both, as nobody reads it yet.
        let writer = File::options().read(true).write(true).open(&pipe);
        let running = launch::start(argv, self.path(), Some(&pipe)).expect("a command that starts");
        (running, writer.expect("a pipe can be opened"))
    }

    /// Runs `rcoe` with these arguments to its end; no process may be left behind.
    ///
    /// # Panics
    /// If it leaves a process behind.
    pub fn rcoe(&self, arguments: &[&str]) -> Outcome {
        finish(self.start(arguments))
    }

    /// Runs `rcoe` with these arguments through a shell script that starts it as `"$@"`.
    ///
    /// # Panics
    /// If it leaves a process behind.
    pub fn rcoe_by(&self, script: &str, arguments: &[&str]) -> Outcome {
        let program = binary().expect("a built rcoe").display().to_string();
        let mut argv = vec!["sh", "-c", script, "sh", &program];
        argv.extend(arguments);
        let outcome = self.run(&argv);
        assert_eq!(
            outcome.survivors,
            0,
            "processes left behind; {}",
            outcome.err()
        );
        outcome
    }

    /// Runs a command plainly and as one, two and three replicas, each through a shell script that
    /// starts it as `"$@"`; they must not differ in anything.
    ///
    /// # Panics
    /// If they differ.
    pub fn like_native(&self, script: &str, command: &[&str]) -> Outcome {
        let mut argv = vec!["sh", "-c", script, "sh"];
        argv.extend(command);
        let native = self.run(&argv);
        for replicas in ["1", "2", "3"] {
            let arguments = [&["run", "-n", replicas, "--"], command].concat();
            let outcome = self.rcoe_by(script, &arguments);
            let what = format!("-n {replicas} {command:?} by {script}: {}", outcome.err());
            assert_eq!(outcome.ended, native.ended, "{what}");
            assert_eq!(outcome.out(), native.out(), "{what}");
            assert_eq!(outcome.err(), native.err(), "{what}");
        }
        native
    }

    /// Compiles a program with `options`, and demands that replicas do what a plain run does:
    /// tell something, and end well.
    ///
    /// # Panics
    /// If they do not.
    #[track_caller]
    pub fn program_like_native(&self, name: &str, source: &str, options: &[&str]) {
        let program = self.compile(name, source, options);
        let native = self.like_native("exec \"$@\"", &[&program]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
        assert!(!native.out().is_empty());
    }

    /// Starts `rcoe` with these arguments.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.start_under(&[], arguments)
    }

    /// Starts `rcoe` with these arguments by a command that executes what follows its own.
    fn start_under(&self, launcher: &[&str], arguments: &[&str]) -> Running {
        let mut argv: Vec<String> = launcher.iter().map(|&word| word.to_owned()).collect();
        argv.push(binary().expect("a built rcoe").display().to_string());
        argv.extend(arguments.iter().map(|&word| word.to_owned()));
        launch::start(&argv, self.path(), None).expect("rcoe starts")
    }

    /// Starts `rcoe run --events` with a program and waits until its replicas run.
    ///
    /// # Panics
    /// If it does not come so far in time.
    #[must_use]
    pub fn start_group(&self, options: &[&str], command: &[&str]) -> Group {
        self.start_group_under(&[], options, command)
    }

    /// The same by a command that executes what follows its own arguments.
    ///
    /// # Panics
    /// If it does not come so far in time.
    #[must_use]
    pub fn start_group_under(
        &self,
        launcher: &[&str],
        options: &[&str],
        command: &[&str],
    ) -> Group {
        let events = self.events();
        // An earlier group of this scene has left one.
        let _ = std::fs::remove_file(&events);
        let events_text = events.display().to_string();
        let mut arguments = vec!["run", "--events", &events_text];
        arguments.extend(options);
        arguments.push("--");
        arguments.extend(command);
        let running = self.start_under(launcher, &arguments);
        let replicas = until("the start event", || {
            // Looked at first: whoever has ended writes no event any more.
            let ended = running.has_ended();
            let mut told = events_of(&events).into_iter();
            let start = told.find(|event| event["type"] == "start");
            let errors = || running.stderr_so_far().unwrap_or_default();
            assert!(start.is_some() || !ended, "ended at once: {}", errors());
            replica_pids(&start?)
        });
        Group {
            running,
            replicas,
            events,
        }
    }
}

/// A test that fails shows the events of its group.
impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("events:\n{}", postmortem::tail_of(&self.events()));
        }
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

/// A running group of replicas.
#[derive(Debug)]
pub struct Group {
    /// The `rcoe` command.
    pub running: Running,
    /// Process ids of the replicas, by replica id.
    pub replicas: Vec<u32>,
    /// The events file.
    pub events: PathBuf,
}

impl Group {
    /// Waits for the end; no process may be left behind. Returns the events too.
    ///
    /// # Panics
    /// If it leaves a process behind.
    #[must_use]
    pub fn finish(self) -> (Outcome, Vec<Value>) {
        let outcome = finish(self.running);
        (outcome, events_of(&self.events))
    }

    /// Lets a program end that numbers lines in the file `lines` and on standard output until
    /// there is a file `stop`: it must have written every number once, to both.
    ///
    /// # Panics
    /// If it has not.
    #[track_caller]
    #[must_use]
    pub fn finish_counting(self, scene: &Scene) -> (Outcome, Vec<Value>) {
        scene.write("stop", "");
        let (outcome, events) = self.finish();
        let what = format!("{} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(7), "{what}");
        let written = std::fs::read_to_string(scene.path().join("lines")).expect("the lines");
        assert_eq!(outcome.out(), written, "{what}");
        let count = written.lines().count() - 1;
        let mut expected: Vec<String> = (0..count).map(|line| line.to_string()).collect();
        expected.push(format!("end {count}"));
        assert!(written.lines().eq(expected), "{written} {what}");
        (outcome, events)
    }
}

fn finish(running: Running) -> Outcome {
    let outcome = running.finish(LIMIT).expect("waiting for rcoe");
    assert_eq!(
        outcome.survivors,
        0,
        "processes left behind; {}",
        outcome.err()
    );
    outcome
}

/// The complete lines of an events file, parsed; nothing while it does not exist.
///
/// # Panics
/// If a complete line is not JSON.
#[must_use]
pub fn events_of(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .map(|line| parse(line).expect("a line of JSON"))
        .collect()
}

fn parse(line: &str) -> Result<Value> {
    let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
    if !value.is_object() {
        bail!("not an object: {line}");
    }
    Ok(value)
}

fn replica_pids(start: &Value) -> Option<Vec<u32>> {
    let replicas = start["replicas"].as_array()?;
    replicas
        .iter()
        .map(|replica| u32::try_from(replica["pid"].as_u64()?).ok())
        .collect()
}

/// Polls until `probe` gives something.
///
/// # Panics
/// If it does not within [`LIMIT`].
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

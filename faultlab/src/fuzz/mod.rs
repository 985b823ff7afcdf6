//! Random system calls with random arguments, as replicas: nothing may hang or differ.
//!
//! A program (`programs/fuzz.c`) makes calls from the project's own table, with arguments of the
//! kinds that the table names: descriptors and paths that exist or not, memory that may be touched
//! or not, sizes, flags. Its processes may end by any signal, as they may without rcoe; the program
//! as a whole comes to its end, with status 0.
//!
//! It runs in namespaces of its own (mounts, processes, network, IPC), as a user without privileges
//! (`sandbox.sh`): nothing but a scratch folder in memory can be written. Calls that could harm the
//! machine or others all the same are never made.
//!
//! Contract: the calls are a function of seed and episode, though their results are not. A finding
//! tells both, so that the episode can be made again.
//!
//! Not covered: whether results are those of a plain run; calls of several threads at a time (a
//! second thread only waits); signals, forks and execs by chance.

mod calls;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::Uid;

use crate::child::Setup;
use crate::interrupt;

/// One run of the program.
#[derive(Debug)]
pub struct Run {
    /// What it said last: that it is done, or the number of the episode.
    pub last: String,
    /// Calls that were made at least: those of episodes that came to their end.
    pub made: u64,
    /// Episodes, if it came to its end.
    pub episodes: u64,
    /// Those of them that came to theirs.
    pub ended: u64,
    /// What was wrong, if anything.
    pub wrong: Option<String>,
}

/// Compiles the program and makes the scratch folder.
///
/// # Errors
///
/// If there is no compiler.
pub fn prepare(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    fs::create_dir(folder.join("scratch"))?;
    fs::write(folder.join("calls.h"), calls::header())?;
    fs::write(folder.join("fuzz.c"), include_str!("../../programs/fuzz.c"))?;
    fs::write(folder.join("sandbox.sh"), include_str!("sandbox.sh"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w", "-pthread", "-o", "fuzz", "fuzz.c"]);
    let status = compiler.current_dir(folder).status();
    let status = status.context("cannot start the C compiler")?;
    ensure!(status.success(), "the program does not compile");
    Ok(())
}

/// A command that runs in the sandbox.
fn sandboxed(folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !Uid::effective().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--mount", "--net", "--ipc", "--uts", "--pid", "--fork"]);
    command.args(["--kill-child", "--mount-proc", "sh"]);
    command.arg(folder.join("sandbox.sh")).arg(folder);
    command
}

/// Whether this machine lets such a sandbox be made; else why not.
///
/// # Errors
///
/// If it does not.
pub fn probe(folder: &Path) -> Result<()> {
    let script = "! touch \"$0/probe\" 2>/dev/null && touch probe && echo inside";
    let mut command = sandboxed(folder);
    command.args(["sh", "-c", script]).arg(folder);
    let output = command.output().context("cannot start unshare")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "no sandbox here: {}", told.trim());
    ensure!(output.stdout == b"inside\n", "the sandbox has a hole");
    Ok(())
}

/// Makes so many calls as `replicas` replicas, or plainly if that is 0, from this episode on.
///
/// # Errors
///
/// If the program cannot be started.
pub fn run(setup: &Setup, seed: u64, calls: u64, episode: u64) -> Result<Run> {
    let mut command = sandboxed(&setup.folder);
    if setup.replicas > 0 {
        command.arg(&setup.rcoe);
        command.args(["run", "--no-ledger", "--no-status", "-n"]);
        command.args([
            &setup.replicas.to_string(),
            "--compare",
            &setup.compare,
            "--",
        ]);
    }
    command.arg("./fuzz");
    command.args([seed, calls, episode].map(|number| number.to_string()));
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    let mut child = interrupt::let_through(|| command.spawn()).context("cannot start unshare")?;
    let output = drain(child.stdout.take().context("no stdout")?);
    let errors = drain(child.stderr.take().context("no stderr")?);
    let status = wait(&mut child, setup.deadline)?;
    let (Ok(output), Ok(errors)) = (output.join(), errors.join()) else {
        bail!("reading panicked");
    };
    let last = output.lines().last().unwrap_or("nothing").to_owned();
    let right = status == "exit status: 0" && last.starts_with("done");
    let [made, ended, late, crashed] = numbers(last.strip_prefix("done: ").unwrap_or_default());
    let told: Vec<&str> = errors.lines().rev().take(6).collect();
    let wrong = (!right).then(|| format!("{status}: {}", told.join(" | ")));
    Ok(Run {
        last,
        made,
        episodes: ended + late + crashed,
        ended,
        wrong,
    })
}

/// The numbers that the program tells at its end, in their order.
fn numbers(text: &str) -> [u64; 4] {
    let words = text.split(|it: char| !it.is_ascii_digit());
    let mut found = words.filter_map(|word| word.parse().ok());
    std::array::from_fn(|_| found.next().unwrap_or(0))
}

/// Reads all in a thread of its own; the beginning of much is enough.
fn drain(mut source: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is not shown.
        let _ = source.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// How it ended; a hang is ended with all that it holds.
fn wait(child: &mut Child, patience: Duration) -> Result<String> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.to_string());
        }
        if Instant::now() > deadline {
            // The first process of the namespace ends with unshare, and all others with that.
            child.kill()?;
            child.wait()?;
            return Ok("hangs".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn the_end_tells_calls_and_episodes() {
        let told = "800 calls; 40 ended, 3 were too slow, 1 crashed";
        assert_eq!(numbers(told), [800, 40, 3, 1]);
        assert_eq!(numbers("7"), [7, 0, 0, 0]);
    }
}

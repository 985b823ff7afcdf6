//! Starting other programs.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// The top folder of the repository: that of the checkout whose `cargo xtask` runs, which is not
/// always the one that this program was compiled in, because build folders are copied too.
pub(crate) fn root() -> PathBuf {
    let compiled = || env!("CARGO_MANIFEST_DIR").into();
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(compiled);
    let own = Path::new(&own);
    own.parent().unwrap_or(own).to_path_buf()
}

/// The folder cargo builds into.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A program built in release mode.
pub(crate) fn built(name: &str) -> PathBuf {
    target().join("release").join(name)
}

/// A cargo command in the top folder.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null());
    command
}

/// `command` with further arguments.
pub(crate) fn with(mut command: Command, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    command.args(arguments);
    command
}

/// Runs a command to its end, its output going where ours goes; tells whether it succeeded.
pub(crate) fn succeeds(mut command: Command) -> Result<bool> {
    let status = command.stdin(Stdio::null()).status();
    Ok(status
        .with_context(|| format!("starting {command:?}"))?
        .success())
}

/// Standard output of a command that is expected to succeed.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = output.with_context(|| format!("starting {command:?}"))?;
    anyhow::ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a command, copies its standard output line by line and shows each line to `look`.
pub(crate) fn stream(mut command: Command, mut look: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let mut reader = BufReader::new(child.stdout.take().context("a pipe")?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        look(text.trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// Prints what the machine is, so that a log tells it.
pub(crate) fn print_machine() {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    println!("machine: {cores} cores, Linux {}, {model}", kernel.trim());
}

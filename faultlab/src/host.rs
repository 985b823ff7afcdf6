//! What a measurement was made on: revision and machine, as every published figure names them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// What is made of evidence; a change there is no change of what is measured.
const MADE: [&str; 2] = [":(top,exclude)evidence", ":(top,exclude)docs"];

/// Revision of the source, as far as git knows one; `-dirty` where it was changed since.
#[must_use]
pub fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok();
        let output = output.filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".into();
    };
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ":/"];
    match git(&[&status[..], &MADE].concat()) {
        Some(changes) if changes.is_empty() => commit,
        _ => commit + "-dirty",
    }
}

/// Today, as YYYY-MM-DD.
///
/// # Errors
///
/// If there is no `date`.
pub fn date() -> Result<String> {
    let today = Command::new("date").args(["-u", "+%F"]).output();
    let today = today.context("cannot run date")?.stdout;
    Ok(String::from_utf8_lossy(&today).trim().to_owned())
}

/// Processor, number of CPUs and kernel.
#[must_use]
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = model.map_or("unknown processor", |(_, name)| name);
    format!("{cpus} CPUs {model}, Linux {}", kernel.trim())
}

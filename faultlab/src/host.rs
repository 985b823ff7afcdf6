//! What a measurement was made on: revision and machine, as every published figure names them.

use std::path::Path;
use std::process::Command;

/// Revision of the source, as far as git knows one.
#[must_use]
pub fn commit() -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude=*"])
        .output();
    let text = git
        .ok()
        .filter(|git| git.status.success())
        .map(|git| git.stdout);
    text.map_or_else(
        || "unknown".into(),
        |text| String::from_utf8_lossy(&text).trim().to_owned(),
    )
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

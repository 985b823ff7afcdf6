//! `cargo xtask prove`: long campaigns and all suites of costs, which go on where they were left.
//!
//! `rcoe-bench prove` does it; here everything is built first, so that it finds the programs of
//! this commit. `check` has it carry out a small plan in a temporary folder.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::count::Counts;
use crate::{image, shell};

/// A plan that takes seconds, and that needs no package.
const SMALL: &str = r#"
[[campaign]]
name = "flips"
group = "flips"
what = "sha256sum"
n = 3
command = "campaign -n 3 --program sha256sum --seed {seed} --count 3"
count = "runs"
at_least = 6

[[campaign]]
name = "kills"
group = "kills"
what = "pipe, killed"
n = 3
command = "kills --workload pipe --seed {seed} --count 2 --per-run 2"
count = "faults"
at_least = 2
"#;

/// Builds, and goes on.
pub(crate) fn run(arguments: &[OsString]) -> Result<bool> {
    let lists = arguments.iter().any(|it| it == "--list" || it == "--help");
    let programs: &[&str] = if lists {
        &["rcoe-bench"]
    } else {
        &["rcoe-bench", "rcoe", "rcoe-faultlab"]
    };
    shell::build_commands(programs)?;
    ensure!(lists || image::run()?, "the system image does not build");
    let mut command = Command::new(shell::built("rcoe-bench"));
    command
        .args(["prove", "--work"])
        .arg(shell::target().join("prove"));
    command
        .arg("--evidence")
        .arg(shell::root().join("evidence"));
    command.args(arguments).current_dir(shell::root());
    shell::succeeds(command)
}

/// A small proof that is cut short goes on, ends, and gives a page.
pub(crate) fn check() -> Result<Counts> {
    let folder = tempfile::tempdir()?;
    let evidence = folder.path().join("evidence");
    let mut copy = Command::new("cp");
    copy.arg("-r")
        .arg(shell::root().join("evidence"))
        .arg(&evidence);
    ensure!(shell::succeeds(copy)?, "evidence cannot be copied");
    fs::write(evidence.join("prove.toml"), SMALL)?;
    let prove = |more: &[&str]| -> Result<bool> {
        let mut command = Command::new(shell::built("rcoe-bench"));
        command
            .args(["prove", "--trial", "--work"])
            .arg(folder.path().join("work"));
        command
            .arg("--evidence")
            .arg(&evidence)
            .args(more)
            .current_dir(shell::root());
        shell::succeeds(command)
    };
    let began = prove(&["--minutes", "0"])?;
    let nothing = entries(&evidence)?;
    let ended = prove(&[])?;
    let all = entries(&evidence)?;
    let mut page = Command::new(shell::built("rcoe-bench"));
    page.args(["page", "faults/kills", "--evidence"])
        .arg(&evidence);
    let page = shell::output(page)?;
    let mut counts = Counts::default();
    for (what, well) in [
        ("a proof without time does nothing", began && nothing == 0),
        ("a proof comes to its end", ended && all == 2),
        (
            "what it counted is on the page",
            page.contains("cargo xtask prove --only kills"),
        ),
    ] {
        println!("prove: {what}: {}", if well { "ok" } else { "FAILED" });
        counts.add(Counts::one(well));
    }
    Ok(counts)
}

/// Entries of evidence that a proof has made.
fn entries(evidence: &Path) -> Result<usize> {
    let files = ["01-flips.toml", "06-kills.toml"].map(|name| evidence.join("faults").join(name));
    let mut entries = 0;
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        entries += text.matches("\"cargo xtask prove --only ").count();
    }
    Ok(entries)
}

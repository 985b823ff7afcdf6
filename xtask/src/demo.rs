//! `cargo xtask demo`: the system at work on real programs, and what happened as a table.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::{image, packages, shell};

/// Debian packages of the programs shown.
const PACKAGES: &[&str] = &["busybox-static", "bzip2", "python3-minimal"];

/// What is hit: a word for it, and how the fault lab is asked for it.
const AIMS: [[&str; 2]; 3] = [
    ["registers of md5sum", "--program md5sum --targets regs"],
    [
        "memory of bzip2",
        "--program bzip2 --targets heap,mmap,data,stack",
    ],
    ["a machine of kernels", "--sphere system"],
];

const COUNT_BYTES: &str = "import sys, collections\n\
    data = open(sys.argv[1], 'rb').read()\n\
    for byte, times in sorted(collections.Counter(data).items()): print(byte, times)\n";

/// A line of the closing table.
struct Line {
    what: String,
    replicas: String,
    came: String,
    good: bool,
}

/// Runs the demonstration; true if everything went as promised.
pub(crate) fn run() -> Result<bool> {
    let packages: Vec<String> = PACKAGES.iter().map(|&name| name.to_owned()).collect();
    packages::ensure(&packages)?;
    // The agent needs a target of the system sphere's, too.
    image::prepare()?;
    println!("building rcoe and its fault lab (release)");
    let build = [
        "build",
        "--release",
        "--workspace",
        "--bin",
        "rcoe",
        "--bin",
        "rcoe-faultlab",
    ];
    ensure!(shell::succeeds(shell::cargo(build))?, "the build failed");
    shell::build_commands(&["rcoe", "rcoe-faultlab"])?;
    ensure!(image::run()?, "the system image does not build");
    let folder = tempfile::tempdir()?;
    let input = real_input(folder.path())?;
    let mut lines = Vec::new();
    for command in programs(&input) {
        lines.extend(compare_runs(&command)?);
    }
    for (replicas, expected) in [("2", "detected, fail-stop"), ("3", "detected, corrected")] {
        for [what, how] in AIMS {
            lines.push(flip(replicas, what, how, expected)?);
        }
    }
    Ok(table(&lines))
}

/// A few megabytes that were not made for the occasion: the system's own C library and shell.
fn real_input(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("input");
    let mut content = std::fs::read("/bin/bash")?;
    content.extend(std::fs::read("/usr/bin/perl")?);
    std::fs::write(&path, content)?;
    Ok(path)
}

fn programs(input: &Path) -> Vec<Vec<String>> {
    let input = input.display().to_string();
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    vec![
        owned(&["/bin/busybox", "md5sum", &input]),
        owned(&["/usr/bin/bzip2", "-c", &input]),
        owned(&["/usr/bin/python3", "-c", COUNT_BYTES, &input]),
    ]
}

/// Runs one program plainly and as two and three replicas.
fn compare_runs(command: &[String]) -> Result<Vec<Line>> {
    let name = Path::new(&command[0])
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let word = if name == "busybox" {
        format!(" {}", command[1])
    } else {
        String::new()
    };
    let name = format!("{name}{word}");
    let plain = observe(Command::new(&command[0]).args(&command[1..]))?;
    let mut lines = Vec::new();
    for replicas in ["2", "3"] {
        println!("running {name} as {replicas} replicas");
        let started = Instant::now();
        let mut rcoe = Command::new(shell::built("rcoe"));
        // What earlier runs have charged to this machine's cores is no part of the comparison.
        rcoe.args(["run", "--no-ledger", "-n", replicas, "--"]);
        rcoe.args(command);
        let good = observe(&mut rcoe)? == plain;
        let verdict = if good {
            "same as a plain run"
        } else {
            "DIFFERS FROM A PLAIN RUN"
        };
        lines.push(Line {
            what: name.clone(),
            replicas: replicas.to_owned(),
            came: format!(
                "{verdict}: status {:?}, {} bytes, {:.2} s",
                plain.0.unwrap_or(-1),
                plain.1.len(),
                started.elapsed().as_secs_f64()
            ),
            good,
        });
    }
    Ok(lines)
}

/// Exit status, standard output and standard error.
fn observe(command: &mut Command) -> Result<(Option<i32>, Vec<u8>, Vec<u8>)> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {command:?}"))?;
    Ok((output.status.code(), output.stdout, output.stderr))
}

/// Flips bits in one replica, run after run, until one shows.
fn flip(replicas: &str, what: &str, how: &str, expected: &str) -> Result<Line> {
    println!("flipping a bit in one of {replicas} replicas: {what}");
    let mut lab = Command::new(shell::built("rcoe-faultlab"));
    lab.args(["show", "-n", replicas]).args(how.split(' '));
    lab.env("RCOE_SYSTEM_IMAGE", image::folder());
    let (_, out, err) = observe(&mut lab)?;
    let story = String::from_utf8_lossy(&out).into_owned();
    let Some(outcome) = told(&story, "outcome") else {
        anyhow::bail!("the fault lab failed: {}", String::from_utf8_lossy(&err));
    };
    Ok(Line {
        what: format!("{what}: {}", told(&story, "flipped").unwrap_or("one bit")),
        replicas: replicas.to_owned(),
        came: outcome.to_owned(),
        good: outcome.starts_with(expected),
    })
}

/// What the fault lab says behind a key.
fn told<'a>(story: &'a str, key: &str) -> Option<&'a str> {
    story
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .map(str::trim)
}

fn table(lines: &[Line]) -> bool {
    println!("\n{:<4} {:<3} what, and what came of it", "", "n");
    for Line {
        what,
        replicas,
        came,
        good,
    } in lines
    {
        let mark = if *good { "ok" } else { "BAD" };
        println!("{mark:<4} {replicas:<3} {what}\n{:<8} {came}", "");
    }
    let good = lines.iter().all(|line| line.good);
    let verdict = if good {
        "everything as promised"
    } else {
        "NOT everything as promised"
    };
    println!("\n{verdict}");
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_is_read_by_its_keys() {
        let story = "program   md5sum\nflipped   bit 3 of rax\noutcome   masked (exit: 0)\n";
        assert_eq!(told(story, "flipped"), Some("bit 3 of rax"));
        assert_eq!(told(story, "evidence"), None);
    }

    #[test]
    fn one_bad_line_spoils_the_table() {
        let line = |good| Line {
            what: "x".into(),
            replicas: "2".into(),
            came: "y".into(),
            good,
        };
        assert!(table(&[line(true)]));
        assert!(!table(&[line(true), line(false)]));
    }
}

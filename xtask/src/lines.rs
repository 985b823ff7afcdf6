//! `cargo xtask lines`: how large the system sphere is, beside what the papers changed.
//!
//! Lines of code: what is left without blank lines, comments and tests.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::shell;

/// A part of the system: its name, and the files and folders that it consists of.
type Part = (&'static str, &'static [&'static str]);

/// What of the kernel exists because of replication; the rest of it is the kernel proper.
const REPLICATION: &[&str] = &[
    "kernel/src/bring_back.rs",
    "kernel/src/diary.rs",
    "kernel/src/env.rs",
    "kernel/src/machine.rs",
    "kernel/src/meter.rs",
    "kernel/src/recorders.rs",
    "kernel/src/sphere",
    "kernel/src/sphere.rs",
    "kernel/src/arch/donate.rs",
];

const PARTS: &[Part] = &[
    (
        "kernel proper: objects, system calls",
        &["kernel/objects/src"],
    ),
    (
        "kernel proper: boot, processor, interrupt controllers",
        &["kernel/src"],
    ),
    ("replication in the kernel", REPLICATION),
    (
        "the protocol, shared with the process sphere",
        &["core/src"],
    ),
    (
        "user level: root task, drivers, library, programs",
        &["user/src"],
    ),
    ("agreed between kernel, programs and host", &["abi/src"]),
];

/// What of these parts is close coupling.
const COUPLING: &[Part] = &[
    (
        "close coupling: how replicas agree, shared with the process sphere",
        &["core/src/coupling", "core/src/coupling.rs"],
    ),
    (
        "close coupling: whose turn it is, where cores take turns",
        &["core/src/baton.rs"],
    ),
    (
        "close coupling: how a counted program comes to a place; x86-64's own counter",
        &["core/src/counted", "core/src/counted.rs"],
    ),
    (
        "close coupling: in the kernel, for any processor",
        &[
            "kernel/src/arch/counter.rs",
            "kernel/src/coupling",
            "kernel/src/coupling.rs",
            "kernel/src/sphere/turns.rs",
            "kernel/src/arch/boards.rs",
        ],
    ),
    (
        "close coupling: the counters of x86-64, with the emulator's plugin",
        &[
            "kernel/src/arch/x86_64/breakpoint.rs",
            "kernel/src/arch/x86_64/counter",
            "kernel/src/arch/x86_64/counter.rs",
            "kernel/counter/src",
        ],
    ),
    (
        "close coupling: the counter of AArch64",
        &[
            "kernel/src/arch/aarch64/breakpoint.rs",
            "kernel/src/arch/aarch64/counter",
            "kernel/src/arch/aarch64/counter.rs",
        ],
    ),
    (
        "close coupling: on the host",
        &[
            "kernel/host/src/coupling.rs",
            "kernel/host/src/machine/counter.rs",
        ],
    ),
];

/// What the papers name.
const PAPERS: &str = "EDCC'15 (V, table IV) changed or added 1,098 lines of seL4 for x86-64 \
                      (1,016 for ARM), loosely coupled; Romain (EMSOFT'12, table 2) has 2,518. \
                      DSN'19 tells none.";

/// Prints the table.
pub(crate) fn run() -> Result<bool> {
    let root = shell::root();
    println!("| part | lines of code |\n|---|---|");
    for (name, paths) in PARTS.iter().chain(COUPLING) {
        let listed = paths == &REPLICATION || COUPLING.iter().any(|part| part.0 == *name);
        let mut sum = 0;
        for path in *paths {
            sum += count_below(&root, &root.join(path), listed)?;
        }
        println!("| {name} | {sum} |");
    }
    println!("\n{PAPERS}");
    Ok(true)
}

fn count_below(root: &Path, path: &Path, listed: bool) -> Result<usize> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        paths.sort();
        return paths
            .iter()
            .map(|path| count_below(root, path, listed))
            .sum();
    }
    let name = path.strip_prefix(root).unwrap_or(path);
    let elsewhere = REPLICATION.iter().any(|part| name.starts_with(part));
    let test = name.components().any(|part| part.as_os_str() == "tests");
    let is_code = path.extension().is_some_and(|extension| extension == "rs");
    if !is_code || test || (elsewhere && !listed) {
        return Ok(0);
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(code_lines(&text))
}

/// Lines of code of a file. Tests come last in it.
fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_tests = |at: usize| {
        lines[at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.ends_with('{'))
    };
    let end = (0..lines.len()).find(|&at| is_tests(at));
    let code = &lines[..end.unwrap_or(lines.len())];
    code.iter()
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::code_lines;

    #[test]
    fn comments_blank_lines_and_tests_are_no_code() {
        let text = "//! Purpose.\n\nuse a;\n/// Says.\nfn f() {\n    // why\n    g();\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        assert_eq!(code_lines(text), 4);
        assert_eq!(code_lines("#[cfg(test)]\nmod tests;\nfn f() {}\n"), 3);
    }
}

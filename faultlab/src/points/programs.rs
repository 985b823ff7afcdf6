//! The programs of which points are verified: our own of many kinds, and real ones that compute.
//!
//! Each runs until it is told to end. What the observer needs of it is in `attend.c`, which is
//! loaded before it; whoever is linked statically cannot be among them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::program::Program;

/// What is compiled: name, source text, options.
const SOURCES: [(&str, &str, &[&str]); 4] = [
    (
        "attend.so",
        include_str!("../../programs/points/attend.c"),
        &["-shared", "-fPIC"],
    ),
    (
        "kernels",
        include_str!("../../programs/points/kernels.c"),
        &[],
    ),
    (
        "threads",
        include_str!("../../programs/points/threads.c"),
        &["-pthread"],
    ),
    (
        "latency",
        include_str!("../../programs/points/latency.c"),
        &[],
    ),
];

/// Kinds of `kernels.c`.
const KERNELS: [&str; 20] = [
    "integer",
    "counting",
    "sse",
    "x87",
    "avx",
    "recursion",
    "deep",
    "movs",
    "stos",
    "copying",
    "churn",
    "sorting",
    "hashing",
    "jumping",
    "computed",
    "chasing",
    "strings",
    "matrix",
    "nested",
    "itself",
];
/// Kinds of `threads.c`.
const THREADS: [&str; 7] = [
    "race", "spinlock", "ticket", "pspin", "barrier", "flag", "mutex",
];

const PYTHON: &str = "d = {}\ni = 0\nwhile True:\n  i += 1\n  d[i % 997] = str(i * i)\n";
const PERL: &str = "my %d; for (my $i = 0; ; $i++) { $d{$i % 997} .= $i; \
                    $d{$i % 997} = '' if length $d{$i % 997} > 99 }";
const SQL: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) \
                   SELECT sum(x * x % 1009) FROM c;";
const NODE: &str = "let s = 1; const d = {}; \
                    for (;;) { s = (s * 48271) % 2147483647; d[s % 997] = String(s) }";

/// Real programs: name, path, arguments.
const REAL: [(&str, &str, &[&str]); 9] = [
    ("python", "/usr/bin/python3", &["-S", "-E", "-c", PYTHON]),
    ("perl", "/usr/bin/perl", &["-e", PERL]),
    ("sqlite3", "/usr/bin/sqlite3", &[":memory:", SQL]),
    (
        "openssl",
        "/usr/bin/openssl",
        &["dgst", "-sha512", "/dev/zero"],
    ),
    ("gzip", "/usr/bin/gzip", &["-9", "-c", "numbers"]),
    ("bzip2", "/usr/bin/bzip2", &["-c", "numbers"]),
    ("xz", "/usr/bin/xz", &["-3", "-c", "numbers"]),
    ("zstd", "/usr/bin/zstd", &["-19", "-c", "-q", "numbers"]),
    ("node", "/usr/bin/node", &["-e", NODE]),
];

/// A program and how it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The word on the command line.
    pub name: &'static str,
    words: &'static str,
    args: &'static [&'static str],
}

/// All that are installed here.
#[must_use]
pub fn all() -> Vec<Subject> {
    let own = |name, words| Subject {
        name,
        words,
        args: &[],
    };
    let kernels = KERNELS.iter().map(|name| own(*name, "./kernels"));
    let threads = THREADS.iter().map(|name| own(*name, "./threads"));
    let real = REAL
        .iter()
        .map(|&(name, words, args)| Subject { name, words, args });
    let real = real.filter(|it| Path::new(it.words).exists());
    kernels.chain(threads).chain(real).collect()
}

/// Those of a comma-separated list, or all.
///
/// # Errors
///
/// If one is unknown or not installed.
pub fn select(list: &str) -> Result<Vec<Subject>> {
    let all = all();
    if list == "all" {
        return Ok(all);
    }
    let find = |name: &str| match all.iter().find(|it| it.name == name.trim()) {
        Some(it) => Ok(*it),
        None => {
            let known: Vec<_> = all.iter().map(|it| it.name).collect();
            bail!("no program '{name}' here; there are: {}", known.join(", "));
        }
    };
    list.split(',').map(find).collect()
}

impl Subject {
    /// Threads take slices by themselves, and come to points without a signal.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.words == "./threads"
    }

    /// Its command, which loads what the observer needs. It lives as long as the lab.
    #[must_use]
    pub fn program(&self, folder: &Path) -> Program {
        let load = format!("LD_PRELOAD={}", folder.join("attend.so").display());
        let mut args: Vec<&'static str> = vec![load.leak(), self.words];
        match self.args {
            [] if self.has_threads() => args.extend([self.name, "8", "0"]),
            [] => args.push(self.name),
            more => args.extend(more),
        }
        Program {
            name: self.name,
            path: "/usr/bin/env",
            args: args.leak(),
            package: "coreutils",
            children: false,
        }
    }
}

/// Compiles our own programs and writes what the others read.
///
/// # Errors
///
/// If there is no C compiler, or the folder cannot be written.
pub fn prepare(folder: &Path) -> Result<()> {
    for (name, source, options) in SOURCES {
        let file = folder.join(format!("{name}.c"));
        fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-o", name]).args(options).arg(&file);
        let done = compiler.current_dir(folder).status();
        let done = done.context("cannot run cc: apt-get install gcc")?;
        ensure!(done.success(), "cc does not take {name}.c");
    }
    let mut text = String::new();
    for number in 0_u64..3_000_000 {
        text.push_str(&(number * number % 99_991).to_string());
        text.push(if number % 10 == 9 { '\n' } else { ' ' });
    }
    fs::write(folder.join("numbers"), text).context("cannot write numbers")
}

//! The programs of which points are verified: our own of many kinds, and real ones that compute.
//!
//! Each runs until it is told to end. What the observer needs of it is in `attend.c`, which is
//! loaded before it; whoever is linked statically cannot be among them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::program::Program;

/// What is compiled.
struct Made {
    /// Its source.
    file: &'static str,
    text: &'static str,
    /// The compiler that decides whether it is made.
    needs: &'static str,
    /// Sources are added to this.
    command: &'static [&'static str],
    /// What is linked with it.
    with: &'static [&'static str],
}

const MADE: [Made; 8] = [
    Made {
        file: "attend.c",
        text: include_str!("../../programs/points/attend.c"),
        needs: "cc",
        command: &["cc", "-O1", "-shared", "-fPIC", "-o", "attend.so"],
        with: &[],
    },
    Made {
        file: "kernels.c",
        text: include_str!("../../programs/points/kernels.c"),
        needs: "cc",
        command: &["cc", "-O1", "-o", "kernels"],
        with: &[],
    },
    Made {
        file: "threads.c",
        text: include_str!("../../programs/points/threads.c"),
        needs: "cc",
        command: &["cc", "-O1", "-pthread", "-o", "threads"],
        with: &[],
    },
    Made {
        file: "latency.c",
        text: include_str!("../../programs/points/latency.c"),
        needs: "cc",
        command: &["cc", "-O1", "-o", "latency"],
        with: &[],
    },
    Made {
        file: "openmp.c",
        text: include_str!("../../programs/points/openmp.c"),
        needs: "cc",
        command: &["cc", "-O1", "-fopenmp", "-o", "openmp"],
        with: &[],
    },
    Made {
        file: "work.go",
        text: include_str!("../../programs/points/work.go"),
        needs: "go",
        command: &["go", "build", "-buildmode=c-archive", "-o", "work.a"],
        with: &[],
    },
    Made {
        file: "work.c",
        text: include_str!("../../programs/points/work.c"),
        needs: "go",
        command: &["cc", "-O1", "-pthread", "-o", "work"],
        with: &["work.a"],
    },
    Made {
        file: "Work.java",
        text: include_str!("../../programs/points/Work.java"),
        needs: "javac",
        command: &["javac"],
        with: &[],
    },
];

/// Kinds of `kernels.c`.
const KERNELS: [&str; 21] = [
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
    "fresh",
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

const LUA: &str = "local d, s = {}, 1 while true do s = s * 48271 % 2147483647 \
                   d[s % 997] = tostring(s) .. string.rep('x', s % 7) end";
const AWK: &str = "BEGIN { for (s = 1;;) { s = s * 48271 % 2147483647; d[s % 997] = s \"\"; \
                   if (d[s % 499] ~ /7.*9/) n++ } }";
/// What interpreters read that take no program on the command line.
const SCRIPTS: [(&str, &str); 3] = [
    (
        "loop.tcl",
        "set s 1\nwhile 1 { set s [expr {$s * 48271 % 2147483647}]\n\
         dict set d [expr {$s % 997}] \"n$s\" }\n",
    ),
    (
        "loop.bc",
        "s = 1\nwhile (1) { s = (s * 48271 + 7 ^ 211) % 10 ^ 150\nd[s % 97] = s }\n",
    ),
    (
        "loop.cmake",
        "set(s 1)\nwhile(1 EQUAL 1)\nmath(EXPR s \"${s} * 48271 % 2147483647\")\n\
         string(REGEX REPLACE \"7(.)\" \"\\\\1x\" t \"${s}\")\nendwhile()\n",
    ),
];

const fn real(name: &'static str, words: &'static [&'static str]) -> Subject {
    Subject {
        name,
        words,
        threads: false,
    }
}

/// Real programs, and those with a real runtime.
const REAL: [Subject; 22] = [
    real("python", &["/usr/bin/python3", "-S", "-E", "-c", PYTHON]),
    real("perl", &["/usr/bin/perl", "-e", PERL]),
    real("lua", &["/usr/bin/lua", "-e", LUA]),
    real("tcl", &["/usr/bin/tclsh", "loop.tcl"]),
    real("gawk", &["/usr/bin/gawk", AWK]),
    real("mawk", &["/usr/bin/mawk", AWK]),
    real("bc", &["/usr/bin/bc", "-q", "loop.bc"]),
    real("cmake", &["/usr/bin/cmake", "-P", "loop.cmake"]),
    real("sqlite3", &["/usr/bin/sqlite3", ":memory:", SQL]),
    real(
        "openssl",
        &["/usr/bin/openssl", "dgst", "-sha512", "/dev/zero"],
    ),
    real("primes", &["/usr/bin/openssl", "dhparam", "8192"]),
    real(
        "chacha",
        &[
            "/usr/bin/openssl",
            "enc",
            "-chacha20",
            "-K",
            "00",
            "-iv",
            "00",
            "-in",
            "/dev/zero",
            "-out",
            "/dev/null",
            "-bufsize",
            "4000000",
        ],
    ),
    real("gzip", &["/usr/bin/gzip", "-9", "-c", "numbers"]),
    real("bzip2", &["/usr/bin/bzip2", "-c", "numbers"]),
    real("xz", &["/usr/bin/xz", "-3", "-c", "numbers"]),
    real("zstd", &["/usr/bin/zstd", "-19", "-c", "-q", "numbers"]),
    real(
        "x264",
        &[
            "/usr/bin/x264",
            "--quiet",
            "--threads",
            "1",
            "--preset",
            "veryslow",
            "--demuxer",
            "raw",
            "--input-res",
            "640x360",
            "-o",
            "/dev/null",
            "numbers",
        ],
    ),
    real("node", &["/usr/bin/node", "-e", NODE]),
    Subject {
        threads: true,
        ..real(
            "java",
            &[
                "/usr/bin/java",
                "-XX:+UseSerialGC",
                "-Xmx64m",
                "-Xshare:off",
                "Work",
            ],
        )
    },
    Subject {
        threads: true,
        ..real("go", &["./work"])
    },
    Subject {
        threads: true,
        ..real("openmp", &["OMP_NUM_THREADS=4", "./openmp"])
    },
    Subject {
        threads: true,
        ..real(
            "openmp-active",
            &["OMP_NUM_THREADS=4", "OMP_WAIT_POLICY=active", "./openmp"],
        )
    },
];

/// A program and how it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The word on the command line.
    pub name: &'static str,
    /// Its environment, path and arguments.
    words: &'static [&'static str],
    threads: bool,
}

/// All that are installed here, or can be made.
#[must_use]
pub fn all() -> Vec<Subject> {
    let kernels = KERNELS.iter().map(|name| own(&["./kernels", *name]));
    let threads = THREADS.iter().map(|name| Subject {
        threads: true,
        ..own(&["./threads", *name, "8", "0"])
    });
    let real = REAL.into_iter().filter(Subject::is_here);
    kernels.chain(threads).chain(real).collect()
}

/// One of several in a file. It lives as long as the lab.
fn own<const N: usize>(words: &[&'static str; N]) -> Subject {
    real(words[1], words.to_vec().leak())
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

/// Is this a file, or a command in one of the usual folders?
fn is_command(word: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    Path::new(word).is_file() || folders.any(|folder| folder.join(word).is_file())
}

impl Subject {
    fn is_here(&self) -> bool {
        let mut files = self
            .words
            .iter()
            .filter(|word| word.starts_with("/usr/bin/"));
        let tool = match self.name {
            "java" => "javac",
            "go" => "go",
            _ => "cc",
        };
        files.all(|file| is_command(file)) && is_command(tool)
    }

    /// Threads take slices by themselves, and come to points without a signal.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.threads
    }

    /// Its command, which loads what the observer needs. It lives as long as the lab.
    #[must_use]
    pub fn program(&self, folder: &Path) -> Program {
        let load = format!("LD_PRELOAD={}", folder.join("attend.so").display());
        let mut args: Vec<&'static str> = vec![load.leak()];
        args.extend(self.words);
        Program {
            name: self.name,
            path: "/usr/bin/env",
            args: args.leak(),
            package: "coreutils",
            children: false,
        }
    }
}

/// Compiles our own programs and writes what the others read. What needs a compiler that is not
/// here is left out.
///
/// # Errors
///
/// If there is no C compiler, or the folder cannot be written.
pub fn prepare(folder: &Path) -> Result<()> {
    for Made {
        file,
        text,
        needs,
        command,
        with,
    } in MADE
    {
        if needs != "cc" && !is_command(needs) {
            continue;
        }
        let written = fs::write(folder.join(file), text);
        written.with_context(|| format!("cannot write {file}"))?;
        let mut compiler = Command::new(command[0]);
        compiler.args(&command[1..]).arg(file).args(with);
        let done = compiler.current_dir(folder).status();
        let done = done.with_context(|| format!("cannot run {}", command[0]))?;
        ensure!(done.success(), "{} does not take {file}", command[0]);
    }
    for (name, text) in SCRIPTS {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let mut text = String::new();
    for number in 0_u64..3_000_000 {
        text.push_str(&(number * number % 99_991).to_string());
        text.push(if number % 10 == 9 { '\n' } else { ' ' });
    }
    fs::write(folder.join("numbers"), text).context("cannot write numbers")
}

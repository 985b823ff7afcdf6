//! Real programs of Debian that are hit, with inputs made from a fixed seed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::plan::Rng;

/// A program and its arguments; input files are relative to the work folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The word used on the command line.
    pub name: &'static str,
    /// Path of the executable: absolute, or of one of ours in the work folder.
    pub path: &'static str,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// Debian package that holds it, or the compiler that makes it.
    pub package: &'static str,
    /// Whether it makes children: then the replicas of any of its processes are hit.
    pub children: bool,
}

/// Our own programs: name, and source text of C.
const SOURCES: [(&str, &str); 6] = [
    ("mutex", include_str!("../programs/mutex.c")),
    ("workers", include_str!("../programs/workers.c")),
    ("effects", include_str!("../programs/effects.c")),
    ("race", include_str!("../../tests/tests/threads/race.c")),
    ("preempted", include_str!("../programs/preempted.c")),
    ("computing", include_str!("../programs/computing.c")),
];
/// Rules of the program `make`.
const RULES: &str = include_str!("../programs/jobs.mk");
const PIPELINE: &str = "gzip -c text-300k | gzip -dc | tr ' ' '\\n' | sort -n | uniq -c | md5sum; \
                        for i in 1 2 3; do (echo $i; expr $i \\* 7) | cat; done";
const SHELL: &str = "declare -A n; for i in {1..400}; do n[$((i * i % 17))]+=$i; done; \
                     for k in 0 1 2 4; do x=$(echo ${n[$k]} | cut -c1-40); (echo $k $x); done; \
                     while read -r w; do s=$((s + ${#w})); done < <(head -n 200 text-300k); \
                     echo $s";
const MAKE: &str = "d=$(mktemp -d ./make-XXXXXX); make -s -j2 -f jobs.mk OUT=$d; s=$?; \
                    rm -r $d; exit $s";

const AWK: &str = "{ for (i = 1; i <= NF; i++) n[$i % 997] += $i; s += NF } \
                   END { for (k = 0; k < 997; k++) print k, n[k]; print s }";
const SQL: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000) \
                   SELECT x % 17, sum(x * x % 1009), count(*), max(hex(x)) FROM c GROUP BY 1;";
const PYTHON: &str = "import zlib\nd = {i: str(i * i) for i in range(9000)}\n\
                      print(zlib.crc32(''.join(d.values()).encode()), sum(map(len, d.values())))";

/// Every program the lab knows. The first is the papers' and the default.
pub const PROGRAMS: [Program; 19] = [
    Program {
        name: "md5sum",
        path: "/bin/busybox",
        args: &["md5sum", "random-4m"],
        package: "busybox-static",
        children: false,
    },
    Program {
        name: "bzip2",
        path: "/usr/bin/bzip2",
        args: &["-c", "text-300k"],
        package: "bzip2",
        children: false,
    },
    Program {
        name: "sha256",
        path: "/usr/bin/openssl",
        args: &["dgst", "-sha256", "random-4m"],
        package: "openssl",
        children: false,
    },
    Program {
        name: "awk",
        path: "/usr/bin/gawk",
        args: &[AWK, "text-300k"],
        package: "gawk",
        children: false,
    },
    Program {
        name: "sqlite3",
        path: "/usr/bin/sqlite3",
        args: &[":memory:", SQL],
        package: "sqlite3",
        children: false,
    },
    Program {
        name: "python",
        path: "/usr/bin/python3",
        args: &["-S", "-E", "-c", PYTHON],
        package: "python3",
        children: false,
    },
    Program {
        name: "pigz",
        path: "/usr/bin/pigz",
        args: &["-c", "-p2", "-b32", "text-300k"],
        package: "pigz",
        children: false,
    },
    Program {
        name: "mutex",
        path: "./mutex",
        args: &[],
        package: "gcc",
        children: false,
    },
    Program {
        name: "race",
        path: "./race",
        args: &[],
        package: "gcc",
        children: false,
    },
    Program {
        name: "preempted",
        path: "./preempted",
        args: &[],
        package: "gcc",
        children: false,
    },
    // Some seconds of CPU time without a call.
    Program {
        name: "computing",
        path: "./computing",
        args: &[],
        package: "gcc",
        children: false,
    },
    // So long that ticks decide before it ends.
    Program {
        name: "computing-more",
        path: "./computing",
        args: &["400000"],
        package: "gcc",
        children: false,
    },
    // Half a second.
    Program {
        name: "computing-less",
        path: "./computing",
        args: &["20000"],
        package: "gcc",
        children: false,
    },
    Program {
        name: "effects",
        path: "./effects",
        args: &[],
        package: "gcc",
        children: false,
    },
    Program {
        name: "workers",
        path: "./workers",
        args: &[],
        package: "gcc",
        children: true,
    },
    Program {
        name: "pipeline",
        path: "/bin/sh",
        args: &["-c", PIPELINE],
        package: "dash",
        children: true,
    },
    Program {
        name: "shell",
        path: "/usr/bin/bash",
        args: &["-c", SHELL],
        package: "bash",
        children: true,
    },
    Program {
        name: "make",
        path: "/bin/sh",
        args: &["-c", MAKE],
        package: "make",
        children: true,
    },
    // On every Debian.
    Program {
        name: "sha256sum",
        path: "/usr/bin/sha256sum",
        args: &["random-4m"],
        package: "coreutils",
        children: false,
    },
];

/// The programs of a comma-separated list of names.
///
/// # Errors
///
/// If a name is unknown or its program is not installed.
pub fn select(list: &str) -> Result<Vec<Program>> {
    list.split(',').map(str::trim).map(find).collect()
}

fn find(name: &str) -> Result<Program> {
    let Some(program) = PROGRAMS.iter().find(|program| program.name == name) else {
        let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        bail!("unknown program '{name}'; known: {}", known.join(", "));
    };
    if program.path.starts_with('/') && !Path::new(program.path).exists() {
        bail!(
            "{} is missing: apt-get install {}",
            program.path,
            program.package
        );
    }
    Ok(*program)
}

impl Program {
    /// Compiles it into `folder`, if it is one of ours and not there yet: whoever runs other
    /// programs needs no compiler.
    ///
    /// # Errors
    ///
    /// If there is no C compiler, or the folder cannot be written.
    pub(crate) fn make(&self, folder: &Path) -> Result<()> {
        let own = SOURCES
            .iter()
            .find(|(name, _)| self.path.strip_prefix("./") == Some(name));
        let Some((name, source)) = own.filter(|(name, _)| !folder.join(name).exists()) else {
            return Ok(());
        };
        let file = folder.join(format!("{name}.c"));
        fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
        let done = Command::new("cc")
            .args(["-O1", "-pthread", "-o", name])
            .arg(&file)
            .current_dir(folder)
            .status()
            .context("cannot run cc: apt-get install gcc")?;
        ensure!(done.success(), "cc does not take {name}.c");
        Ok(())
    }
}

/// Writes the input files into `folder`.
///
/// # Errors
///
/// If the folder cannot be written.
pub fn write_inputs(folder: &Path) -> Result<()> {
    let mut rng = Rng::new(&[0x696e_7075_7473]);
    let random: Vec<u8> = (0..(4 << 20) / 8)
        .flat_map(|_| rng.next().to_le_bytes())
        .collect();
    let mut text = String::new();
    while text.len() < 300_000 {
        let word = rng.next();
        text.push_str(&((word % 50_000) >> (word >> 60)).to_string());
        text.push(if word & 0xf00 == 0 { '\n' } else { ' ' });
    }
    text.push('\n');
    for (name, content) in [
        ("random-4m", random.as_slice()),
        ("text-300k", text.as_bytes()),
        ("jobs.mk", RULES.as_bytes()),
    ] {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PROGRAMS, select, write_inputs};

    #[test]
    fn only_what_is_ours_is_compiled() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let make = |name| {
            let program = PROGRAMS.iter().find(|program| program.name == name);
            program
                .expect("a program")
                .make(folder.path())
                .expect("made");
        };
        make("sha256sum");
        let entries = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(entries, 0);
        make("mutex");
        make("mutex");
        assert!(folder.path().join("mutex").exists());
    }

    #[test]
    fn unknown_programs_are_refused() {
        let error = select("sha256sum,emacs").expect_err("not a program of the lab");
        assert!(error.to_string().contains("emacs"));
    }

    #[test]
    fn names_are_unique() {
        for (index, program) in PROGRAMS.iter().enumerate() {
            assert!(
                PROGRAMS[..index]
                    .iter()
                    .all(|other| other.name != program.name)
            );
        }
    }

    #[test]
    fn inputs_never_change() {
        let folder = tempfile::tempdir().expect("temporary folder");
        write_inputs(folder.path()).expect("written");
        let sums = ["random-4m", "text-300k"].map(|name| {
            let content = std::fs::read(folder.path().join(name)).expect("just written");
            content
                .iter()
                .fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
        });
        assert_eq!(sums, PINNED);
    }

    const PINNED: [u64; 2] = [17_111_782_914_005_589_530, 5_965_931_598_025_982_252];
}

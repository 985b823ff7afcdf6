//! Real programs of Debian that are hit, with inputs made from a fixed seed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::plan::Rng;

/// A program and its arguments; input files are relative to the work folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The word used on the command line.
    pub name: &'static str,
    /// Absolute path of the executable.
    pub path: &'static str,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// Debian package that holds it.
    pub package: &'static str,
}

const AWK: &str = "{ for (i = 1; i <= NF; i++) n[$i % 997] += $i; s += NF } \
                   END { for (k = 0; k < 997; k++) print k, n[k]; print s }";
const SQL: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000) \
                   SELECT x % 17, sum(x * x % 1009), count(*), max(hex(x)) FROM c GROUP BY 1;";
const PYTHON: &str = "import zlib\nd = {i: str(i * i) for i in range(9000)}\n\
                      print(zlib.crc32(''.join(d.values()).encode()), sum(map(len, d.values())))";

/// Every program the lab knows. The first is the papers' and the default.
pub const PROGRAMS: [Program; 6] = [
    Program {
        name: "md5sum",
        path: "/bin/busybox",
        args: &["md5sum", "random-4m"],
        package: "busybox-static",
    },
    Program {
        name: "bzip2",
        path: "/usr/bin/bzip2",
        args: &["-c", "text-300k"],
        package: "bzip2",
    },
    Program {
        name: "sha256",
        path: "/usr/bin/openssl",
        args: &["dgst", "-sha256", "random-4m"],
        package: "openssl",
    },
    Program {
        name: "awk",
        path: "/usr/bin/gawk",
        args: &[AWK, "text-300k"],
        package: "gawk",
    },
    Program {
        name: "sqlite3",
        path: "/usr/bin/sqlite3",
        args: &[":memory:", SQL],
        package: "sqlite3",
    },
    Program {
        name: "python",
        path: "/usr/bin/python3",
        args: &["-S", "-E", "-c", PYTHON],
        package: "python3",
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
    if !Path::new(program.path).exists() {
        bail!(
            "{} is missing: apt-get install {}",
            program.path,
            program.package
        );
    }
    Ok(*program)
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
    fn unknown_programs_are_refused() {
        let error = select("md5sum,emacs").expect_err("not a program of the lab");
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

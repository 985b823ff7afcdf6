//! `cargo xtask counted`: a program that counts its own branches, for `--count-by compiler`.
//!
//! A program in C, or the assembler text of any other (`rustc --emit asm` of all of it), gets
//! counts from `rcoe-counted` (`kernel/counted`), is assembled and linked as programs in C are, and
//! then looked through for what is not counted.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::image::{Machine, machine};
use crate::shell;

/// What is to be built.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program: C, or assembler text of all of it
    #[arg(value_name = "FILE.c|FILE.s")]
    source: PathBuf,
    /// The processor
    #[arg(long, default_value = "x86_64", value_parser = ["x86_64", "aarch64"])]
    arch: String,
    /// Where it goes
    #[arg(short, value_name = "PROGRAM")]
    output: PathBuf,
}

/// What keeps the compiler from using what counts.
const fn reserved(arch: &str) -> &'static [&'static str] {
    match arch.as_bytes() {
        b"x86_64" => &["-ffixed-xmm15"],
        // Where there are atomic instructions that an interruption does not have fail.
        _ => &["-ffixed-v30", "-ffixed-v31", "-march=armv8.1-a"],
    }
}

/// Builds one.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let machine = machine(&options.arch);
    let [compiler, package] = machine.c;
    let there = Command::new(compiler).arg("--version").output().is_ok();
    ensure!(there, "{compiler} is missing (package {package})");
    let Some(tool) = tool()? else {
        return Ok(false);
    };
    let counting = Counting { machine, tool };
    counting.build(&options.source, &options.output)
}

/// Builds `rcoe-counted`; where it is, if that went well.
pub(crate) fn tool() -> Result<Option<PathBuf>> {
    let build = shell::cargo(["build", "--quiet", "--package", "rcoe-counted"]);
    let good = shell::succeeds(build)?;
    Ok(good.then(|| shell::target().join("debug/rcoe-counted")))
}

/// How programs of one machine are built.
pub(crate) struct Counting<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) tool: PathBuf,
}

impl Counting<'_> {
    /// Builds a program; tells whether that went well.
    pub(crate) fn build(&self, source: &Path, output: &Path) -> Result<bool> {
        let folder = tempfile::tempdir()?;
        let text = match source.extension().and_then(|it| it.to_str()) {
            Some("s") => source.to_owned(),
            Some("c") => {
                let text = folder.path().join("plain.s");
                let mut command = self.compiler();
                command.args(["-Wall", "-Wextra", "-Werror", "-S"]);
                command.arg(source).arg("-o").arg(&text);
                if !shell::succeeds(command)? {
                    return Ok(false);
                }
                text
            }
            _ => bail!("{}: neither FILE.c nor FILE.s", source.display()),
        };
        let counted = folder.path().join("counted.s");
        let mut command = Command::new(&self.tool);
        command.args(["text", self.machine.arch]);
        command.arg(&text).arg(&counted);
        if !shell::succeeds(command)? {
            return Ok(false);
        }
        let linked = folder.path().join("program");
        let mut command = self.compiler();
        command.arg("-Wl,--strip-debug").arg(&counted);
        command.arg("-o").arg(&linked);
        let mut look = Command::new(&self.tool);
        look.arg("scan").arg(&linked);
        if !shell::succeeds(command)? || !shell::succeeds(look)? {
            return Ok(false);
        }
        std::fs::copy(&linked, output).with_context(|| output.display().to_string())?;
        Ok(true)
    }

    fn compiler(&self) -> Command {
        let mut command = Command::new(self.machine.c[0]);
        command.args(self.machine.c_arguments());
        command.args(reserved(self.machine.arch));
        command
    }

    /// The same, unless what is there is newer than all that it is made from.
    pub(crate) fn renew(&self, source: &Path, output: &Path) -> Result<bool> {
        let of = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
        let header = shell::root().join("user/include/rcoe-system.h");
        let made = of(output);
        let newer = [source, &header, &self.tool]
            .map(of)
            .iter()
            .all(|it| *it < made);
        if made.is_some() && newer {
            return Ok(true);
        }
        self.build(source, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a user gives the command.
    fn build(source: &Path, arch: &str, output: &Path) -> Result<bool> {
        run(&Options {
            source: source.to_owned(),
            arch: arch.to_owned(),
            output: output.to_owned(),
        })
    }

    /// Processors for which there is a compiler here.
    fn processors() -> impl Iterator<Item = &'static str> {
        let all = ["x86_64", "aarch64"].into_iter();
        all.filter(|arch| {
            let mut command = Command::new(machine(arch).c[0]);
            command.arg("--version").output().is_ok()
        })
    }

    #[test]
    fn a_program_is_built_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let source = shell::root().join("user/c/racing.c");
        for arch in processors() {
            let output = folder.path().join(arch);
            assert!(build(&source, arch, &output).unwrap(), "{arch}");
            let mut scan = Command::new(tool().unwrap().unwrap());
            scan.arg("scan").arg(&output);
            assert!(shell::succeeds(scan).unwrap(), "{arch}");
        }
    }

    /// What has the register of the count for something else, and what is no source.
    #[test]
    fn what_cannot_count_is_refused_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program.c");
        let output = folder.path().join("program");
        for arch in processors() {
            let taken = match arch {
                "x86_64" => "pxor %xmm15, %xmm15",
                _ => "eor v31.16b, v31.16b, v31.16b",
            };
            let text = format!(
                "#include \"rcoe-system.h\"\nstatic uint64_t own(uint64_t argument)\n{{\n    \
                 __asm__ volatile(\"{taken}\");\n    return argument;\n}}\nRCOE_PROGRAM(own);\n"
            );
            std::fs::write(&source, text).unwrap();
            assert!(!build(&source, arch, &output).unwrap(), "{arch}");
            assert!(!output.exists());
            let other = folder.path().join("program.txt");
            let refused = build(&other, arch, &output).unwrap_err().to_string();
            assert!(refused.contains("neither FILE.c nor FILE.s"), "{refused}");
        }
    }
}

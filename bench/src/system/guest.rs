//! Rounds of programs that compute in Linux as a guest of closely coupled replicas (DSN'19, table
//! III), and how long Linux takes to its shell, in the emulator's counted time.
//!
//! Linux and busybox are not the project's: the environment names them. The rounds are those of
//! `rounds`, the same source, built here for Linux; so they are held beside what they take as a
//! program of the microkernel, and what they come to is the same.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::compiled::FLOATING;
use super::coupling::{all_agreed, count, note, push, run};
use super::machine::{Arch, Bench, Told as Figures};
use super::{NS, Told, USUAL};

/// What the environment names, and what that is.
const LINUX: [&str; 2] = ["RCOE_GUEST_LINUX", "a kernel of Linux for arm64 (Image)"];
const BUSYBOX: [&str; 2] = ["RCOE_GUEST_BUSYBOX", "a static busybox for arm64"];

/// The compiler for its programs, and the package that it is in.
const COMPILER: [&str; 2] = ["aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"];
const SOURCES: [(&str, &str); 2] = [
    ("guest.c", include_str!("guest.c")),
    ("rounds.c", include_str!("../../../user/c/rounds.c")),
];
const FLAGS: [&str; 9] = [
    "-std=gnu11",
    "-O2",
    "-ffreestanding",
    "-fno-pie",
    "-fno-stack-protector",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-o",
];

/// What Linux starts: it computes as much as the command line says, and switches the machine off.
const SCRIPT: &str = "#!/bin/busybox sh
/bin/busybox echo begin
/bin/rounds integers $1
/bin/rounds floating $2
/bin/busybox poweroff -f
";

/// What is done in rounds, and what is added to an argument of `rounds` for that.
const WORK: [(&str, u64); 2] = [("integers", 0), ("floating point", FLOATING)];

/// Rounds of either in a short run, and in a long one of that.
const FEW: [u64; 2] = [10, 400];
const MANY: [u64; 2] = [90, 4_400];

/// A machine with a guest, and its files.
struct Guest<'a> {
    bench: &'a Bench,
    kernel: String,
    files: String,
    _folder: TempDir,
}

impl<'a> Guest<'a> {
    fn prepare(bench: &'a Bench) -> Result<Self> {
        ensure!(
            bench.arch() == Arch::Arm,
            "part guest: virtual processors are those of --arch aarch64"
        );
        let (kernel, busybox) = (named(LINUX)?, named(BUSYBOX)?);
        let folder = tempfile::tempdir()?;
        let program = compile(folder.path())?;
        let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
        let (busybox, program) = (read(&busybox)?, read(&program)?);
        let files = folder.path().join("files");
        let content = archive(&[
            ("bin", 0o40_755, b""),
            ("bin/busybox", 0o100_755, &busybox),
            ("bin/rounds", 0o100_755, &program),
            ("init", 0o100_755, SCRIPT.as_bytes()),
        ]);
        std::fs::write(&files, content)?;
        Ok(Self {
            bench,
            kernel: kernel.display().to_string(),
            files: files.display().to_string(),
            _folder: folder,
        })
    }

    /// What a run told with so many rounds of each, and what these came to.
    fn run(&self, replicas: usize, rounds: [u64; 2]) -> Result<(Figures, Vec<String>)> {
        let options = ["--no-reintegrate", "--guest", &self.kernel];
        let options = [&options[..], &["--initrd", &self.files]].concat();
        let rounds = rounds.map(|count| count.to_string());
        let line = ["console=ttyAMA0", "panic=-1", "--", &rounds[0], &rounds[1]];
        let (told, out) = self.bench.run_said(run(replicas, USUAL), &options, &line)?;
        all_agreed(&told, "Linux")?;
        let lines = out.lines().map(|line| line.trim_end().to_owned());
        let mut lines = lines.filter(|line| !line.starts_with('['));
        let begin = lines.next();
        ensure!(begin.as_deref() == Some("begin"), "no shell: {out}");
        Ok((told, lines.collect()))
    }
}

/// A file that the environment names.
fn named([variable, what]: [&str; 2]) -> Result<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    let path = path.with_context(|| format!("part guest: {variable} has to name {what}"))?;
    ensure!(path.is_file(), "{variable}: no file {}", path.display());
    Ok(path)
}

/// Builds the program for Linux.
fn compile(folder: &Path) -> Result<PathBuf> {
    for (name, text) in SOURCES {
        std::fs::write(folder.join(name), text)?;
    }
    let program = folder.join("rounds");
    let mut command = Command::new(COMPILER[0]);
    command
        .args(FLAGS)
        .arg(&program)
        .arg(folder.join("guest.c"));
    let done = command.status();
    let done = done.with_context(|| format!("{} (package {})", COMPILER[0], COMPILER[1]))?;
    ensure!(done.success(), "the program for Linux could not be built");
    Ok(program)
}

/// An archive of such files (cpio, `newc`): paths, modes, contents.
fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let end: (&str, u32, &[u8]) = ("TRAILER!!!", 0, b"");
    let mut made = Vec::new();
    for (number, &(path, mode, content)) in files.iter().chain([&end]).enumerate() {
        made.extend(b"070701");
        // Number, mode, owners, links, time, length, devices, length of the path, sum.
        let begin = format!("{number:08x}{mode:08x}{:08x}{:08x}{:08x}", 0, 0, 1);
        let (len, name) = (content.len(), path.len() + 1);
        let rest = format!("{:08x}{len:08x}{:032x}{name:08x}{:08x}", 0, 0, 0);
        made.extend(begin.bytes().chain(rest.bytes()));
        made.extend(path.bytes().chain([0]));
        made.resize(made.len().next_multiple_of(4), 0);
        made.extend(content);
        made.resize(made.len().next_multiple_of(4), 0);
    }
    made
}

pub(super) fn measure(bench: &Bench, out: &mut Told) -> Result<()> {
    let guest = Guest::prepare(bench)?;
    let results = natively(bench, out)?;
    let mut base = [None; 2];
    for replicas in NS {
        let began = Instant::now();
        let (short, said) = guest.run(replicas, FEW)?;
        let seconds = began.elapsed().as_secs_f64();
        ensure!(said == results[0], "{said:?}, not {:?}", results[0]);
        start(out, replicas, (&short, seconds))?;
        for (at, (name, _)) in WORK.into_iter().enumerate() {
            let (mut rounds, mut right) = (FEW, results[0].clone());
            (rounds[at], right[at]) = (MANY[at], results[1][at].clone());
            let (long, said) = guest.run(replicas, rounds)?;
            ensure!(said == right, "{said:?}, not {right:?}");
            let round = each(replicas, [FEW[at], MANY[at]], [&short, &long]);
            let what = (name, "in the guest");
            tell(out, what, replicas, [round, *base[at].get_or_insert(round)]);
        }
    }
    Ok(())
}

/// The same rounds as a program of the microkernel, loosely coupled; what few and many of either
/// come to.
fn natively(bench: &Bench, out: &mut Told) -> Result<[Vec<String>; 2]> {
    let options = ["--no-reintegrate", "--coupling", "loose"];
    let mut results = [Vec::new(), Vec::new()];
    for (at, (name, more)) in WORK.into_iter().enumerate() {
        let mut base = None;
        for replicas in NS {
            let run = |rounds: u64| {
                let argument = (more + rounds).to_string();
                bench.run_said(run(replicas, USUAL), &options, &["rounds", &argument])
            };
            let [(short, few), (long, many)] = [run(FEW[at])?, run(MANY[at])?];
            let round = each(replicas, [FEW[at], MANY[at]], [&short, &long]);
            let what = (name, "native, loosely coupled");
            tell(out, what, replicas, [round, *base.get_or_insert(round)]);
            if replicas == NS[0] {
                for (results, said) in results.iter_mut().zip([few, many]) {
                    let number = said.trim().rsplit(' ').next().unwrap_or_default();
                    results.push(number.to_owned());
                }
            }
        }
    }
    Ok(results)
}

/// What one more round takes each replica.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn each(replicas: usize, [few, many]: [u64; 2], [short, long]: [&Figures; 2]) -> f64 {
    (long.cycles - short.cycles) / (many - few) as f64 / replicas as f64
}

/// A round takes so much, and took one replica so much there.
fn tell(out: &mut Told, (name, place): (&str, &str), replicas: usize, [round, base]: [f64; 2]) {
    let ratio = round / base;
    let unit = out.counted;
    let text = format!("rounds of {name}, {place}, {replicas} replicas: {round:.1} {unit}");
    eprintln!("{text}");
    let _ = writeln!(out, "\n{text}, {ratio:.4} of one");
    note(
        out,
        format!("rounds of {name}, {place}"),
        replicas,
        round,
        Some(ratio),
    );
}

/// Linux came to its shell, which computed a little and switched the machine off.
fn start(out: &mut Told, replicas: usize, (told, seconds): (&Figures, f64)) -> Result<()> {
    let [points, events] = told.points.context("no points were told")?;
    let votes = told.votes.context("no rendezvous were told")?;
    let cycles = told.cycles;
    let text = format!(
        "Linux to its shell and off, {replicas} replicas: {cycles:.0} {}, {seconds:.1} s, \
         {votes:.0} meetings, {points} points",
        out.counted
    );
    eprintln!("{text}");
    let _ = writeln!(out, "\n{text}");
    let what = |what: &str| format!("Linux to its shell and off: {what}");
    note(out, what("all cores"), replicas, cycles, None);
    let own = (what("the host's time"), "s");
    push(out, own, replicas, seconds, None);
    push(out, (what("meetings"), "times"), replicas, votes, None);
    count(out, (what("points"), "times"), replicas, points);
    let between = (what("points between events"), "times");
    count(out, between, replicas, points - events);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::archive;

    #[test]
    fn an_archive_has_files_at_multiples_of_four() {
        let made = archive(&[("bin", 0o40_755, b""), ("a", 0o100_755, b"12345")]);
        assert_eq!(made.len() % 4, 0);
        let text = String::from_utf8(made).unwrap();
        let headers: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(headers.len(), 3);
        assert!(headers.iter().all(|at| at % 4 == 0), "{headers:?}");
        let file = &text[headers[1]..headers[2]];
        assert_eq!(&file[6..22], "00000001000081ed");
        assert_eq!([&file[54..62], &file[94..102]], ["00000005", "00000002"]);
        assert_eq!(&file[110..112], "a\0");
        assert_eq!(&file[112..117], "12345");
    }
}

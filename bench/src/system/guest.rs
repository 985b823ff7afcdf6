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
use super::machine::{Arch, Bench, Told as Figures, per_each};
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

/// What Linux starts: it computes if the command line says what, and switches the machine off.
const SCRIPT: &str = "#!/bin/busybox sh
/bin/busybox echo begin
[ -z \"$1\" ] || /bin/rounds \"$1\" \"$2\"
/bin/busybox poweroff -f
";

/// What is done in rounds, what is added to an argument for that, and rounds of a short and of a
/// long run.
const WORK: [(&str, u64, [u64; 2]); 2] = [
    ("integers", 0, [10, 90]),
    ("floating", FLOATING, [400, 4_400]),
];

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

    /// What a run told, and the lines that its programs printed.
    fn run(
        &self,
        replicas: usize,
        options: &[&str],
        command: &[&str],
    ) -> Result<(Figures, Vec<String>)> {
        let guest = ["--guest", &self.kernel, "--initrd", &self.files];
        let options = [&["--no-reintegrate"], &guest[..], options].concat();
        let line = ["console=ttyAMA0", "panic=-1", "--"];
        let words = [&line[..], command].concat();
        let (told, out) = self
            .bench
            .run_said(run(replicas, USUAL), &options, &words)?;
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
    starts(&guest, out)?;
    let _ = writeln!(
        out,
        "\n### Rounds in a guest\n\n\
         | what | where | replicas | a round | of one replica there |\n|---|---|---|---|---|"
    );
    for work in WORK {
        let native = rounds(out, (work, "native, loosely coupled"), |replicas, count| {
            let options = ["--no-reintegrate", "--coupling", "loose"];
            let argument = (work.1 + count).to_string();
            let words = ["rounds", &argument];
            let (told, said) = bench.run_said(run(replicas, USUAL), &options, &words)?;
            let result = said.trim().rsplit(' ').next().unwrap_or_default();
            Ok((told, result.to_owned()))
        })?;
        for (how, by) in [("", "counter"), (", by breakpoints", "breakpoint")] {
            let place = format!("in the guest{how}");
            let results = rounds(out, (work, &place), |replicas, count| {
                let options = ["--stop-by", by];
                let command = [work.0, &count.to_string()];
                let (told, lines) = guest.run(replicas, &options, &command)?;
                Ok((told, lines.concat()))
            })?;
            ensure!(results == native, "{place}: {results:?}, not {native:?}");
        }
    }
    Ok(())
}

/// Linux comes to its shell, which switches the machine off.
fn starts(guest: &Guest<'_>, out: &mut Told) -> Result<()> {
    let counted = out.counted;
    let _ = writeln!(
        out,
        "\n### Linux to its shell, and off\n\n\
         | replicas | {counted} | seconds of the host | meetings | points |\n|---|---|---|---|---|"
    );
    for replicas in NS {
        let began = Instant::now();
        let (told, _) = guest.run(replicas, &[], &[])?;
        let seconds = began.elapsed().as_secs_f64();
        let [points, events] = told.points.context("no points were told")?;
        let votes = told.votes.context("no rendezvous were told")?;
        let cycles = told.cycles;
        let _ = writeln!(
            out,
            "| {replicas} | {cycles:.0} | {seconds:.1} | {votes:.0} | {points} |"
        );
        let what = |what: &str| format!("Linux to its shell and off: {what}");
        note(out, what("all cores"), replicas, cycles, None);
        push(out, (what("the host's time"), "s"), replicas, seconds, None);
        push(out, (what("meetings"), "times"), replicas, votes, None);
        count(out, (what("points"), "times"), replicas, points);
        let between = (what("points between events"), "times");
        count(out, between, replicas, points - events);
    }
    Ok(())
}

/// What a round takes each replica, of what it takes one; and what a short and a long run come to,
/// the same with any number of replicas.
fn rounds(
    out: &mut Told,
    ((name, _, lengths), place): ((&str, u64, [u64; 2]), &str),
    mut measure: impl FnMut(usize, u64) -> Result<(Figures, String)>,
) -> Result<Vec<String>> {
    let (mut base, mut results) = (None, Vec::new());
    for replicas in NS {
        let mut own = Vec::new();
        let round = per_each(run(replicas, USUAL), lengths, |count| {
            let (told, result) = measure(replicas, count)?;
            own.push(result);
            Ok(told)
        })?;
        let ratio = round / *base.get_or_insert(round);
        let _ = writeln!(
            out,
            "| {name} | {place} | {replicas} | {round:.1} | {ratio:.4} |"
        );
        eprintln!("{name} {place}, {replicas} replicas: {round:.1}");
        let what = format!("rounds of {name}, {place}");
        note(out, what, replicas, round, Some(ratio));
        if replicas == NS[0] {
            results.clone_from(&own);
        }
        ensure!(
            own == results,
            "{place}, {replicas}: {own:?}, not {results:?}"
        );
    }
    Ok(results)
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

//! Runs of a whole machine, and the cycles that its kernel tells at the end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// What time is in a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// Instructions of all cores together: exact, and the same each time.
    Counted,
    /// The host's, all cores in turns on one thread.
    #[value(name = "single")]
    Host,
    /// The host's, a thread for each core.
    #[value(name = "multi")]
    Threads,
}

impl Clock {
    const fn option(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Host => "single",
            Self::Threads => "multi",
        }
    }

    /// Do all cores share one clock, so that a replica's own part is an n-th?
    pub(super) const fn is_shared(self) -> bool {
        !matches!(self, Self::Threads)
    }
}

/// Whose processor a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arch {
    /// A PC.
    #[value(name = "x86_64")]
    X86,
    /// ARM's, with 64 bits.
    #[value(name = "aarch64")]
    Arm,
}

impl Arch {
    const fn option(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// Where its part of the image is.
    const fn subfolder(self) -> &'static str {
        match self {
            Self::X86 => "",
            Self::Arm => "aarch64",
        }
    }

    /// What its clock counts where it counts instructions: that of QEMU's AArch64 has 62.5 MHz, and
    /// an instruction takes 1 ns.
    pub(super) const fn counted(self) -> &'static str {
        match self {
            Self::X86 => "instructions",
            Self::Arm => "ticks of 16 instructions",
        }
    }

    /// As many of these as a millisecond has.
    pub(super) const fn millisecond(self) -> u64 {
        match self {
            Self::X86 => 1_000_000,
            Self::Arm => 62_500,
        }
    }

    /// What the names of its series end with.
    pub(super) const fn in_names(self) -> &'static str {
        match self {
            Self::X86 => "",
            Self::Arm => ", AArch64",
        }
    }
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) replicas: usize,
    pub(super) compare: &'a str,
    pub(super) clock: Clock,
    /// `--tick`: seldom, where single calls are measured.
    pub(super) tick: &'a str,
    /// Words for the kernel.
    pub(super) words: &'a str,
}

/// What a run told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Told {
    pub(super) cycles: f64,
    /// Times that the replicas met.
    pub(super) votes: Option<f64>,
    /// Cycles of one delivery of an interrupt.
    pub(super) interrupt: Option<f64>,
    /// Cycles of one removal of a replica.
    pub(super) removal: Option<f64>,
    /// Cycles that the others waited for a copy, in all its portions.
    pub(super) copy: Option<f64>,
    /// The longest of these waits.
    pub(super) portion: Option<f64>,
    /// Points at which closely coupled replicas stood at one instruction, and those of them that
    /// were at events.
    pub(super) points: Option<[u64; 2]>,
    /// Cycles of coming to one.
    pub(super) point: Option<f64>,
}

/// The numbers of a line like `points 7, at events 1, cycles each 5`, but for the last.
fn points(line: &str) -> Option<[u64; 2]> {
    let numbers: Vec<u64> = line
        .split([' ', ','])
        .filter_map(|word| word.parse().ok())
        .collect();
    let [points, events, _] = numbers[..] else {
        return None;
    };
    Some([points, events])
}

impl Told {
    fn parse(text: &str) -> Option<Self> {
        let mut told = Self::default();
        let mut found = false;
        for line in text.lines() {
            let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
            let first = words.next();
            let last = words.next_back().and_then(|word| word.parse().ok());
            match first {
                Some("cycles") => {
                    let cycles = line.strip_prefix("cycles ")?.split(',').next()?;
                    told.cycles = cycles.parse().ok()?;
                    told.votes = last;
                    found = true;
                }
                Some("interrupts") => told.interrupt = last,
                Some("removals") => told.removal = last,
                Some("copies") => told.copy = last,
                Some("portions") => told.portion = last,
                Some("points") => {
                    told.points = points(line);
                    told.point = last;
                }
                _ => {}
            }
        }
        found.then_some(told)
    }
}

/// How a run ends whose replicas differ, where that cannot be masked.
const FAIL_STOP: i32 = 86;

/// Where machines are run.
#[derive(Debug)]
pub(super) struct Bench {
    rcoe: PathBuf,
    arch: Arch,
}

impl Bench {
    pub(super) fn new(rcoe: &Path, arch: Arch) -> Self {
        Self {
            rcoe: rcoe.to_owned(),
            arch,
        }
    }

    /// Runs a program with its argument. Late replicas are given all the time there is: it is
    /// costs that are measured.
    pub(super) fn run(&self, run: Run<'_>, program: &str, argument: u64) -> Result<Told> {
        self.run_with(run, &["--no-reintegrate"], program, argument)
    }

    /// As [`Self::run`], with options that say whether replicas come back.
    pub(super) fn run_with(
        &self,
        run: Run<'_>,
        options: &[&str],
        program: &str,
        argument: u64,
    ) -> Result<Told> {
        self.run_words(run, options, &[program, &argument.to_string()])
    }

    /// As [`Self::run_with`], of a program with any arguments.
    pub(super) fn run_words(&self, run: Run<'_>, options: &[&str], words: &[&str]) -> Result<Told> {
        Ok(self.run_said(run, options, words)?.0)
    }

    /// The same, with what the program printed.
    pub(super) fn run_said(
        &self,
        run: Run<'_>,
        options: &[&str],
        words: &[&str],
    ) -> Result<(Told, String)> {
        let [out, text] = self.tell(run, options, words, &[0])?;
        let told = Told::parse(&text);
        let told = told.with_context(|| format!("{run:?} {words:?} told nothing: {text}"))?;
        Ok((told, out))
    }

    /// Cycles from a flip that was asked for until it was noticed, if it was.
    pub(super) fn flip(
        &self,
        run: Run<'_>,
        options: &[&str],
        words: &[&str],
    ) -> Result<Option<f64>> {
        let [_, text] = self.tell(run, options, words, &[0, FAIL_STOP])?;
        let mut lines = text.lines();
        let rest = lines.find_map(|line| line.strip_prefix("flips 1, "));
        let rest = rest.with_context(|| format!("{run:?}: nothing flipped: {text}"))?;
        let cycles = rest.strip_prefix("cycles until noticed ");
        Ok(cycles.map(str::parse).transpose()?)
    }

    /// Whose machines these are.
    pub(super) const fn arch(&self) -> Arch {
        self.arch
    }

    /// The program of the image that counts its own branches, for runs of loosely coupled replicas.
    pub(super) fn counting(&self, program: &str) -> Result<String> {
        let named = std::env::var_os("RCOE_SYSTEM_IMAGE").map(PathBuf::from);
        let built = || Some(self.rcoe.parent()?.parent()?.join("system/image"));
        let folder = named.or_else(built).unwrap_or_default();
        let folder = folder.join(self.arch.subfolder()).join("counted");
        let path = folder.join(format!("system-{program}"));
        ensure!(
            path.is_file(),
            "{} is missing: build it by cargo xtask image, or name its folder by RCOE_SYSTEM_IMAGE",
            path.display()
        );
        Ok(path.display().to_string())
    }

    /// What a run prints and says at its end, which has to be one of these.
    fn tell(
        &self,
        run: Run<'_>,
        options: &[&str],
        words: &[&str],
        ends: &[i32],
    ) -> Result<[String; 2]> {
        let mut command = Command::new(&self.rcoe);
        command.args(["run", "--sphere", "system", "--stats"]);
        if !options.contains(&"--timeout") {
            command.args(["--timeout", "60s"]);
        }
        command.args(["--arch", self.arch.option()]);
        command.args(["-n", &run.replicas.to_string(), "--compare", run.compare]);
        command.args(["--core-threads", run.clock.option(), "--tick", run.tick]);
        command.args(options);
        command.arg("--").args(words);
        command.env("RCOE_SYSTEM_WORDS", run.words);
        let done = command.stdin(Stdio::null()).output();
        let done = done.with_context(|| format!("cannot start {command:?}"))?;
        let texts = [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        let ended = done.status.code().is_some_and(|code| ends.contains(&code));
        ensure!(ended, "{command:?}: {}", texts[1]);
        Ok(texts)
    }

    /// Cycles of one more round, for each replica: the difference of a long and a short run.
    pub(super) fn per_round(&self, run: Run<'_>, program: &str, rounds: [u64; 2]) -> Result<f64> {
        per_each(run, rounds, |rounds| self.run(run, program, rounds))
    }
}

/// Cycles of one more of something, for each replica, given runs with few and with many.
pub(super) fn per_each(
    run: Run<'_>,
    [few, many]: [u64; 2],
    mut measure: impl FnMut(u64) -> Result<Told>,
) -> Result<f64> {
    let base = measure(few)?.cycles;
    let whole = measure(many)?.cycles;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (count, shares) = ((many - few) as f64, run.replicas as f64);
    let own = if run.clock.is_shared() { shares } else { 1.0 };
    Ok((whole - base) / count / own)
}

#[cfg(test)]
mod tests {
    use super::Told;

    #[test]
    fn figures_are_read() {
        let text = "cycles 12, events 3, rendezvous 4\ninterrupts 10, cycles each 99\n\
                    removals 1, cycles each 7\ncopies 1, cycles each 8\n\
                    portions of copies 3, cycles of the longest 5\n\
                    points 6, at events 2, cycles each 11\n";
        let told = Told::parse(text);
        let expected = Told {
            cycles: 12.0,
            votes: Some(4.0),
            interrupt: Some(99.0),
            removal: Some(7.0),
            copy: Some(8.0),
            portion: Some(5.0),
            points: Some([6, 2]),
            point: Some(11.0),
        };
        assert_eq!(told, Some(expected));
        assert_eq!(Told::parse("nothing"), None);
    }
}

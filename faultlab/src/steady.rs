//! The opposite of a campaign: long runs without any fault, in which nothing may be reported.
//!
//! The programs do nothing but write, so that the number of voted calls is known by construction:
//! every `write` is an output call, and its arguments and content are voted in all modes.

use anyhow::{Result, ensure};

use crate::child::{Exit, Running, Setup};
use crate::program::Program;

/// Voted calls per run.
pub const CHUNK: u64 = 200_000;

/// A program that makes [`CHUNK`] voted calls.
const WRITERS: [Program; 3] = [
    Program {
        name: "dd",
        path: "/bin/busybox",
        args: &["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=200000"],
        package: "busybox-static",
        children: false,
    },
    Program {
        name: "perl",
        path: "/usr/bin/perl",
        args: &[
            "-e",
            "open F, '>', '/dev/null'; syswrite F, $_ x 3 for 1 .. 200000",
        ],
        package: "perl",
        children: false,
    },
    Program {
        name: "python",
        path: "/usr/bin/python3",
        args: &[
            "-S",
            "-E",
            "-c",
            "import os\nfor i in range(200000): os.write(1, b'%08d' % i)",
        ],
        package: "python3",
        children: false,
    },
];

/// What the run number `chunk` of a steady test does.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Replicas.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    program: Program,
}

impl Chunk {
    /// Goes round all combinations of replicas, modes and programs.
    ///
    /// # Panics
    ///
    /// If there is no number of replicas or no mode.
    #[must_use]
    pub fn number(chunk: usize, replicas: &[usize], modes: &[String]) -> Self {
        let program = chunk % WRITERS.len();
        let mode = chunk / WRITERS.len() % modes.len();
        let count = chunk / WRITERS.len() / modes.len() % replicas.len();
        Self {
            replicas: replicas[count],
            compare: modes[mode].clone(),
            program: WRITERS[program],
        }
    }

    /// Carries the run out.
    ///
    /// # Errors
    ///
    /// If it cannot be started, ends with another status than 0, or reports anything.
    pub fn run(&self, setup: &Setup) -> Result<()> {
        let setup = Setup {
            replicas: self.replicas,
            compare: self.compare.clone(),
            ..setup.clone()
        };
        let run = Running::start(&setup, &self.program, 0)?.finish()?;
        let what = format!(
            "{} n={} compare {}",
            self.program.name, self.replicas, self.compare
        );
        ensure!(
            run.exit == Some(Exit::Code(0)),
            "{what} ended with {:?}: {}",
            run.exit,
            run.stderr
        );
        let alarm = run.events.divergences.first();
        ensure!(alarm.is_none(), "false alarm in {what}: {alarm:?}");
        ensure!(run.leftovers == 0, "{what} left processes behind");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Chunk;

    #[test]
    fn all_combinations_come_round() {
        let modes = ["io", "args"].map(str::to_owned);
        let seen: BTreeSet<_> = (0..12)
            .map(|number| Chunk::number(number, &[2, 3], &modes))
            .map(|chunk| (chunk.program.name, chunk.compare, chunk.replicas))
            .collect();
        assert_eq!(seen.len(), 12);
    }
}

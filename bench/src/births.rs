//! What it costs to make a process: CPU time and page faults of all replicas together.
//!
//! The wall says little of that: replicas work side by side, and on a shared machine they wait. A
//! round of a loop of `fork`, what the child does, and `waitpid` is the difference of a run of many
//! rounds and one of a single round, so that starting rcoe is no part of it. A build is measured
//! whole. What native copies side by side take is the floor: *n* times native.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop, rotated, tool, words};

const ALL: [Configuration; 4] = [
    NATIVE,
    protected(1, "args"),
    protected(2, "args"),
    protected(3, "args"),
];

const SOURCE: &str = include_str!("births.c");
/// Rounds of a long run.
const ROUNDS: u32 = 41;
/// Files of the build.
const FILES: usize = 13;

const ENDS: &str = "fork, the child ends";
const EXECUTES: &str = "fork + exec of true (dynamic)";
const STATIC: &str = "fork + exec of a static program";
const BUILD: &str = "make -j2 of 13 files";

/// CPU time of a birth in milliseconds, its page faults, and CPU time of a build.
///
/// # Errors
///
/// If a run fails, or a tool is missing.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    workshop.compile("births", SOURCE, &["-static"])?;
    lay_out_build(workshop)?;
    let make = tool("make", "make")?.into_os_string();
    let mut build = vec![make];
    build.extend(words(&["-s", "-B", "-j2", "-f", "births.mk"]));
    let children = [
        (ENDS, None),
        (EXECUTES, Some("/bin/true")),
        (STATIC, Some("./nothing")),
    ];
    let mut collector = Collector::default();
    for repetition in 0..scale.long {
        for configuration in rotated(&ALL, repetition) {
            for (what, program) in children {
                let [time, faults] = birth(workshop, configuration, program)?;
                collector.add(what, configuration, "ms", time / 1e3);
                let what = format!("{what}: page faults");
                collector.add(&what, configuration, "", faults);
            }
        }
    }
    for repetition in 0..scale.rare {
        for configuration in rotated(&ALL[..3], repetition) {
            let [time, _] = used(workshop, configuration, &build)?;
            collector.add(BUILD, configuration, "s", time / 1e6);
        }
    }
    Ok(collector.finish())
}

/// Microseconds of CPU time and page faults of one round.
fn birth(
    workshop: &Workshop,
    configuration: Configuration,
    program: Option<&str>,
) -> Result<[f64; 2]> {
    let run = |rounds: u32| {
        let mut command = vec![workshop.path("births").into_os_string()];
        command.push(rounds.to_string().into());
        command.extend(program.map(OsString::from));
        used(workshop, configuration, &command)
    };
    let (many, one) = (run(ROUNDS)?, run(1)?);
    let rounds = f64::from(ROUNDS - 1);
    Ok([0, 1].map(|at| (many[at] - one[at]) / rounds))
}

/// Microseconds of CPU time and page faults of all processes of a run.
fn used(
    workshop: &Workshop,
    configuration: Configuration,
    command: &[OsString],
) -> Result<[f64; 2]> {
    let mut metered = vec![workshop.path("births").into_os_string(), "meter".into()];
    metered.extend(workshop.words(configuration, command));
    let told = workshop.output(NATIVE, &metered)?;
    parse(&told).with_context(|| format!("not two numbers: {told:?}"))
}

/// The numbers on the last line: what the command writes comes before it.
fn parse(told: &str) -> Option<[f64; 2]> {
    let mut numbers = told.lines().last()?.split(' ').map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

/// A static program that does nothing, and the build.
fn lay_out_build(workshop: &Workshop) -> Result<()> {
    let source = "int main(void) { return 0; }\n";
    workshop.compile("nothing", source, &["-static"])?;
    let names = (0..FILES).map(|number| format!("part{number}"));
    let mut rules = String::from("all:");
    for name in names.clone() {
        write!(rules, " {name}.o")?;
        let body =
            format!("#include <stdio.h>\nint {name}(int x) {{ return printf(\"%d\", x); }}\n");
        fs::write(workshop.path(&format!("{name}.c")), body)?;
    }
    rules.push_str("\n%.o: %.c\n\tcc -O2 -c -o $@ $<\n");
    fs::write(workshop.path("births.mk"), rules).context("cannot write the build")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn what_was_used_stands_on_the_last_line() {
        assert_eq!(parse("cc -c x\n1234 56\n"), Some([1234.0, 56.0]));
        assert_eq!(parse("1234\n"), None);
        assert_eq!(parse(""), None);
    }
}

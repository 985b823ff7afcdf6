//! Whether replicas of a run come to points between calls: what `--slice` and `--tick` ask for, and
//! whether it can be had here.
//!
//! Replicas are called away from computing by timers. A filter of system calls that this process
//! has inherited may forbid those, even on pain of death; so a child asks first.

use std::fs;
use std::time::Duration;

use rcoe_linux_sys::host::{Answer, Event, Probe, exact_branches, probe};
use rcoe_supervisor::{Places, RunError, Slice};

use crate::args::{PlacesArg, RunArgs, TickArg};

/// When replicas are called away.
pub(crate) struct Points {
    pub(crate) slice: Slice,
    pub(crate) tick: Option<Duration>,
    /// How they know where they are.
    pub(crate) places: Places,
    /// What the user should know of it.
    pub(crate) warning: Option<String>,
}

const FORBIDDEN: &str = "timers are forbidden here (timer_create, by a filter of system calls)";

impl Points {
    /// For so many replicas.
    ///
    /// # Errors
    ///
    /// If what is asked for cannot be had.
    pub(crate) fn of(args: &RunArgs, replicas: usize) -> Result<Self, RunError> {
        let mut points = Self {
            slice: slice(args)?,
            tick: tick(args, replicas)?,
            places: places(args, exact_branches)?,
            warning: None,
        };
        let refuse = |option: &str| {
            let why =
                format!("{option}: {FORBIDDEN}; leave it out, or have the filter let them be");
            Err(RunError::Setting(why))
        };
        if points.slice == Slice::Off && points.tick.is_none() || may_have_timers() {
            return Ok(points);
        }
        match points.slice {
            _ if points.tick.is_some() => return refuse("--tick"),
            Slice::Always(_) => return refuse("--slice"),
            _ => {}
        }
        points.slice = Slice::Off;
        points.warning = Some(format!(
            "{FORBIDDEN}: threads and signals wait for the next system call of a thread that \
             computes, as with --slice off"
        ));
        Ok(points)
    }
}

/// A debugged program has no slices.
fn slice(args: &RunArgs) -> Result<Slice, RunError> {
    match args.slice.0 {
        Slice::Always(_) if args.gdb.is_some() => {
            let why = "--gdb and --slice do not go together: a replica that stands at a \
                       breakpoint cannot meet others between calls; leave one of them out";
            Err(RunError::Setting(why.into()))
        }
        Slice::Least(_) if args.gdb.is_some() => Ok(Slice::Off),
        slice => Ok(slice),
    }
}

/// How often replicas that compute compare.
fn tick(args: &RunArgs, replicas: usize) -> Result<Option<Duration>, RunError> {
    let tick = args.tick.map_or(Ok(None), TickArg::of_process);
    match tick.map_err(RunError::Setting)? {
        Some(_) if replicas < 2 => {
            let why = "--tick has replicas compare, and one has nobody to be compared with; use \
                       -n 2, or leave --tick out";
            Err(RunError::Setting(why.into()))
        }
        tick => Ok(tick),
    }
}

/// How replicas know where they are. `exact`: the processor's counter, if it has one.
fn places(
    args: &RunArgs,
    exact: impl FnOnce() -> Result<Event, String>,
) -> Result<Places, RunError> {
    if args.tick.is_none() && args.places.is_some() {
        let why = "--places says how replicas know where they are at a tick; add --tick, or leave \
                   it out";
        return Err(RunError::Setting(why.into()));
    }
    match args.places {
        Some(PlacesArg::States) => return Ok(Places::States),
        Some(PlacesArg::Visits(at)) => return Ok(Places::Counter(Event::visits(at))),
        Some(PlacesArg::Counter) => {}
        None | Some(PlacesArg::Milestones) => return Ok(Places::Milestones),
    }
    exact().map(Places::Counter).map_err(|why| {
        RunError::Setting(format!(
            "--places counter: there is no exact counter of branches here: {why}; leave it out"
        ))
    })
}

/// Does no filter forbid timers?
fn may_have_timers() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    !is_filtered(&status) || matches!(probe(Probe::Timers), Ok(Answer::Yes))
}

/// Is a process with this status under a filter of system calls?
fn is_filtered(status: &str) -> bool {
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_counter_is_exact_or_refused_by_name() {
        let of = |options: &str| {
            let words = options.split_whitespace();
            let line = ["rcoe", "run", "-n", "2"].into_iter().chain(words);
            let cli = Cli::try_parse_from(line.chain(["true"])).expect("a command line");
            match cli.command {
                Command::Run(args) => *args,
                _ => unreachable!("it runs"),
            }
        };
        let event = Event::visits(7);
        let none = |args| places(&args, || Err("no such file".into()));
        assert!(matches!(none(of("--tick 1s")), Ok(Places::Milestones)));
        let states = none(of("--tick 1s --places states"));
        assert!(matches!(states, Ok(Places::States)));
        let args = of("--tick 1s --places counter");
        let found = places(&args, || Ok(event));
        assert!(matches!(found, Ok(Places::Counter(found)) if found == event));
        let refused = none(args).expect_err("there is none").to_string();
        assert!(refused.contains("no exact counter"), "{refused}");
        assert!(refused.contains("no such file"), "{refused}");
        let args = of("--places counter");
        let refused = places(&args, || Ok(event))
            .expect_err("of no use")
            .to_string();
        assert!(refused.contains("add --tick"), "{refused}");
        let visits = places(&of("--tick 1s --places visits:0x7"), || Err(String::new()));
        assert!(matches!(visits, Ok(Places::Counter(found)) if found == event));
    }

    #[test]
    fn a_filter_is_seen() {
        let status = "Name:\trcoe\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert!(is_filtered(status));
        assert!(!is_filtered(
            "Name:\trcoe\nSeccomp:\t0\nSeccomp_filters:\t0\n"
        ));
        assert!(!is_filtered(""));
    }
}

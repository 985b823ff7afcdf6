//! Options that only one of the spheres knows: in the other one they are refused by name.
//!
//! Intuition: an option that is given and has no effect is a promise that is not kept.
//!
//! Not covered: options that say what the other sphere does anyway (`--no-status`, `--no-ledger`).

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::args::SphereArg;

/// Options of the process sphere alone, as clap calls them.
const PROCESS: [&str; 12] = [
    "clock",
    "core_on_fault",
    "cores",
    "defer",
    "gdb",
    "metrics",
    "notify",
    "scrub",
    "slice",
    "places",
    "strict",
    "suspect_after",
];
/// Options of the system sphere alone.
const SYSTEM: [&str; 20] = [
    "accel",
    "arch",
    "core_threads",
    "count_by",
    "coupling",
    "debugger",
    "disk",
    "file",
    "guest",
    "initrd",
    "input",
    "memory",
    "memory_file",
    "monitor",
    "nic",
    "outgoing",
    "publish",
    "restored",
    "stop_by",
    "wire",
];

/// What is wrong with the options of a run, if anything is.
pub(crate) fn mismatch(run: &ArgMatches, sphere: SphereArg) -> Option<String> {
    let given = |id: &&&str| run.value_source(id) == Some(ValueSource::CommandLine);
    let (foreign, cure) = match sphere {
        SphereArg::Process => (&SYSTEM[..], "add --sphere system, or leave it out"),
        SphereArg::System => (&PROCESS[..], "leave it out, or leave out --sphere system"),
    };
    let option = foreign.iter().find(given)?.replace('_', "-");
    let (here, there) = match sphere {
        SphereArg::Process => ("process", "system"),
        SphereArg::System => ("system", "process"),
    };
    Some(format!(
        "--{option} is for the {there} sphere and has no meaning in the {here} sphere: {cure}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::{Cli, Command};

    fn judge(words: &str) -> Option<String> {
        let words = || ["rcoe", "run"].into_iter().chain(words.split(' '));
        let matches = Cli::command().get_matches_from(words());
        let Command::Run(args) = Cli::parse_from(words()).command else {
            panic!("a run");
        };
        mismatch(matches.subcommand_matches("run")?, args.sphere)
    }

    #[test]
    fn options_of_the_other_sphere_are_refused() {
        let arch = judge("--arch aarch64 -- true").unwrap();
        assert!(arch.contains("--arch is for the system sphere"), "{arch}");
        let scrub = judge("--sphere system --scrub 4 -- hello").unwrap();
        assert!(
            scrub.contains("--scrub is for the process sphere"),
            "{scrub}"
        );
        let files = judge("--memory-file m -- true").unwrap();
        assert!(files.contains("--memory-file"), "{files}");
    }

    #[test]
    fn own_options_and_defaults_pass() {
        assert_eq!(judge("--scrub 4 --clock calls --tick 1s -- true"), None);
        assert_eq!(
            judge("--sphere system --tick 1ms --no-ledger -- hello"),
            None
        );
        assert_eq!(judge("-n 2 -- true --tick"), None);
    }

    #[test]
    fn every_option_named_here_exists() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for id in PROCESS.iter().chain(&SYSTEM) {
            assert!(run.get_arguments().any(|arg| arg.get_id() == id), "{id}");
        }
    }

    #[test]
    fn every_option_whose_help_names_one_sphere_is_of_that_one_alone() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for (sphere, other, own) in [
            ("System sphere", "Process sphere", &SYSTEM[..]),
            ("Process sphere", "System sphere", &PROCESS[..]),
        ] {
            for arg in run.get_arguments() {
                let help = arg.get_long_help().or(arg.get_help()).cloned();
                let help = help.unwrap_or_default().to_string();
                let named = help.starts_with(sphere) && !help.contains(other);
                let id = arg.get_id().as_str();
                assert!(!named || own.contains(&id), "--{id} is of the {sphere}");
            }
        }
    }
}

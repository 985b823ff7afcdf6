//! `rcoe`: runs ordinary software as redundant replicas. This is its face; the work is elsewhere.
#![forbid(unsafe_code)]

mod args;
mod cores;
mod doctor;
mod explain;
mod input;
mod points;
mod reporter;
mod run;
mod spheres;
mod system;
mod top;

use std::io::Write;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anyhow::Context;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use rcoe_supervisor::EXIT_OWN_FAILURE;

use crate::args::{Cli, Command, SphereArg};

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let (result, status) = match cli.command {
        Command::Run(args) if args.sphere == SphereArg::System => match system::execute(&args) {
            Ok(code) => (Ok(code), 0),
            Err(error) => {
                let status = system::exit_status(&error);
                (Err(error.into()), status)
            }
        },
        Command::Run(args) => match run::execute(*args) {
            Ok(code) => (Ok(code), 0),
            Err(error) => {
                let status = error.exit_status();
                (Err(error.into()), status)
            }
        },
        Command::Doctor(args) => (doctor::execute(&args), EXIT_OWN_FAILURE),
        Command::Cores(args) => (cores::execute(&args), EXIT_OWN_FAILURE),
        Command::Explain(args) => (explain::execute(&args), EXIT_OWN_FAILURE),
        Command::Top(args) => (top::execute(&args), EXIT_OWN_FAILURE),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "rcoe", &mut script);
            let written = std::io::stdout()
                .write_all(&script)
                .context("writing the completions");
            (written.map(|()| ExitCode::SUCCESS), EXIT_OWN_FAILURE)
        }
        Command::Manual { folder } => {
            let written = clap_mangen::generate_to(Cli::command(), &folder);
            let written = written.with_context(|| folder.display().to_string());
            (written.map(|()| ExitCode::SUCCESS), EXIT_OWN_FAILURE)
        }
    };
    result.unwrap_or_else(|error: anyhow::Error| {
        reporter::say(AnsiColor::Red, "", &format!("{error:#}"));
        status.into()
    })
}

/// The command line, whose options fit its sphere.
fn parse() -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if let (Command::Run(args), Some(run)) = (&cli.command, matches.subcommand_matches("run"))
        && let Some(why) = spheres::mismatch(run, args.sphere)
    {
        return Err(command.error(ErrorKind::ArgumentConflict, why));
    }
    Ok(cli)
}

/// Prints help to standard output with status 0, and mistakes to standard error with 125.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        let printed = error.print();
        return if printed.is_ok() {
            ExitCode::SUCCESS
        } else {
            EXIT_OWN_FAILURE.into()
        };
    }
    let text = error.to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprintln!("{}", text.trim_end());
        return EXIT_OWN_FAILURE.into();
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    reporter::say(AnsiColor::Red, "", text.trim_end());
    EXIT_OWN_FAILURE.into()
}

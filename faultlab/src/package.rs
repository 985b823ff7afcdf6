//! What packages have besides the program: completions for shells, and pages of the manual, from
//! the same table as the arguments.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Arguments;

/// Prints completions. They are made first: the generator panics where it cannot write.
pub(crate) fn completions(shell: Shell) -> Result<bool> {
    let script = script(shell);
    let written = std::io::stdout().write_all(&script);
    written.context("writing the completions").map(|()| true)
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut Arguments::command(),
        "rcoe-faultlab",
        &mut script,
    );
    script
}

/// Writes a page for the program and for each of its subcommands.
pub(crate) fn manual(folder: &Path) -> Result<bool> {
    let written = clap_mangen::generate_to(Arguments::command(), folder);
    written.with_context(|| folder.display().to_string())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;

    use clap::CommandFactory as _;
    use clap_complete::Shell;

    use super::{manual, script};
    use crate::args::Arguments;

    /// The subcommands that help shows.
    fn subcommands() -> Vec<String> {
        let command = Arguments::command();
        let all = command.get_subcommands().filter(|it| !it.is_hide_set());
        all.map(|it| it.get_name().to_owned()).collect()
    }

    #[test]
    fn the_manual_has_a_page_for_each_subcommand_and_names_its_options() {
        let folder = tempfile::tempdir().unwrap();
        manual(folder.path()).unwrap();
        let page = |name: &str| read_to_string(folder.path().join(format!("{name}.1")));
        let top = page("rcoe-faultlab").unwrap();
        let all = subcommands();
        assert!(all.len() > 10, "{all:?}");
        for name in all {
            let full = format!("rcoe-faultlab-{name}");
            assert!(page(&full).unwrap().contains(".SH SYNOPSIS"), "{full}");
            assert!(top.contains(&full.replace('-', "\\-")), "{full}");
        }
        assert!(
            page("rcoe-faultlab-campaign")
                .unwrap()
                .contains("\\-\\-journal")
        );
        assert!(page("rcoe-faultlab-manual").is_err());
        assert!(manual(&folder.path().join("nowhere")).is_err());
    }

    #[test]
    fn completions_know_each_subcommand() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).unwrap();
            for name in subcommands() {
                assert!(script.contains(&name), "{shell}: {name}");
            }
        }
    }
}

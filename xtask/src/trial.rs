//! Runs of another project's tests: what they have in common.
//!
//! A runner of `rcoe-tests` tries a source tree's tests on Linux and by rcoe, tells of each how it
//! went and, if all were tried, makes the tables of a page.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::{packages, shell};

/// Which tests are tried, how, and what is kept of it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Trial {
    /// Replicas; several numbers are tried, and stand side by side.
    #[arg(short, long, value_delimiter = ',', default_values_t = [2])]
    pub n: Vec<u32>,
    /// Machines, or programs as replicas, at once.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// A file with results of earlier runs, which are not run again; those of this one are added.
    #[arg(long)]
    pub results: Option<PathBuf>,
    /// Only tests whose names begin with one of these; the page is then left alone.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Also print what tests that differ say, and what rcoe says.
    #[arg(long)]
    verbose: bool,
}

/// A runner of `rcoe-tests`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runner {
    /// Its program.
    pub program: &'static str,
    /// Its option for the source tree.
    pub source: &'static str,
    /// What its last line begins with.
    pub count: &'static str,
}

/// What came of a trial.
#[derive(Debug)]
pub(crate) struct Tried {
    pub succeeded: bool,
    pub counts: Counts,
    /// The tables, unless only some tests were tried.
    pub tables: Option<String>,
}

impl Runner {
    /// The Debian packages that it needs.
    fn packages(self) -> Result<Vec<String>> {
        let text = shell::output(shell::runner(self.program, &["--packages"])?)?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// Installs what it needs, and has it try the tests of a source tree, with `more` words.
    pub(crate) fn run(self, trial: &Trial, source: &Path, more: &[&str]) -> Result<Tried> {
        packages::ensure(&self.packages()?)?;
        shell::build_commands(&["rcoe"])?;
        let source = source
            .canonicalize()
            .with_context(|| source.display().to_string())?;
        let tables = tempfile::NamedTempFile::new()?;
        let mut words = vec![self.source.to_owned(), source.display().to_string()];
        words.extend(["--markdown".to_owned(), tables.path().display().to_string()]);
        words.extend(trial.words()?);
        let words = words.iter().map(String::as_str).chain(more.iter().copied());
        let command = shell::runner(self.program, &words.collect::<Vec<_>>())?;
        let mut counts = Counts::default();
        let succeeded = shell::stream(command, |line| {
            if let Some(found) = count::parse(line, self.count) {
                counts.add(found);
            }
        })?;
        let is_whole = trial.only.is_empty();
        let tables = is_whole.then(|| std::fs::read_to_string(tables.path()));
        Ok(Tried {
            succeeded,
            counts,
            tables: tables.transpose()?,
        })
    }
}

impl Trial {
    /// The words by which a runner is told of it.
    fn words(&self) -> Result<Vec<String>> {
        let mut words = vec!["--n".to_owned(), numbers(&self.n, ",")];
        words.extend(["--at-once".to_owned(), self.at_once.to_string()]);
        for only in &self.only {
            words.extend(["--only".to_owned(), only.clone()]);
        }
        if let Some(results) = &self.results {
            let results = std::path::absolute(results)?;
            words.extend(["--results".to_owned(), results.display().to_string()]);
        }
        words.extend(self.verbose.then(|| "--verbose".to_owned()));
        Ok(words)
    }

    /// What the page's command has for the numbers of replicas.
    pub(crate) fn flag(&self) -> String {
        match self.n.as_slice() {
            [2] => String::new(),
            n => format!(" -n {}", numbers(n, ",")),
        }
    }
}

/// Numbers, with that between them.
pub(crate) fn numbers(n: &[u32], between: &str) -> String {
    let words: Vec<String> = n.iter().map(u32::to_string).collect();
    words.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_is_told_all_that_was_said() {
        let mut trial = Trial {
            n: vec![1, 3],
            at_once: 2,
            results: Some("/r".into()),
            only: vec!["a".into(), "b".into()],
            verbose: true,
        };
        let words = "--n 1,3 --at-once 2 --only a --only b --results /r --verbose";
        assert_eq!(trial.words().unwrap().join(" "), words);
        assert_eq!(trial.flag(), " -n 1,3");
        (trial.n, trial.results, trial.verbose) = (vec![2], None, false);
        trial.only.clear();
        assert_eq!(trial.words().unwrap().join(" "), "--n 2 --at-once 2");
        assert_eq!(trial.flag(), "");
    }
}

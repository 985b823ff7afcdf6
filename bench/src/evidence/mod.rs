//! Measured figures as files, and the pages that are rendered from them.
//!
//! A run of the bench writes a file for each suite (`--evidence`). Pages name figures by suite,
//! series and way of running, and goals do so too, so that no figure stands on a page that no file
//! has. The schema is told in `evidence/README.md`.
//!
//! Contract: of two files that have the same series the one with the later date counts; a file of
//! which nothing counts is an error, and so is whatever a page or a goal names and no file has.
//!
//! Not covered: whether a figure is true.

mod book;
mod campaigns;
mod goals;
mod number;
mod page;
mod stray;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rcoe_faultlab::host;
use rcoe_faultlab::stats::quantile;
use serde::{Deserialize, Serialize};

use crate::floor::{counterpart, pairs};
use crate::sample;

pub use book::Book;
pub use campaigns::Campaigns;
pub use goals::{Goals, Judgement};

/// Where the evidence of this source tree lies.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../evidence");

/// What the figures of a series are called.
const FIGURES: [&str; 4] = ["value", "over", "ratio", "share"];

/// The values of one figure in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Half of the values are below this.
    pub median: f64,
    /// The least value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// 10 % of the values are below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p10: Option<f64>,
    /// 90 % are below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<f64>,
    /// 99 % are below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The greatest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Spread {
    /// The spread of some values; zero if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let at = |q| quantile(values, q).map(number::kept);
        Self {
            median: at(0.5).unwrap_or_default(),
            min: at(0.0),
            p10: at(0.1),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// One thing that was measured, in one way of running it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// What was measured.
    pub what: String,
    /// How it was run.
    pub run: String,
    /// Unit of `value` and `over`; empty for a count or a ratio.
    pub unit: String,
    /// Number of values, where that is known.
    pub n: Option<usize>,
    /// The values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Spread>,
    /// What is added to native, repetition by repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Spread>,
    /// Multiple of native, repetition by repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Spread>,
    /// Multiple of as many native ones at once as there are replicas, repetition by repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Spread>,
}

impl Series {
    /// One of the figures, by its name.
    fn figure(&self, of: &str) -> Option<Spread> {
        match of {
            "value" => self.value,
            "over" => self.over,
            "ratio" => self.ratio,
            "share" => self.share,
            _ => None,
        }
    }

    /// The unit of one of the figures.
    fn unit_of(&self, of: &str) -> &str {
        if matches!(of, "value" | "over") {
            &self.unit
        } else {
            ""
        }
    }
}

/// What a suite measured in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The suite.
    pub suite: String,
    /// Revision of the source.
    pub commit: String,
    /// Day of the run, or that of the commit: YYYY-MM-DD.
    pub date: String,
    /// Processor, CPUs, kernel.
    pub machine: String,
    /// Load average before and after.
    pub load: String,
    /// What was typed.
    pub command: String,
    /// What else must be known of these figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// All series.
    pub series: Vec<Series>,
}

/// All series of a suite in few numbers each.
#[must_use]
pub fn condensed(all: &[sample::Series]) -> Vec<Series> {
    let one = |it: &sample::Series| {
        let own = it.configuration;
        let replicated = !own.is_native();
        let paired = |derive: fn(f64, f64) -> f64| {
            let pairs = it.values.iter().zip(&it.natives);
            let derived: Vec<f64> = pairs
                .map(|(value, native)| derive(*value, *native))
                .collect();
            spread_of(&derived).filter(|_| replicated)
        };
        let share = pairs(all, &it.what, [own, counterpart(own)]);
        Series {
            what: it.what.clone(),
            run: own.to_string(),
            unit: it.unit.to_owned(),
            n: Some(it.values.len()),
            value: Some(Spread::of(&it.values)),
            over: paired(|value, native| value - native),
            ratio: paired(|value, native| value / native),
            share: share.filter(|_| replicated).and_then(|it| spread_of(&it)),
        }
    };
    all.iter().map(one).collect()
}

/// The spread of derived values, if there are any: what native has none of has no multiple.
pub(crate) fn spread_of(values: &[f64]) -> Option<Spread> {
    let told = !values.is_empty() && values.iter().all(|value| value.is_finite());
    told.then(|| Spread::of(values))
}

impl File {
    /// What was measured by this build on this machine just now.
    ///
    /// # Errors
    ///
    /// If there is no `date`.
    pub fn fresh(suite: &str, load: String, series: Vec<Series>) -> Result<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Ok(Self {
            suite: suite.to_owned(),
            commit: host::commit(),
            date: host::date()?,
            machine: host::machine(),
            load,
            command: format!("cargo xtask bench {}", words.join(" ")),
            note: None,
            series,
        })
    }

    /// Writes this as `cost/SUITE.json` below a folder.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let folder = folder.join("cost");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(format!("{}.json", self.suite));
        std::fs::write(&path, self.text()?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A series on each line, so that a change shows which ones it concerns.
    fn text(&self) -> Result<String> {
        let lines = self.series.iter().map(serde_json::to_string);
        let lines = lines.collect::<serde_json::Result<Vec<_>>>()?;
        let bare = Self {
            series: Vec::new(),
            ..self.clone()
        };
        let head = serde_json::to_string_pretty(&bare)?;
        let head = head.strip_suffix("[]\n}").context("series come last")?;
        Ok(format!("{head}[\n    {}\n  ]\n}}\n", lines.join(",\n    ")))
    }
}

/// All files, and where to find each series.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    files: Vec<File>,
    /// Suite, series, way of running and figure; file and place in it.
    index: BTreeMap<[String; 4], (usize, usize)>,
}

impl Evidence {
    /// Reads all files of a folder.
    ///
    /// # Errors
    ///
    /// If one is not of the schema, or nothing of it counts.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for path in listed(&folder.join("cost"), "json")? {
            let text = std::fs::read_to_string(&path)?;
            let file = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            files.push(file);
        }
        Self::of(files)
    }

    fn of(files: Vec<File>) -> Result<Self> {
        let mut index: BTreeMap<[String; 4], (usize, usize)> = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            let all = file.series.iter().enumerate();
            let figures = all.flat_map(|(place, series)| {
                let own = FIGURES.into_iter();
                own.filter(|of| series.figure(of).is_some())
                    .map(move |of| (place, series, of))
            });
            for (place, series, of) in figures {
                let key = [&file.suite, &series.what, &series.run, of].map(str::to_owned);
                let known = index.get(&key).map(|(known, _)| &files[*known].date);
                let other = index.get(&key).is_some_and(|(known, _)| *known != at);
                ensure!(
                    !other || known != Some(&file.date),
                    "{}: two files of {} have it",
                    key.join(", "),
                    file.date
                );
                if known.is_none_or(|known| *known < file.date) {
                    index.insert(key, (at, place));
                }
            }
        }
        for (at, file) in files.iter().enumerate() {
            let counts = index.values().any(|(known, _)| *known == at);
            let (suite, commit) = (&file.suite, &file.commit);
            ensure!(
                counts,
                "{suite} of {commit}: later files have all of it: delete it"
            );
        }
        Ok(Self { files, index })
    }

    /// One figure with its series and the number of its file.
    fn find(&self, [suite, what, run]: [&str; 3], of: &str) -> Result<Found<'_>> {
        let key = [suite, what, run, of].map(str::to_owned);
        let missing = || format!("no data: {suite}: {what}, {run}: {of}");
        let (file, place) = *self.index.get(&key).with_context(missing)?;
        let series = &self.files[file].series[place];
        let spread = series.figure(of).with_context(missing)?;
        Ok(Found {
            file,
            series,
            spread,
        })
    }

    /// What was measured in a suite, in the order of the files.
    fn names(&self, suite: &str) -> Vec<&str> {
        let files = self.files.iter().filter(|file| file.suite == suite);
        let mut names: Vec<&str> = Vec::new();
        for series in files.flat_map(|file| &file.series) {
            if !names.contains(&series.what.as_str()) {
                names.push(&series.what);
            }
        }
        names
    }
}

/// A figure and where it comes from.
#[derive(Clone, Copy, Debug)]
struct Found<'a> {
    file: usize,
    series: &'a Series,
    spread: Spread,
}

/// Files of a folder with such an ending, sorted.
pub(crate) fn listed(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|own| own == ending) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::{Evidence, File, Series, Spread, condensed};
    use crate::configuration::{NATIVE, protected};
    use crate::sample::Collector;

    pub(super) fn file(suite: &str, date: &str, whats: &[(&str, f64)]) -> File {
        let series = |(what, median): &(&str, f64)| Series {
            what: (*what).into(),
            run: "n=2".into(),
            unit: "ns".into(),
            n: Some(3),
            value: Some(Spread {
                median: *median,
                ..Spread::default()
            }),
            over: None,
            ratio: None,
            share: None,
        };
        let word = || "x".to_owned();
        File {
            suite: suite.into(),
            commit: word(),
            date: date.into(),
            machine: word(),
            load: word(),
            command: word(),
            note: None,
            series: whats.iter().map(series).collect(),
        }
    }

    #[test]
    fn the_later_file_counts_and_a_file_of_which_nothing_does_is_an_error() {
        let old = file("s", "2026-01-01", &[("a", 1.0), ("b", 2.0)]);
        let new = file("s", "2026-01-02", &[("a", 3.0)]);
        let all = Evidence::of(vec![old.clone(), new.clone()]).unwrap();
        let median = |what| all.find(["s", what, "n=2"], "value").unwrap().spread.median;
        assert!(median("a") > 2.5 && median("b") < 2.5);
        assert!(all.find(["s", "c", "n=2"], "value").is_err());
        let newest = file("s", "2026-01-03", &[("a", 4.0)]);
        let error = Evidence::of(vec![old, new, newest]).unwrap_err();
        assert!(error.to_string().contains("delete it"), "{error}");
        let twice = ["2026-01-01"; 2].map(|day| file("s", day, &[("a", 1.0)]));
        let error = Evidence::of(twice.to_vec()).unwrap_err();
        assert!(error.to_string().contains("two files of"), "{error}");
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let file = file("s", "2026-01-01", &[("a", 1.5), ("b", 2.0)]);
        let text = file.text().unwrap();
        assert_eq!(serde_json::from_str::<File>(&text).unwrap(), file);
        assert_eq!(text.lines().count(), 12, "{text}");
    }

    #[test]
    fn shares_are_of_the_floor_and_multiples_of_native() {
        let mut collector = Collector::default();
        // What native has none of has no multiple.
        collector.add("none", NATIVE, "", 0.0);
        collector.add("none", protected(2, "args"), "", 0.0);
        for (run, value) in [
            (NATIVE, 10.0),
            (NATIVE.copies(2), 20.0),
            (protected(2, "args"), 30.0),
        ] {
            collector.add("x", run, "s", value);
        }
        let all = condensed(&collector.finish());
        let [_, none, native, _, two] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!([native.over, native.share], [None, None]);
        assert!(none.ratio.is_none() && none.over.is_some());
        let figures = [two.over, two.ratio, two.share].map(|figure| figure.unwrap().median);
        assert_eq!(figures.map(|it| it.to_string()), ["20", "3", "1.5"]);
    }
}

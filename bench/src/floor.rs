//! What a service is held against: as many native ones at once as there are replicas.
//!
//! Multiples are taken within a round, since a machine is not equally fast in all of them.

use crate::configuration::{Configuration, NATIVE};
use crate::sample::{Series, Spread};

/// What a configuration is held against: several replicas against as many native servers at once,
/// everything else against one.
pub(crate) const fn counterpart(configuration: Configuration) -> Configuration {
    match configuration.replicas {
        0 | 1 => NATIVE,
        replicas => NATIVE.copies(replicas),
    }
}

/// All values of one thing in one configuration, in the order of the rounds.
pub(crate) fn values<'a>(
    series: &'a [Series],
    what: &str,
    configuration: Configuration,
) -> Option<&'a [f64]> {
    let found = series
        .iter()
        .find(|series| series.what == what && series.configuration == configuration);
    found.map(|series| series.values.as_slice())
}

/// Multiples of what the other configuration has, round by round.
pub(crate) fn pairs(
    series: &[Series],
    what: &str,
    [of, to]: [Configuration; 2],
) -> Option<Vec<f64>> {
    let pairs = values(series, what, of)?
        .iter()
        .zip(values(series, what, to)?);
    Some(pairs.map(|(of, to)| of / to).collect())
}

/// Their median and spread.
pub(crate) fn multiples(series: &[Series], what: &str, both: [Configuration; 2]) -> Option<Spread> {
    pairs(series, what, both).map(|multiples| Spread::of(&multiples))
}

/// Median and spread in words; nothing for nothing.
pub(crate) fn text(spread: Option<Spread>, digits: usize) -> String {
    let Some(Spread { low, median, high }) = spread else {
        return String::new();
    };
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}

//! Measured values and what is derived from them.

use rcoe_faultlab::stats::quantile;
use serde::Serialize;

use crate::configuration::Configuration;

/// Median with the 10 % and 90 % quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// 10 % of the values are below this.
    pub low: f64,
    /// Half are below this.
    pub median: f64,
    /// 90 % are below this.
    pub high: f64,
}

impl Spread {
    /// The spread of some values; zero if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let at = |q| quantile(values, q).unwrap_or(0.0);
        Self {
            low: at(0.1),
            median: at(0.5),
            high: at(0.9),
        }
    }
}

/// One thing measured in one configuration, repeatedly, with the native value of each repetition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What was measured.
    pub what: String,
    /// How it was run.
    pub configuration: Configuration,
    /// Unit of the values.
    pub unit: &'static str,
    /// One value per repetition.
    pub values: Vec<f64>,
    /// The native value of the same repetition.
    pub natives: Vec<f64>,
}

impl Series {
    /// The values themselves.
    #[must_use]
    pub fn value(&self) -> Spread {
        Spread::of(&self.values)
    }

    /// What is added to native, repetition by repetition.
    #[must_use]
    pub fn over(&self) -> Spread {
        self.paired(|value, native| value - native)
    }

    /// Multiples of native, repetition by repetition.
    #[must_use]
    pub fn ratio(&self) -> Spread {
        self.paired(|value, native| value / native)
    }

    fn paired(&self, derive: impl Fn(f64, f64) -> f64) -> Spread {
        let pairs = self.values.iter().zip(&self.natives);
        Spread::of(
            &pairs
                .map(|(value, native)| derive(*value, *native))
                .collect::<Vec<_>>(),
        )
    }
}

/// Collects values while repetitions go through the configurations.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    series: Vec<Series>,
}

impl Collector {
    /// Adds the value of one repetition.
    pub fn add(
        &mut self,
        what: &str,
        configuration: Configuration,
        unit: &'static str,
        value: f64,
    ) {
        let known = self
            .series
            .iter_mut()
            .find(|series| series.what == what && series.configuration == configuration);
        if let Some(series) = known {
            series.values.push(value);
        } else {
            let (what, values) = (what.to_owned(), vec![value]);
            self.series.push(Series {
                what,
                configuration,
                unit,
                values,
                natives: Vec::new(),
            });
        }
    }

    /// All series, each with the native values of the same repetitions.
    #[must_use]
    pub fn finish(mut self) -> Vec<Series> {
        let natives: Vec<_> = self
            .series
            .iter()
            .filter(|series| series.configuration.is_native())
            .cloned()
            .collect();
        for series in &mut self.series {
            let native = natives.iter().find(|native| native.what == series.what);
            series.natives = native.map_or_else(Vec::new, |native| native.values.clone());
        }
        self.series
    }
}

#[cfg(test)]
mod tests {
    use super::Collector;
    use crate::configuration::{NATIVE, protected};

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let mut collector = Collector::default();
        // The machine is ten times slower in the second repetition: the ratio does not move.
        for slowness in [1.0, 10.0, 1.0] {
            collector.add("x", protected(2, "args"), "s", 3.0 * slowness);
            collector.add("x", NATIVE, "s", 2.0 * slowness);
        }
        let all = collector.finish();
        let two = &all[0];
        assert_eq!(two.natives, [2.0, 20.0, 2.0]);
        let ratio = two.ratio();
        assert!((ratio.low - 1.5).abs() < 1e-12 && (ratio.high - 1.5).abs() < 1e-12);
        assert!((two.over().median - 1.0).abs() < 1e-12);
    }
}

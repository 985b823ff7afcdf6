//! Figures over time: a curve, and heaps of counted outcomes.

use std::fmt::Write as _;

use askama::Template;

/// Height of the drawing in its own units.
const HEIGHT: f64 = 40.0;

/// A figure over time, the last value at the right.
#[derive(Clone, Debug, Template)]
#[template(path = "curve.html")]
pub struct Curve {
    /// What it shows.
    pub title: String,
    /// Values at equal distances.
    pub values: Vec<f64>,
    /// What stands below its beginning.
    pub from: String,
    /// What stands below its end.
    pub to: String,
}

impl Curve {
    fn most(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    fn last(&self) -> f64 {
        self.values.last().copied().unwrap_or(0.0)
    }

    fn width(&self) -> usize {
        self.values.len().saturating_sub(1).max(1)
    }

    fn points(&self) -> String {
        let most = self.most().max(1e-9);
        let mut text = String::new();
        for (place, value) in self.values.iter().enumerate() {
            // Writing into a string cannot fail.
            let _ = write!(text, "{place},{:.2} ", HEIGHT - HEIGHT * value / most);
        }
        text
    }
}

/// Outcomes of a stretch of time.
#[derive(Clone, Debug)]
pub struct Bin {
    /// What it holds, in words.
    pub title: String,
    /// Number of outcomes of each kind.
    pub counts: Vec<u64>,
}

/// Heaps of outcomes side by side.
#[derive(Clone, Debug, Template)]
#[template(path = "bins.html")]
pub struct Bins {
    /// What they show.
    pub title: String,
    /// Classes of the style sheet and names of the kinds, from the bottom of a heap to its top.
    pub kinds: Vec<(&'static str, &'static str)>,
    /// The heaps.
    pub bins: Vec<Bin>,
    /// What stands below the first.
    pub from: String,
    /// What stands below the last.
    pub to: String,
}

/// A rectangle in percents of the drawing.
struct Bar {
    class: &'static str,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Bins {
    #[expect(clippy::cast_precision_loss, reason = "a drawing")]
    fn bars(&self, place: &usize) -> Vec<Bar> {
        let bin = &self.bins[*place];
        let sum = |bin: &Bin| bin.counts.iter().sum::<u64>();
        let most = self.bins.iter().map(sum).max().unwrap_or(0).max(1) as f64;
        let width = 100.0 / self.bins.len().max(1) as f64;
        let mut y = 100.0;
        let kinds = self.kinds.iter().zip(&bin.counts);
        let parts = kinds.filter(|(_, count)| **count > 0);
        parts
            .map(|((class, _), count)| {
                let height = 100.0 * *count as f64 / most;
                y -= height;
                Bar {
                    class,
                    x: *place as f64 * width,
                    y,
                    width,
                    height,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_fills_its_height() {
        let curve = |values| Curve {
            title: "t".to_owned(),
            values,
            from: String::new(),
            to: String::new(),
        };
        assert_eq!(
            curve(vec![0.0, 2.0, 4.0]).points(),
            "0,40.00 1,20.00 2,0.00 "
        );
        let empty = curve(Vec::new());
        assert_eq!((empty.points(), empty.width()), (String::new(), 1));
        assert!(empty.to_string().contains("most 0"));
    }

    #[test]
    fn heaps_grow_from_the_bottom() {
        let bin = |counts: [u64; 2]| Bin {
            title: "<b>".to_owned(),
            counts: counts.to_vec(),
        };
        let bins = Bins {
            title: "t".to_owned(),
            kinds: vec![("good", "masked"), ("bad", "crash")],
            bins: vec![bin([3, 1]), bin([0, 0])],
            from: String::new(),
            to: String::new(),
        };
        let bars = bins.bars(&0);
        assert_eq!((bars[0].y, bars[0].height), (25.0, 75.0));
        assert_eq!((bars[1].y, bars[1].height), (0.0, 25.0));
        assert_eq!(bars[1].class, "bad");
        assert!(bins.bars(&1).is_empty());
        assert!(bins.to_string().contains("&#60;b&#62;"));
    }
}

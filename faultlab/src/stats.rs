//! Exact confidence intervals for rare events.
//!
//! Clopper and Pearson's interval inverts the binomial distribution, hence never promises more than
//! the data give; with no event in `n` trials its upper end is close to `3.7 / n`
//! (two-sided 95 %). The quantiles of the beta distribution behind it are found by bisection on the
//! regularised incomplete beta function (Lentz's continued fraction).

/// A proportion with its exact 95 % interval, all three in `0.0..=1.0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proportion {
    /// Events per trial.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The proportion `events / trials` with its two-sided 95 % Clopper-Pearson interval.
///
/// Without trials nothing is known: the interval is the whole range.
///
/// # Panics
///
/// If there are more events than trials.
#[must_use]
pub fn clopper_pearson(events: u64, trials: u64) -> Proportion {
    assert!(events <= trials, "{events} events in {trials} trials");
    if trials == 0 {
        return Proportion {
            value: 0.0,
            low: 0.0,
            high: 1.0,
        };
    }
    let (k, n) = (to_f64(events), to_f64(trials));
    let tail = 0.025;
    let low = if events == 0 {
        0.0
    } else {
        beta_quantile(tail, k, n - k + 1.0)
    };
    let high = if events == trials {
        1.0
    } else {
        beta_quantile(1.0 - tail, k + 1.0, n - k)
    };
    Proportion {
        value: k / n,
        low,
        high,
    }
}

/// Counts of a campaign are far below 2^53, so nothing is lost.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
#[must_use]
pub fn to_f64(count: u64) -> f64 {
    count as f64
}

/// The `q`-quantile (0 to 1) of a sample, by linear interpolation; `None` if it is empty.
#[must_use]
pub fn quantile(sample: &[f64], q: f64) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * to_f64(last as u64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 <= place <= last, a usize"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * place.fract())
}

/// `x` such that the regularised incomplete beta function `I_x(a, b)` is `p`.
fn beta_quantile(p: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..200 {
        let middle = low.midpoint(high);
        if beta_regularised(middle, a, b) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    low.midpoint(high)
}

/// The regularised incomplete beta function `I_x(a, b)`.
fn beta_regularised(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let ln_front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    if x < (a + 1.0) / (a + b + 2.0) {
        ln_front.exp() * beta_fraction(x, a, b) / a
    } else {
        1.0 - ln_front.exp() * beta_fraction(1.0 - x, b, a) / b
    }
}

/// Lentz's evaluation of the continued fraction of the incomplete beta function.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let keep = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / keep(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..10_000_u32 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / keep(1.0 + even * d);
        c = keep(1.0 + even / c);
        result *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / keep(1.0 + odd * d);
        c = keep(1.0 + odd / c);
        result *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Natural logarithm of the gamma function for `x >= 1` (Stirling's series, shifted to `x >= 15`).
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 15.0 {
        shift += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square)
        / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

#[cfg(test)]
mod tests {
    use super::{clopper_pearson, ln_gamma, quantile};

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-6
    }

    /// Values of `scipy.stats.binomtest(k, n).proportion_ci(method="exact")`.
    #[test]
    fn intervals_equal_published_ones() {
        for (k, n, low, high) in [
            (0, 10, 0.0, 0.308_497_1),
            (1, 10, 0.002_528_58, 0.445_016_1),
            (5, 10, 0.187_086_0, 0.812_914_0),
            (10, 10, 0.691_502_9, 1.0),
            (0, 5000, 0.0, 0.000_737_503_8),
        ] {
            let found = clopper_pearson(k, n);
            assert!(close(found.low, low), "{k}/{n}: low {}", found.low);
            assert!(close(found.high, high), "{k}/{n}: high {}", found.high);
        }
    }

    /// The four examples of Newcombe, Statistics in Medicine 17 (1998), method 5.
    #[test]
    fn intervals_equal_newcombes() {
        for (k, n, low, high) in [
            (81, 263, 0.2527, 0.3676),
            (15, 148, 0.0578, 0.1617),
            (0, 20, 0.0, 0.1684),
            (1, 29, 0.0009, 0.1776),
        ] {
            let found = clopper_pearson(k, n);
            assert!((found.low - low).abs() < 5e-5, "{k}/{n}: low {}", found.low);
            assert!(
                (found.high - high).abs() < 5e-5,
                "{k}/{n}: high {}",
                found.high
            );
        }
    }

    #[test]
    fn zero_events_follow_the_closed_form() {
        for n in [1_u32, 3, 100, 5_000, 10_000_000] {
            let expected = -((0.025_f64).ln() / f64::from(n)).exp_m1();
            let found = clopper_pearson(0, u64::from(n)).high;
            assert!(
                (found / expected - 1.0).abs() < 1e-6,
                "{n}: {found} {expected}"
            );
        }
    }

    #[test]
    fn without_trials_nothing_is_known() {
        let nothing = clopper_pearson(0, 0);
        assert!(close(nothing.low, 0.0) && close(nothing.high, 1.0));
    }

    #[test]
    fn gamma_of_integers_is_the_factorial() {
        assert!(close(ln_gamma(1.0), 0.0));
        assert!(close(ln_gamma(6.0), 120.0_f64.ln()));
        assert!(close(ln_gamma(21.0), 2_432_902_008_176_640_000.0_f64.ln()));
    }

    #[test]
    fn quantiles_interpolate() {
        let sample = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&sample, 0.5), Some(2.5));
        assert_eq!(quantile(&sample, 0.0), Some(1.0));
        assert_eq!(quantile(&sample, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}

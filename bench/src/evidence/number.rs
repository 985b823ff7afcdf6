//! How numbers are kept and told.

use super::Spread;

/// As many digits as anybody reads: four, and all of a whole number.
#[must_use]
pub(super) fn kept(value: f64) -> f64 {
    let digits = match value.abs() {
        0.0..1.0 => 4,
        1.0..10.0 => 3,
        10.0..100.0 => 2,
        100.0..1000.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    text.parse().unwrap_or(value)
}

/// A number in words, without zeros that tell nothing.
#[must_use]
pub(super) fn told(value: f64) -> String {
    let digits = match value.abs() {
        0.0..2.0 => 3,
        2.0..10.0 => 2,
        10.0..1000.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

/// Median and span; of a span without lower end the upper one.
#[must_use]
pub(super) fn span(spread: Spread) -> String {
    let median = told(spread.median);
    let [low, high] = match (spread.p10, spread.p90, spread.min, spread.max) {
        (Some(low), Some(high), ..) | (_, _, Some(low), Some(high)) => [Some(low), Some(high)],
        (_, high, ..) => [None, high],
    }
    .map(|end| end.map(told));
    match (low, high) {
        (Some(low), Some(high)) if low == median && high == median => median,
        (Some(low), Some(high)) => format!("{median} ({low} to {high})"),
        (_, Some(high)) => format!("{median} (90 % below {high})"),
        _ => median,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spread;
    use super::{kept, span, told};

    #[test]
    fn numbers_lose_what_nobody_reads() {
        assert_eq!(told(1.0), "1");
        assert_eq!(told(0.8712), "0.871");
        assert_eq!(told(31_983.4), "31983");
        assert_eq!(told(-0.0001), "0");
        assert_eq!(told(300.0), "300");
        assert_eq!(kept(2_623_454.4).to_string(), "2623454");
        assert_eq!(kept(1.234_56).to_string(), "1.235");
    }

    #[test]
    fn a_span_is_told_where_there_is_one() {
        let spread = |p10, p90| Spread {
            median: 5.0,
            p10,
            p90,
            ..Spread::default()
        };
        assert_eq!(span(spread(Some(4.0), Some(6.5))), "5 (4 to 6.5)");
        assert_eq!(span(spread(None, Some(7.0))), "5 (90 % below 7)");
        assert_eq!(span(spread(Some(5.0), Some(5.0))), "5");
        assert_eq!(span(spread(None, None)), "5");
    }
}

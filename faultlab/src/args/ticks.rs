//! `--tick` of the commands that flip bits: what rcoe takes, refused before anything runs.

use std::time::Duration;

use anyhow::{Result, ensure};

/// What rcoe takes in the process sphere.
const BOUNDS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(3600)];

/// Checks a tick as rcoe will read it; the words go to rcoe as they are.
pub(super) fn parse(text: &str) -> Result<String, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a number and a unit, as in 200ms, 1s or 1m".into()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{number}' is no number"))?;
    let [least, most] = BOUNDS;
    match Duration::try_from_secs_f64(number * scale) {
        Ok(tick) if tick >= least && tick <= most => Ok(text.to_owned()),
        _ => Err("must be from 10ms to 1h".into()),
    }
}

/// The options of rcoe for a tick, if there is one: what runs alone has nobody to agree with.
pub(super) fn options(tick: Option<&str>, replicas: usize) -> Result<Vec<String>> {
    ensure!(
        tick.is_none() || replicas > 1,
        "--tick needs replicas that can be compared: use -n 2 or more"
    );
    let words = tick.map(|tick| ["--tick", tick].map(str::to_owned));
    Ok(words.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::{options, parse};

    #[test]
    fn ticks_that_rcoe_takes_pass_unchanged() {
        for text in ["10ms", "200ms", "0.5s", "1s", "1m", "2min", "1h", "10000us"] {
            assert_eq!(parse(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn ticks_that_make_no_sense_are_refused() {
        let bad = [
            ("", "a unit"),
            ("200", "a unit"),
            ("off", "a unit"),
            ("-1s", "a unit"),
            ("1 s", "a unit"),
            ("s", "no number"),
            ("1.2.3s", "no number"),
            ("9ms", "from 10ms to 1h"),
            ("61m", "from 10ms to 1h"),
            ("99999999999999999999h", "from 10ms to 1h"),
        ];
        for (text, why) in bad {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_tick_goes_to_rcoe_and_needs_replicas() {
        let words = options(Some("1s"), 2).expect("two replicas");
        assert_eq!(words, ["--tick", "1s"]);
        assert!(options(None, 0).expect("no tick").is_empty());
        for replicas in [0, 1] {
            let error = options(Some("1s"), replicas).expect_err("alone");
            assert!(error.to_string().contains("use -n 2"), "{error}");
        }
    }
}

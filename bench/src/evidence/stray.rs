//! Measured numbers in a text that no file of evidence has.

/// What a measured number looks like in a text: one with a decimal point, or with a unit behind it.
pub(super) fn stray(line: &str) -> Option<String> {
    const UNITS: [&str; 21] = [
        "%",
        "ns",
        "us",
        "ms",
        "milliseconds",
        "s",
        "second",
        "seconds",
        "minute",
        "minutes",
        "hours",
        "bytes",
        "KiB",
        "MiB",
        "GiB",
        "times",
        "instructions",
        "cycles",
        "op/s",
        "operations",
        "million",
    ];
    let mut plain = String::new();
    for (at, part) in line.split('`').enumerate() {
        plain.push_str(if at % 2 == 0 { part } else { "code" });
    }
    while let Some((before, rest)) = plain.split_once("{{") {
        let after = rest.split_once("}}").map_or("", |(_, after)| after);
        plain = format!("{before}data{after}");
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    let number = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_digit());
        let digits = bare.chars().all(|c| c.is_ascii_digit() || ".,".contains(c));
        (!bare.is_empty() && digits).then(|| bare.to_owned())
    };
    let bare = |word: &str| word.trim_end_matches([',', '.', ';', ':', ')']).to_owned();
    words.iter().enumerate().find_map(|(at, word)| {
        let figure = number(word)?;
        let unit = words.get(at + 1).map(|next| bare(next)).unwrap_or_default();
        let measured = figure.contains('.') || UNITS.contains(&unit.as_str());
        measured.then(|| format!("{word} {unit}"))
    })
}

#[cfg(test)]
mod tests {
    use super::stray;

    #[test]
    fn a_measured_number_in_the_text_is_found() {
        assert_eq!(stray("it took 4.5 times"), Some("4.5 times".into()));
        assert_eq!(stray("of 64 MiB"), Some("64 MiB".into()));
        assert_eq!(stray("after 2 minutes,"), Some("2 minutes".into()));
        assert_eq!(stray("(90 op/s)"), Some("(90 op/s".into()));
        assert_eq!(stray("of 12 bytes; 3 seconds"), Some("12 bytes".into()));
        assert_eq!(stray("`64 MiB` and {{figure a | b | 5 ms}}"), None);
        assert_eq!(stray("with two, 3 or 16 in a pipeline"), None);
    }
}

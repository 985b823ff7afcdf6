//! Times and texts for the eye.

/// A time for the eye: `1d 2:03:04`, or without days.
#[must_use]
pub fn duration(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time since the start"
    )]
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let clock = format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    if days == 0 {
        clock
    } else {
        format!("{days}d {clock}")
    }
}

/// A time in seconds since 1970 as date and time in UTC.
#[must_use]
pub fn date(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, as any date may"
    )]
    let seconds = seconds as i64;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days count from 1 March of the year 0 here, so that the leap day is a year's last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + carry;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A text of this many characters at most; what is left out shows as dots.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_a_clock() {
        assert_eq!(duration(59.9), "0:00:59");
        assert_eq!(duration(93_784.0), "1d 2:03:04");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0.0, "1970-01-01T00:00:00Z"),
            (951_782_400.5, "2000-02-29T00:00:00Z"),
            (1_709_251_199.0, "2024-02-29T23:59:59Z"),
            (1_735_689_599.0, "2024-12-31T23:59:59Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("äöü", 2), "äö…");
        assert_eq!(shortened("äöü", 3), "äöü");
    }
}

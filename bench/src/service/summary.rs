//! An outcome in words.

use std::fmt::Write as _;

use super::{Moment, Order, Outcome, What};

/// Markdown.
#[must_use]
pub fn markdown(order: &Order, outcome: &Outcome, on: &str) -> String {
    let mut text = format!(
        "### Redis under flipped bits, {} replicas, {} minutes\n\n{on}\n\n",
        outcome.wanted, order.minutes
    );
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "| {name} | {value} |");
    };
    row("what", "seen".into());
    row("---", "---".into());
    row("bits flipped", outcome.flips.len().to_string());
    row("of these in", places(&outcome.flips));
    row("and in the primary", in_primary(outcome).to_string());
    for (name, what) in [
        ("faults noticed", What::Fault),
        ("replicas removed", What::Removed),
        ("of these the primary", What::Takeover),
        ("replicas brought back", What::Back),
        ("pages repaired by scrubbing", What::Repaired),
    ] {
        row(name, outcome.count(what).to_string());
    }
    row("replicas at the end", outcome.replicas.to_string());
    let ycsb = match &outcome.ycsb {
        Ok(rate) => format!("0 errors, 0 wrong values, {rate:.0} operations a second"),
        Err(error) => error.clone(),
    };
    row("YCSB-B, `dataintegrity=true`", ycsb);
    row("counting client", counts(outcome));
    row("its answers", answers(outcome));
    row("seconds without an operation of YCSB", idle(outcome));
    row("from removal to three again, median", back(&outcome.events));
    let server = outcome.server.as_deref().unwrap_or("ended as told");
    row("server", server.into());
    text
}

/// How many flips hit what.
fn places(flips: &[Moment]) -> String {
    let [mut registers, mut program, mut agent] = [0; 3];
    for flip in flips {
        let place = match &flip.detail {
            text if text.contains("(agent ") => &mut agent,
            text if text.starts_with("0x") => &mut program,
            _ => &mut registers,
        };
        *place += 1;
    }
    format!("registers {registers}, the program's memory {program}, the agent's {agent}")
}

/// How many flips hit the replica that was the primary then.
fn in_primary(outcome: &Outcome) -> usize {
    let takeovers = || outcome.events.iter().filter(|it| it.what == What::Takeover);
    let primary = |at| {
        takeovers()
            .rfind(|it| it.at < at)
            .map_or(Some(0), |it| it.replica)
    };
    let flips = outcome.flips.iter();
    flips
        .filter(|flip| flip.replica == primary(flip.at))
        .count()
}

fn counts(outcome: &Outcome) -> String {
    let ledger = &outcome.ledger;
    let error = ledger.error.as_deref().unwrap_or("no error");
    format!(
        "{} answered, value {}, {} wrong, {error}",
        ledger.answered, ledger.value, ledger.wrong
    )
}

fn answers(outcome: &Outcome) -> String {
    let slowest = outcome.ledger.slowest_ms.iter();
    let slowest: Vec<String> = slowest.take(5).map(|wait| format!("{wait:.0}")).collect();
    format!(
        "median {:.2} ms, slowest {} ms",
        outcome.ledger.median_ms,
        slowest.join(", ")
    )
}

fn idle(outcome: &Outcome) -> String {
    let seconds = outcome.seconds.iter();
    let idle = seconds.filter(|second| second.operations == 0.0).count();
    format!("{idle} of {}", outcome.seconds.len())
}

/// Seconds from each removal to the replica's return.
fn back(events: &[Moment]) -> String {
    let mut times = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let later = &events[index..];
        let back = later
            .iter()
            .find(|it| it.what == What::Back && it.replica == event.replica);
        if let (What::Removed, Some(back)) = (event.what, back) {
            times.push(back.at - event.at);
        }
    }
    times.sort_by(f64::total_cmp);
    times
        .get(times.len() / 2)
        .map_or_else(|| "none".into(), |time| format!("{time:.2} s"))
}

#[cfg(test)]
mod tests {
    use super::{back, in_primary, places};
    use crate::service::{Ledger, Moment, Outcome, What};

    fn flip(at: f64, replica: u64, detail: &str) -> Moment {
        Moment {
            at,
            what: What::Flip,
            replica: Some(replica),
            detail: detail.into(),
        }
    }

    #[test]
    fn flips_are_told_apart() {
        let flips = vec![
            flip(1.0, 0, "rax bit 3"),
            flip(2.0, 1, "0x7f0000 (heap [heap]) bit 3"),
            flip(4.0, 0, "0x6f0000 (agent anonymous) bit 3"),
            flip(5.0, 2, "xmm1 bit 3"),
        ];
        assert_eq!(
            places(&flips),
            "registers 2, the program's memory 1, the agent's 1"
        );
        let mut outcome = Outcome {
            flips,
            events: Vec::new(),
            seconds: Vec::new(),
            ledger: Ledger::default(),
            ycsb: Ok(1.0),
            server: None,
            replicas: 3,
            wanted: 3,
        };
        assert_eq!(in_primary(&outcome), 2);
        outcome.events.push(Moment {
            what: What::Takeover,
            ..flip(3.0, 2, "to")
        });
        assert_eq!(in_primary(&outcome), 2, "the first and the last");
    }

    #[test]
    fn the_way_back_is_timed_for_each_replica() {
        let moment = |at, what, replica| Moment {
            at,
            what,
            replica: Some(replica),
            detail: String::new(),
        };
        let events = [
            moment(1.0, What::Removed, 2),
            moment(1.5, What::Removed, 0),
            moment(2.0, What::Back, 2),
            moment(3.0, What::Back, 0),
        ];
        assert_eq!(back(&events), "1.50 s");
        assert_eq!(back(&events[..2]), "none");
    }
}

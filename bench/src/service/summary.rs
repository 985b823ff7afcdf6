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
    use super::back;
    use crate::service::{Moment, What};

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

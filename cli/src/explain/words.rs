//! What is said of a fault, beside where it was: what was done, and what to do next.

use serde_json::Value;

use super::read::{Fault, Story};

/// What an event after a divergence says was done.
pub(super) fn done(kind: &str, value: &Value) -> Option<String> {
    let number = |name: &str| value[name].as_u64().map_or("?".into(), |it| it.to_string());
    let stage = value["stage"].as_str().unwrap_or_default();
    Some(match (kind, stage) {
        ("downgrade", _) => format!(
            "replica {} was removed; {} went on, and the program did not notice",
            number("removed"),
            number("left")
        ),
        ("takeover", _) => format!(
            "it was the primary; replica {} took over its outside effects",
            number("to")
        ),
        ("recovery", _) => format!("the removal took {} us", number("us")),
        ("reintegration", "done") => {
            format!(
                "replica {} came back as a copy of another",
                number("replica")
            )
        }
        ("reintegration", "abandoned") => format!(
            "replica {} could not be brought back: {}",
            number("replica"),
            value["reason"].as_str().unwrap_or("unknown")
        ),
        _ => return None,
    })
}

/// What kind of fault it is.
pub(super) fn kind(fault: &Fault) -> String {
    let who = fault.divergence.replica;
    let who = who.map_or("a replica".to_owned(), |it| format!("replica {it}"));
    match (fault.divergence.kind.as_str(), fault.divergence.replica) {
        ("mismatch", None) => "the replicas differ, and none can tell who is right".into(),
        ("mismatch", Some(_)) => format!("{who} differs from the others"),
        ("timeout", _) => format!("{who} did not come in time"),
        ("death", _) => format!("the process of {who} ended"),
        ("fault", _) => format!("{who} failed within rcoe's agent"),
        (other, _) => format!("{who}: {other}"),
    }
}

/// What was done about a fault.
pub(super) fn outcome(story: &Story, fault: &Fault, is_last: bool) -> Vec<String> {
    let mut all = fault.done.clone();
    if !fault.masked && is_last {
        all.push(match &story.end {
            Some((status, reason)) if reason == "fail-stop" => format!(
                "all replicas were stopped, exit status {status}; nothing went out that was not \
                 agreed on"
            ),
            Some((status, reason)) => format!("the run ended: {reason}, status {status}"),
            None => "the file does not tell: rcoe still ran, or was killed".into(),
        });
    }
    all
}

/// Whether the replicas met at another call than the one at which they first differed.
pub(super) fn met_later(fault: &Fault) -> bool {
    let scene = fault.scene.iter().flat_map(|it| &it.replicas);
    let mut both = scene.filter_map(|it| Some((it.recorded.as_ref()?, it.call.as_ref()?)));
    both.any(|(recorded, call)| !recorded.starts_with(&call.text()))
}

/// What to do next. `place` is the line of the program, if it is known.
pub(super) fn advice(story: &Story, fault: &Fault, place: Option<&str>) -> Vec<String> {
    let mut all = Vec::new();
    let program = &story.start.program;
    match fault.divergence.kind.as_str() {
        "mismatch" => mismatch(fault, place, &mut all),
        "timeout" => all.push(
            "Does it come again? A program that spins for ever in one replica only has met a flip \
             or an input that differs; on a machine with too little CPU raise --timeout."
                .into(),
        ),
        "death" => all.push(
            "The detail tells how it ended. Signal 9 comes from somebody else or from the kernel \
             when memory runs out: look into its log."
                .into(),
        ),
        "fault" => all.push(
            "Once, on one core: a flip may have hit the agent. At the same place again: report it \
             with the detail above."
                .into(),
        ),
        _ => {}
    }
    if let Some((_, file)) = fault.cores.first() {
        all.push(format!("gdb -batch -ex bt {program} {file}"));
    } else if fault.divergence.kind != "death" {
        all.push("With --core-on-fault DIR each replica leaves a core file for gdb.".into());
    }
    if fault.divergence.core.is_some() {
        all.push("rcoe cores tells whether this core was at fault before.".into());
    }
    all
}

fn mismatch(fault: &Fault, place: Option<&str>, all: &mut Vec<String>) {
    if met_later(fault) {
        all.push(
            "They differed before they met. Run again with --compare every: then the place is that \
             of the first call that differs."
                .into(),
        );
    }
    let event = fault
        .divergence
        .event
        .map_or(String::new(), |it| format!(" ({it})"));
    all.push(format!(
        "Run it again. At another event than this one{event}, or not at all: most likely a flipped \
         bit. At the same one: the program, or rcoe."
    ));
    if let Some(place) = place {
        all.push(format!(
            "Then ask what {place} and what it works on could have seen differently in two \
             replicas: time, addresses, ids, the order of threads, the processor's own answers, \
             memory that somebody else writes."
        ));
    }
}

//! The events file and the counters.

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of};

#[test]
fn a_run_without_faults_tells_start_and_stop() {
    for replicas in [1_u64, 2, 3] {
        let scene = Scene::new();
        let count = replicas.to_string();
        let outcome = scene.rcoe(&[
            "run", "-n", &count, "--events", "e", "--", "sh", "-c", "exit 3",
        ]);
        assert_eq!(outcome.ended, Ended::Exit(3), "{}", outcome.err());
        let events = events_of(&scene.path().join("e"));
        let kinds: Vec<&str> = events
            .iter()
            .filter_map(|event| event["type"].as_str())
            .collect();
        assert_eq!(kinds, ["start", "stop"], "{events:?}");
        assert_eq!(events[0]["version"], env!("CARGO_PKG_VERSION"));
        let listed = events[0]["replicas"].as_array().unwrap();
        let ids: Vec<u64> = listed
            .iter()
            .filter_map(|replica| replica["id"].as_u64())
            .collect();
        assert_eq!(ids, (0..replicas).collect::<Vec<_>>());
        assert!(
            listed
                .iter()
                .all(|replica| replica["core"].is_u64() && replica["pid"].is_u64())
        );
        assert_eq!(events[1]["status"], 3);
        assert_eq!(events[1]["counts"]["divergences"], 0);
        assert_eq!(events[1]["counts"]["replicas"], replicas);
    }
}

#[test]
fn what_is_written_is_counted_as_voted() {
    let scene = Scene::new();
    let outcome = scene.rcoe(&["run", "-n", "2", "--events", "e", "--", "echo", "hello"]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let events = events_of(&scene.path().join("e"));
    let counts = &events.last().unwrap()["counts"];
    assert!(counts["bytes_voted"].as_u64() >= Some(6), "{counts}");
    assert!(counts["rendezvous"].as_u64() >= Some(1), "{counts}");
}

#[test]
fn stats_are_printed_on_standard_error() {
    let scene = Scene::new();
    let outcome = scene.rcoe(&["run", "-n", "2", "--stats", "--", "echo", "hello"]);
    assert_eq!(
        (outcome.ended, outcome.out().as_str()),
        (Ended::Exit(0), "hello\n")
    );
    for word in ["local", "input", "output", "rendezvous", "bytes voted"] {
        assert!(
            outcome.err().contains(word),
            "no {word} in {}",
            outcome.err()
        );
    }
}

/// A row of `--stats`.
fn row(outcome: &Outcome, name: &str) -> Vec<u64> {
    let err = outcome.err();
    let line = err.lines().find_map(|line| line.strip_prefix(name));
    let words = line.expect(name).split_whitespace();
    words.map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn stats_count_all_processes() {
    let scene = Scene::new();
    // Five children, all gone before the end, write a line each; the first process writes nothing.
    let text = "for i in 1 2 3 4 5; do /bin/echo line; done";
    for (replicas, count) in [("1", 1), ("2", 2), ("3", 3)] {
        let options = ["run", "-n", replicas, "--stats", "--events", "e", "--"];
        let outcome = scene.rcoe(&[&options[..], &["sh", "-c", text]].concat());
        assert_eq!(outcome.out(), "line\n".repeat(5));
        let voted = row(&outcome, "bytes voted");
        assert_eq!(voted.len(), count);
        assert!(voted.iter().all(|&bytes| bytes >= 25), "{voted:?}");
        assert!(
            row(&outcome, "calls: process")
                .iter()
                .all(|&calls| calls >= 15)
        );
        let events = events_of(&scene.path().join("e"));
        assert_eq!(events.last().unwrap()["counts"]["bytes_voted"], voted[0]);
    }
}

#[test]
fn the_doctor_speaks_json() {
    let outcome = Scene::new().rcoe(&["doctor", "--json"]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let value: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert!(value.is_object() || value.is_array());
}

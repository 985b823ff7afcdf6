//! The system sphere: input that drivers replicate themselves, by memory shared between replicas.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};

/// What `clock` prints first after so many rounds.
fn right(rounds: u64) -> String {
    format!("{0} of {0} readings are later\n", rounds * 64)
}

#[test]
fn all_replicas_read_what_the_primary_fetched() {
    let scene = Scene::new();
    for options in sampled(vec![
        ["-n1", "--compare=args"],
        ["-n2", "--compare=io"],
        ["-n3", "--compare=every"],
        ["-n2", "--core-threads=multi"],
    ]) {
        // Readings join the trace: were they not the same, replicas would differ.
        let outcome = system(&scene, &options, &["clock", "4"]);
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let expected = right(4) + "0 rounds were begun anew\n";
        assert_eq!(outcome.out(), expected, "{what}");
        assert_eq!(outcome.err(), "", "{options:?}");
    }
}

#[test]
fn a_primary_that_is_lost_while_it_fetches_leaves_nothing_half_done() {
    let scene = Scene::new();
    // The primary fetches nearly all of the time, and breaks at whatever instruction it is.
    for moment in sampled(vec!["45ms", "60ms"]) {
        let options = ["-n", "3", "--tick", moment, "--core-threads", "counted"];
        let options = [&options[..], &["--no-reintegrate", "--events", "e"]].concat();
        let words = "probe=sudden victim=0";
        let outcome = system_with(&scene, words, &options, &["clock", "6"]);
        let what = format!("{moment}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let expected = right(6) + "1 rounds were begun anew\n";
        assert_eq!(outcome.out(), expected, "{what}");
        let events = events_of(&scene.path().join("e"));
        let takeover = events.iter().any(|event| event["type"] == "takeover");
        assert!(takeover, "{what} {events:?}");
    }
}

#[test]
fn a_lost_replica_comes_back_to_a_driver_that_shares_memory() {
    let scene = Scene::new();
    for victim in sampled(vec!["0", "2"]) {
        let words = format!("probe=sudden victim={victim}");
        let options = ["-n", "3", "--tick", "20ms", "--core-threads", "counted"];
        let options = [&options[..], &["--events", "e"]].concat();
        let outcome = system_with(&scene, &words, &options, &["clock", "40"]);
        let what = format!("{victim}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert!(outcome.out().starts_with(&right(40)), "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().any(|event| event["stage"] == "done");
        assert!(back, "{what} {events:?}");
        assert_eq!(events.last().unwrap()["counts"]["replicas"], 3, "{what}");
    }
}

#[test]
fn a_follower_cannot_write_what_is_shared() {
    let scene = Scene::new();
    let outcome = system(&scene, &["-n", "2"], &["clock", "1000"]);
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    assert_eq!(outcome.out(), "");
}

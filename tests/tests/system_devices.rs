//! The system sphere: drivers of devices with registers in memory, interrupts, and memory access of
//! their own.

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};
use serde_json::Value;

/// What `device` prints for so many copies, computed here.
fn right(copies: usize) -> String {
    let mut out = "5! = 120\n10! = 3628800\n12! = 479001600\n".to_owned();
    let mut seed = 1_u64;
    for copy in 1..=copies {
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for _ in 0..2048 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            digest = (digest ^ (seed >> 56)).wrapping_mul(0x0100_0000_01b3);
        }
        out += &format!("copy {copy}: {digest:016x}\n");
    }
    out
}

#[test]
fn a_device_computes_and_moves_data_for_all_replicas() {
    let scene = Scene::new();
    for options in sampled(vec![
        ["-n1", "--compare=args"],
        ["-n2", "--compare=io"],
        ["-n3", "--compare=args"],
        ["-n3", "--compare=every"],
        ["-n2", "--core-threads=multi"],
    ]) {
        let outcome = system(&scene, &options, &["device", "2"]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "{options:?}: {}",
            outcome.err()
        );
        assert_eq!(outcome.out(), right(2), "{options:?}");
        assert_eq!(outcome.err(), "", "{options:?}");
    }
}

#[test]
fn a_clock_in_device_memory_is_read_once_for_all() {
    let scene = Scene::new();
    for replicas in sampled(vec!["1", "2", "3"]) {
        // Every reading joins the trace: were they the replicas' own, they would differ.
        let options = ["--arch=x86_64", "-n", replicas];
        let outcome = system(&scene, &options, &["hpet", "50"]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "{replicas}: {}",
            outcome.err()
        );
        let out = outcome.out();
        assert!(out.starts_with("50 of 50 readings are later"), "{out}");
        assert!(out.ends_with("is 10000000 fs\n"), "{out}");
    }
}

#[test]
fn a_transfer_begins_again_with_a_new_primary() {
    let scene = Scene::new();
    // The device takes 100 ms for each of the two halves of a copy, so one of these moments at
    // least is while it stores into the memory of the primary that is lost.
    for moment in sampled(vec!["150ms", "200ms", "250ms"]) {
        for victim in ["0", "1"] {
            let words = format!("probe=astray victim={victim}");
            let options = [
                "-n",
                "3",
                "--tick",
                moment,
                "--core-threads",
                "counted",
                "--events",
                "e",
            ];
            let outcome = system_with(&scene, &words, &options, &["device", "2"]);
            let what = format!("{moment} {victim}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), right(2), "{what}");
            let events = events_of(&scene.path().join("e"));
            let takeover = events.iter().any(|event| event["type"] == "takeover");
            assert_eq!(takeover, victim == "0", "{what} {events:?}");
        }
    }
}

/// Runs a program whose first primary breaks within a write: the device has got it, the others do
/// not know. Where a PC has its devices.
fn broken_within(place: &str, options: &[&str], command: &[&str]) -> (Outcome, Vec<Value>) {
    let scene = Scene::new();
    let words = format!("{place} victim=0");
    let options = [options, &["--arch=x86_64", "--events", "e"]].concat();
    let outcome = system_with(&scene, &words, &options, command);
    let said = outcome.err();
    let ended = outcome.ended;
    let what = format!("{place}: {ended:?} {said}");
    assert!(said.contains("break while it writes"), "{what}");
    let events = events_of(&scene.path().join("e"));
    (outcome, events)
}

#[test]
fn a_primary_that_is_lost_within_a_repeatable_write_is_masked() {
    // Where the device is, what it acknowledges, addresses, commands; the program's exit status.
    for place in [
        "breaks-at-port=3324",
        "breaks-at-register=8",
        "breaks-at-register=100",
        "breaks-at-register=128",
        "breaks-at-register=136",
        "breaks-at-register=152",
        "breaks-at-port=1288",
    ] {
        let (outcome, events) = broken_within(place, &["-n", "3"], &["device", "2"]);
        let what = format!("{place}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), right(2), "{what}");
        let takeover = events.iter().any(|event| event["type"] == "takeover");
        assert!(takeover, "{what} {events:?}");
    }
}

#[test]
fn a_primary_that_is_lost_within_a_write_that_is_not_repeatable_stops_the_machine() {
    // The count of the interval timer, which takes two bytes at one port.
    let place = "breaks-at-port=64";
    let (outcome, events) = broken_within(place, &["-n", "3"], &["sleep", "10"]);
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    assert!(outcome.err().contains("lost-effect"), "{}", outcome.err());
    assert_eq!(events.last().unwrap()["reason"], "fail-stop");
}

#[test]
fn a_lost_replica_comes_back_while_a_device_moves_data() {
    let scene = Scene::new();
    for victim in sampled(vec!["0", "2"]) {
        let words = format!("probe=astray victim={victim}");
        let options = ["-n", "3", "--events", "e"];
        let outcome = system_with(&scene, &words, &options, &["device", "3"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{victim}: {}", outcome.err());
        assert_eq!(outcome.out(), right(3), "{victim}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().any(|event| event["stage"] == "done");
        assert!(back, "{victim}: {events:?}");
        assert_eq!(events.last().unwrap()["counts"]["replicas"], 3, "{victim}");
    }
}

//! The system sphere: tables of capabilities that grow.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};

const ARCHS: [&str; 2] = ["--arch=x86_64", "--arch=aarch64"];

const RIGHT: &str = "72 MiB in pieces, and tables that grow: 68d1de731b7ad8c0\n";

/// The program takes more slots of the root task than its first table has.
#[test]
fn memory_comes_in_more_pieces_than_one_table_has_slots() {
    let scene = Scene::new();
    for arch in sampled(ARCHS.to_vec()) {
        let options = [arch, "-n", "1", "--memory", "128M"];
        let outcome = system(&scene, &options, &["grow"]);
        assert_eq!(outcome.out(), RIGHT, "{arch}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{arch}");
    }
}

#[test]
fn a_replica_is_brought_back_whose_tables_grow() {
    let scene = Scene::new();
    for (arch, victim) in sampled(vec![(ARCHS[0], "0"), (ARCHS[1], "1")]) {
        let words = format!("probe=sudden victim={victim}");
        let options = [arch, "-n", "3", "--memory", "128M", "--events", "e"];
        let options = [&options[..], &["--tick", "1ms"]].concat();
        let outcome = system_with(&scene, &words, &options, &["grow"]);
        let what = format!("{arch}: {}", outcome.err());
        assert_eq!(outcome.out(), RIGHT, "{what}");
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        assert_eq!(back.count(), 1, "{what} {events:?}");
    }
}

//! The system sphere: operations that take the kernel many steps.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};

const ARCHS: [&str; 2] = ["--arch=x86_64", "--arch=aarch64"];

const RIGHT: &str = "made, revoked and deleted in steps, with ticks in the midst\n";

/// The program looks whether ticks came in the midst, and a thread of it tells the trace of each.
#[test]
fn ticks_in_the_midst_of_long_operations_diverge_nothing() {
    let scene = Scene::new();
    for arch in ARCHS {
        for (replicas, mode, cores, tick) in sampled(vec![
            ("1", "args", "single", "200us"),
            ("2", "every", "single", "1ms"),
            ("2", "args", "multi", "500us"),
            ("3", "io", "single", "1ms"),
        ]) {
            let options = [arch, "-n", replicas, "--compare", mode, "--tick", tick];
            let options = [&options[..], &["--core-threads", cores]].concat();
            let outcome = system(&scene, &options, &["long"]);
            let what = format!("{options:?}: {}", outcome.err());
            assert_eq!(outcome.out(), RIGHT, "{what}");
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.err(), "", "{what}");
        }
    }
}

/// A replica is lost while the others make and end what is large, and is brought back.
#[test]
fn a_copy_is_made_while_long_operations_go_on() {
    let scene = Scene::new();
    for (arch, victim) in sampled(vec![(ARCHS[0], "0"), (ARCHS[0], "2"), (ARCHS[1], "1")]) {
        let words = format!("probe=sudden victim={victim}");
        let options = [arch, "-n", "3", "--tick", "1ms", "--events", "e"];
        let outcome = system_with(&scene, &words, &options, &["long", "12"]);
        let what = format!("{arch} {victim}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), RIGHT, "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        assert_eq!(back.count(), 1, "{what} {events:?}");
        let last = events.last().unwrap();
        assert_eq!(last["counts"]["replicas"], 3, "{what}");
    }
}

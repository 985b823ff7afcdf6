//! The system sphere: frames of 2 MiB.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};

const ARCHS: [&str; 2] = ["--arch=x86_64", "--arch=aarch64"];

const RIGHT: &str = "large frames mapped, lent, exchanged and ended: 1539e874a137270d\n";

/// The program looks at every word that it maps, also where another frame was before.
#[test]
fn large_frames_are_mapped_lent_and_exchanged() {
    let scene = Scene::new();
    for arch in sampled(ARCHS.to_vec()) {
        for (replicas, mode, cores) in sampled(vec![
            ("1", "args", "single"),
            ("2", "every", "single"),
            ("2", "args", "multi"),
            ("3", "io", "single"),
        ]) {
            let options = [arch, "-n", replicas, "--compare", mode];
            let options = [&options[..], &["--core-threads", cores]].concat();
            let outcome = system(&scene, &options, &["large"]);
            let what = format!("{options:?}: {}", outcome.err());
            assert_eq!(outcome.out(), RIGHT, "{what}");
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.err(), "", "{what}");
        }
    }
}

/// Copies of replicas are made while the program has large frames in all states.
#[test]
fn a_replica_is_brought_back_that_has_large_frames() {
    let scene = Scene::new();
    for arch in sampled(ARCHS.to_vec()) {
        let words = "probe=sudden victim=1";
        let options = [arch, "-n", "3", "--tick", "1ms", "--events", "e"];
        let outcome = system_with(&scene, words, &options, &["large", "40"]);
        let what = format!("{arch}: {}", outcome.err());
        assert_eq!(outcome.out(), RIGHT, "{what}");
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        assert_eq!(back.count(), 1, "{what} {events:?}");
    }
}

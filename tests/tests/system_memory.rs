//! The system sphere: how much memory replicas have.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{system, system_with};

const ARCHS: [&str; 2] = ["--arch=x86_64", "--arch=aarch64"];

fn right(size: &str) -> String {
    format!("filled and checked {size} MiB, 3 times\n")
}

/// Each replica is lost, also the primary, and brought back while the program fills more memory
/// than a machine has where nothing is asked for. Instructions are counted, because by the host's
/// time it depends on the host whether the program ends before the copy is made.
#[test]
fn each_replica_of_a_machine_with_more_memory_is_brought_back() {
    let scene = Scene::new();
    for (arch, victim) in sampled(pairs(&ARCHS, &["0", "1", "2"])) {
        let words = format!("probe=sudden victim={victim}");
        let options = [arch, "-n", "3", "--memory", "256M", "--events", "e"];
        let options = [&options[..], &["--core-threads", "counted"]].concat();
        let outcome = system_with(&scene, &words, &options, &["fill", "160"]);
        let what = format!("{arch} {victim}: {}", outcome.err());
        assert_eq!(outcome.out(), right("160"), "{what}");
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        assert_eq!(back.count(), 1, "{what} {events:?}");
        let last = events.last().unwrap();
        assert_eq!(last["counts"]["replicas"], 3, "{what}");
    }
}

/// Cycles that the others wait at most while a replica is brought back, 50 ms of the machine's
/// time. Where the machine counts instructions, each is a nanosecond.
const LONGEST: [u64; 2] = [50_000_000, 50 * 62_500];

/// The program writes all the time; some of what was copied is copied again.
#[test]
fn nobody_waits_long_for_a_copy_of_much_memory() {
    let scene = Scene::new();
    for (arch, longest) in sampled(ARCHS.into_iter().zip(LONGEST).collect()) {
        let words = "probe=sudden victim=1";
        let options = [arch, "-n3", "--memory=256M", "--stats"];
        let options = [&options[..], &["--core-threads", "counted"]].concat();
        let outcome = system_with(&scene, words, &options, &["fill", "200"]);
        let what = format!("{arch}: {}", outcome.err());
        assert_eq!(outcome.out(), right("200"), "{what}");
        assert!(what.contains("copies 1, cycles each"), "{what}");
        let line = outcome.err();
        let line = line.lines().find(|line| line.starts_with("portions"));
        let numbers: Vec<u64> = line
            .unwrap_or_default()
            .split([' ', ','])
            .filter_map(|word| word.parse().ok())
            .collect();
        let [portions, cycles] = numbers[..] else {
            panic!("{what}");
        };
        assert!(portions > 4, "200 MiB in one: {what}");
        assert!(cycles <= longest, "{what}");
    }
}

#[test]
fn memory_is_as_much_as_was_asked_for() {
    let scene = Scene::new();
    for arch in sampled(ARCHS.to_vec()) {
        for (size, filled, enough) in [
            ("32M", "48", false),
            ("80M", "48", true),
            ("512M", "490", true),
        ] {
            let options = [arch, "-n", "1", "--memory", size];
            let outcome = system(&scene, &options, &["fill", filled]);
            let what = format!("{options:?}: {}", outcome.err());
            let (out, status) = if enough {
                (right(filled), 0)
            } else {
                (format!("fill: no {filled} MiB of memory\n"), 1)
            };
            assert_eq!(
                (outcome.out(), outcome.ended),
                (out, Ended::Exit(status)),
                "{what}"
            );
        }
    }
}

#[test]
fn what_addresses_of_32_bits_do_not_reach_is_refused() {
    let scene = Scene::new();
    for (arch, replicas, size, why) in [
        (
            ARCHS[0],
            "3",
            "1G",
            "3 replicas on x86_64 can have 930M each at most",
        ),
        (
            ARCHS[0],
            "1",
            "4G",
            "1 replica on x86_64 can have 2794M each at most",
        ),
        (
            ARCHS[1],
            "4",
            "1G",
            "4 replicas on aarch64 can have 762M each at most",
        ),
        (
            ARCHS[1],
            "2",
            "8M",
            "2 replicas on aarch64 need 26M each at least",
        ),
    ] {
        let outcome = system(
            &scene,
            &[arch, "-n", replicas, "--memory", size],
            &["hello"],
        );
        assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
        assert!(outcome.err().contains(why), "{}", outcome.err());
    }
    // The most that there can be is there.
    for (arch, replicas, size) in [(ARCHS[0], "3", "930M"), (ARCHS[1], "4", "762M")] {
        let outcome = system(
            &scene,
            &[arch, "-n", replicas, "--memory", size],
            &["hello"],
        );
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    }
}

//! The system sphere: replicas that are preempted at one instruction (close coupling), so that
//! programs may race.

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::system::{system, system_with};

const CLOSE: [&str; 4] = ["--arch", "aarch64", "--coupling", "close"];

fn close(scene: &Scene, words: &str, options: &[&str], command: &[&str]) -> Outcome {
    let options = [&CLOSE[..], options].concat();
    system_with(scene, words, &options, command)
}

/// Rounds in which additions were lost, by what the race program prints.
fn raced(outcome: &Outcome) -> u64 {
    let out = outcome.out();
    let words: Vec<&str> = out.split(' ').collect();
    let at = words.iter().position(|&word| word == "rounds,");
    let count = at.and_then(|at| words.get(at + 1)?.parse().ok());
    count.unwrap_or_else(|| panic!("{out:?} {}", outcome.err()))
}

/// DSN'19, V-A1. That programs race shows in the additions that are lost; that they race alike, in
/// that the trace, which holds what each round came to, is the same.
#[test]
fn replicas_race_alike() {
    let scene = Scene::new();
    for (replicas, mode, tick, how, words) in [
        ("1", "args", "200us", "counter", ""),
        ("2", "args", "200us", "counter", ""),
        ("2", "args", "200us", "breakpoint", "verify=yes"),
        ("2", "every", "300us", "counter", ""),
        ("2", "io", "500us", "counter", "verify=yes"),
        ("3", "args", "200us", "counter", "verify=yes"),
        ("3", "every", "400us", "breakpoint", ""),
        ("3", "io", "1ms", "counter", ""),
        ("4", "args", "300us", "breakpoint", ""),
    ] {
        let options = ["-n", replicas, "--compare", mode, "--tick", tick];
        let options = [&options[..], &["--stop-by", how]].concat();
        let outcome = close(&scene, words, &options, &["race", "60"]);
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
        assert!(raced(&outcome) > 0, "{what}");
    }
}

/// The same program with replicas that are preempted at one event each: they lose different
/// additions, sooner or later.
#[test]
fn loosely_coupled_replicas_race_apart() {
    let scene = Scene::new();
    let diverged = |tick: &&str| {
        let options = ["--arch", "aarch64", "--core-threads", "counted", "-n", "2"];
        let options = [&options[..], &["--tick", tick]].concat();
        let outcome = system(&scene, &options, &["race", "200"]);
        outcome.ended == Ended::Exit(86) && outcome.err().contains("mismatch")
    };
    assert!(["200us", "250us", "300us", "350us"].iter().any(diverged));
}

/// Programs that do not race run as ever, among them drivers that are told who is the primary,
/// threads that are stepped, and what takes the kernel many steps.
#[test]
fn what_does_not_race_runs_as_ever() {
    let scene = Scene::new();
    for command in [
        &["hash"][..],
        &["clock"],
        &["copy"],
        &["float"],
        &["foreign"],
        &["large"],
        &["ledger"],
        &["long"],
        &["pingpong"],
        &["pipeline"],
        &["sleep"],
    ] {
        let plain = ["--arch", "aarch64", "-n", "1", "--tick", "500us"];
        let plain = system(&scene, &plain, command);
        for (replicas, how) in [("2", "breakpoint"), ("3", "counter")] {
            let options = ["-n", replicas, "--tick", "500us", "--stop-by", how];
            let outcome = close(&scene, "", &options, command);
            let what = format!("{command:?} {replicas}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), plain.out(), "{what}");
        }
    }
}

/// Rounds in which additions are lost, at least, where a thousand ticks or so come.
const RACED: u64 = 10;

/// Whoever is lost, and whatever has become of its core, the others go on, and it comes back, with
/// all that interrupts it: ticks preempt as often as before.
#[test]
fn replicas_that_are_lost_while_programs_race_come_back() {
    let scene = Scene::new();
    for (probe, victim) in [
        ("astray", "0"),
        ("astray", "2"),
        ("sudden", "0"),
        ("sudden", "1"),
        ("halt", "0"),
        ("halt", "2"),
        ("loop", "1"),
    ] {
        let words = format!("probe={probe} victim={victim}");
        let options = [
            "-n",
            "3",
            "--tick",
            "1ms",
            "--timeout",
            "100ms",
            "--events",
            "e",
        ];
        let outcome = close(&scene, &words, &options, &["race", "400"]);
        let what = format!("{words}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        assert_eq!(back.count(), 1, "{what} {events:?}");
        assert_eq!(events[0]["coupling"], "close", "{what}");
        assert!(raced(&outcome) >= RACED, "{what} {}", outcome.out());
    }
}

/// Of two replicas, one that goes astray stops both.
#[test]
fn of_two_none_goes_on_alone() {
    let scene = Scene::new();
    for (probe, why) in [("astray", "mismatch"), ("halt", "timeout")] {
        let words = format!("probe={probe} victim=1");
        let options = ["-n", "2", "--tick", "1ms", "--timeout", "100ms"];
        let outcome = close(&scene, &words, &options, &["race", "400"]);
        assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
        assert!(outcome.err().contains(why), "{}", outcome.err());
    }
}

#[test]
fn what_cannot_be_coupled_closely_is_refused() {
    let scene = Scene::new();
    for (options, why) in [
        (
            &["--coupling", "close", "--arch", "x86_64"][..],
            "add --arch aarch64",
        ),
        (&["--stop-by", "breakpoint"], "add --coupling close"),
        (
            &[
                "--coupling",
                "close",
                "--arch",
                "aarch64",
                "--core-threads",
                "multi",
            ],
            "leave out --core-threads",
        ),
    ] {
        let outcome = system(&scene, options, &["hello"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
        assert!(outcome.err().contains(why), "{}", outcome.err());
    }
}

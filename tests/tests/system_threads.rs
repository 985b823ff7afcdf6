//! How threads of the system sphere run: calls of another system, pointers to their own data, and
//! one instruction at a time.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};

const ARCHS: [&str; 2] = ["--arch=x86_64", "--arch=aarch64"];

/// What `foreign` prints for so many rounds, computed here: each answer is made of all arguments,
/// and the next call tells of all answers.
fn right(rounds: u64) -> String {
    let mut sum = 0_u64;
    for round in (1..=rounds).rev() {
        let arguments = [round, sum, 33, 44, 5, 6];
        let answer = arguments.iter().fold(7_u64, |answer, word| {
            (answer ^ word).rotate_left(9).wrapping_mul(0x9e37_79b9)
        });
        sum = sum.wrapping_add(answer);
    }
    format!("{rounds} calls of another system: {sum:016x}, 18 instructions one by one\n")
}

#[test]
fn threads_with_calls_of_another_system_are_served_in_every_mode() {
    let scene = Scene::new();
    for arch in ARCHS {
        for (replicas, mode) in sampled(vec![
            ("1", "args"),
            ("2", "io"),
            ("3", "args"),
            ("2", "every"),
        ]) {
            let options = [arch, "-n", replicas, "--compare", mode];
            let outcome = system(&scene, &options, &["foreign", "200"]);
            let what = format!("{options:?}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), right(200), "{what}");
        }
    }
}

#[test]
fn ticks_between_the_instructions_of_a_thread_diverge_nothing() {
    let scene = Scene::new();
    for arch in ARCHS {
        // Where cores run at once, they are preempted at different instructions.
        let cores = ["--core-threads", "multi", "--tick", "1ms"];
        let options = [&[arch, "-n", "2"], &cores[..]].concat();
        let outcome = system(&scene, &options, &["foreign", "300"]);
        let what = format!("{arch}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), right(300), "{what}");
    }
}

#[test]
fn a_copy_has_the_pointers_of_threads() {
    let scene = Scene::new();
    for arch in ARCHS {
        for victim in ["0", "2"] {
            let words = format!("probe=sudden victim={victim}");
            let options = [arch, "-n", "3", "--tick", "2ms", "--events", "e"];
            let outcome = system_with(&scene, &words, &options, &["foreign", "5000"]);
            let what = format!("{arch} {victim}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), right(5_000), "{what}");
            let events = events_of(&scene.path().join("e"));
            let back = events.iter().filter(|event| event["stage"] == "done");
            assert_eq!(back.count(), 1, "{what} {events:?}");
            assert_eq!(events.last().unwrap()["counts"]["replicas"], 3, "{what}");
        }
    }
}

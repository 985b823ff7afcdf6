//! Slices as they are unless told otherwise: whoever waits in a loop without a call has others run.

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::Scene;

/// What comes of this program as so many replicas, with no word about slices.
fn run(replicas: &str, name: &str, source: &str, arguments: &[&str]) -> Outcome {
    let scene = Scene::new();
    let program = scene.compile(name, source, &["-O1", "-pthread"]);
    let command = [&["run", "-n", replicas, "--", &program], arguments].concat();
    scene.rcoe(&command)
}

#[test]
fn flags_locks_and_handlers_that_are_waited_for_in_loops_come() {
    for replicas in ["1", "2", "3"] {
        let outcome = run(replicas, "waits", include_str!("points/waits.c"), &[]);
        let what = format!("{replicas}: {}", outcome.err());
        assert_eq!(outcome.out(), "flag, 80000, rung\n", "{what}");
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
    }
}

#[test]
fn a_program_that_works_hears_of_a_signal() {
    for replicas in ["1", "2"] {
        let outcome = run(replicas, "alarm", include_str!("points/alarm.c"), &["1"]);
        let what = format!("{replicas}: {}", outcome.err());
        assert_eq!(
            outcome.out(),
            "ready\n1 signals, and it computed\n",
            "{what}"
        );
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
    }
}

#[test]
fn a_length_that_is_none_is_refused_by_what_it_may_be() {
    let scene = Scene::new();
    for wrong in ["soon", "0", "11s"] {
        let outcome = scene.rcoe(&["run", "--slice", wrong, "--", "true"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{wrong}");
        assert!(outcome.err().contains("--slice"), "{}", outcome.err());
    }
}

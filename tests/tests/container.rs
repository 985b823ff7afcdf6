//! rcoe under the filters of system calls by which container engines confine programs.
//!
//! The filter refuses what the default ones of Docker and Podman refuse to a container without
//! capabilities, with the error that each of them gives.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// What Docker answers (EPERM), and Podman (ENOSYS).
const ERRORS: [&str; 2] = ["1", "38"];

/// A shell with pipes, a subshell and programs that are executed.
const SCRIPT: &str = "echo one; (sleep 0; echo two) | cat; for i in 1 2 3; do echo $i | \
    md5sum; done; cat /proc/self/maps | grep -c '\\[stack\\]'";

fn confined(scene: &Scene) -> String {
    scene.compile("confined", include_str!("container/confined.c"), &[])
}

#[test]
fn programs_run_as_natively() {
    for error in ERRORS {
        let scene = Scene::new();
        let script = format!("exec {} {error} \"$@\"", confined(&scene));
        let native = scene.like_native(&script, &["/bin/sh", "-c", SCRIPT]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
        assert!(native.out().ends_with("\n1\n"), "{}", native.out());
    }
}

#[test]
fn threads_race_alike_and_programs_that_compute_get_signals() {
    let scene = Scene::new();
    let script = format!("exec {} 38 \"$@\"", confined(&scene));
    let program = scene.compile("alarm", include_str!("points/alarm.c"), &["-O1"]);
    for replicas in ["1", "2", "3"] {
        let arguments = ["run", "-n", replicas, "--slice", "5ms", "--", &program];
        let outcome = scene.rcoe_by(&script, &arguments);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), "ready\n10 signals, and it computed\n");
    }
}

#[test]
fn a_lost_replica_is_replaced() {
    for error in ERRORS {
        let scene = Scene::new();
        let source = include_str!("reintegration/lines.c");
        let program = scene.compile("program", source, &["-static", "-no-pie"]);
        let launcher = [&confined(&scene), error];
        let group = scene.start_group_under(&launcher, &["-n", "3"], &[&program]);
        until("lines", || {
            let told = group.running.stdout_so_far().unwrap();
            (!told.is_empty()).then_some(())
        });
        signal(group.replicas[0], Signal::KILL).unwrap();
        let is_back = |it: &Value| it["type"] == "reintegration" && it["stage"] == "done";
        until("the replica's return", || {
            let events = events_of(&group.events);
            events.iter().any(is_back).then_some(())
        });
        let (outcome, _) = group.finish_counting(&scene);
        assert!(outcome.err().contains("removed"), "{}", outcome.err());
    }
}

//! Limits of resources: the program sees and meets its own, as without rcoe.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Scene, until};
use rustix::process::Signal;

/// Compiles a program of `limits/` and demands that replicas do what a plain run does.
#[track_caller]
fn like_native(name: &str, source: &str) {
    Scene::new().program_like_native(name, source, &["-w"]);
}

#[test]
fn memory_is_counted_as_the_kernel_counts_it() {
    like_native("memory", include_str!("limits/memory.c"));
}

#[test]
fn limits_are_told_and_set_by_the_kernels_rules() {
    like_native("calls", include_str!("limits/calls.c"));
}

#[test]
fn limits_on_memory_are_asked_for_last() {
    like_native("order", include_str!("limits/order.c"));
}

#[test]
fn more_descriptors_than_there_may_be_are_told_of_before_memory() {
    let scene = Scene::new();
    let program = scene.compile("polls", include_str!("limits/polls.c"), &["-w"]);
    let native = scene.like_native("exec \"$@\"", &[&program]);
    assert!(native.out().contains("EINVAL"), "{}", native.out());
    for compare in ["io", "every"] {
        let run = ["run", "-n", "2", "--compare", compare, "--", &program];
        let outcome = scene.rcoe(&run);
        assert_eq!(outcome.out(), native.out(), "{compare}: {}", outcome.err());
    }
}

#[test]
fn a_file_tells_the_programs_limits() {
    let script = "ulimit -Sv 3000000; ulimit -Sn 300; ulimit -St 100; ulimit -Su 500; \
                  cat /proc/self/limits; ulimit -Ss 4096; exec cat /proc/self/limits";
    let scene = Scene::new();
    let native = scene.like_native("exec \"$@\"", &["bash", "-c", script]);
    assert!(native.out().contains("3072000000"), "{}", native.out());
}

#[test]
fn signals_that_wait_are_counted() {
    like_native("pending", include_str!("limits/pending.c"));
}

#[test]
fn whoever_handles_the_end_of_its_time_is_killed_later() {
    let scene = Scene::new();
    let program = scene.compile("cpu", include_str!("limits/cpu.c"), &["-w"]);
    let native = scene.run(&[&program]);
    assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
    let outcome = scene.rcoe(&["run", "-n", "2", "--", &program]);
    assert_eq!(outcome.ended, native.ended, "{}", outcome.err());
    assert_eq!(outcome.out(), native.out(), "{}", outcome.err());
    assert_eq!(outcome.err(), "");
}

#[test]
fn a_loop_without_a_call_ends_when_its_time_is_over() {
    let scene = Scene::new();
    let program = scene.compile("cpu", include_str!("limits/cpu.c"), &["-w"]);
    for replicas in ["1", "3"] {
        let arguments = ["run", "-n", replicas, "--", &program, "on"];
        let outcome = scene.rcoe_by("ulimit -c 0; exec \"$@\"", &arguments);
        assert_eq!(outcome.ended, Ended::Signal(24), "{}", outcome.err());
        assert_eq!(outcome.err(), "", "-n {replicas}");
    }
}

#[test]
fn a_hard_limit_on_time_that_rcoe_is_under_is_the_programs() {
    let scene = Scene::new();
    let program = scene.compile("cpu", include_str!("limits/cpu.c"), &["-w"]);
    // Both limits are one, so the host ends replicas, too, and by an account that can be far from
    // the time that they have run.
    for replicas in ["1", "2", "3"] {
        let arguments = ["run", "-n", replicas, "--", &program, "on"];
        let outcome = scene.rcoe_by("ulimit -t 1; exec \"$@\"", &arguments);
        assert_eq!(outcome.ended, Ended::Signal(9), "{}", outcome.err());
        assert_eq!(outcome.err(), "", "-n {replicas}");
    }
}

#[test]
fn shells_set_limits_for_what_they_start() {
    let scene = Scene::new();
    for set in [
        "ulimit -v 2000000",
        "ulimit -d 20000",
        "ulimit -i 0",
        "ulimit -n 12",
        "ulimit -u 4000",
        "ulimit -s 512",
        "ulimit -f 100",
        "ulimit -l 0",
        "ulimit -m 1000",
        "ulimit -c 0",
        "ulimit -t 1000",
    ] {
        let text = format!("{set}; ls / | wc -l; echo $(ulimit -a | grep -v pipe); echo $?");
        let native = scene.like_native("exec \"$@\"", &["bash", "-c", &text]);
        assert_eq!(native.ended, Ended::Exit(0), "{set} {}", native.err());
    }
}

#[test]
fn limits_that_rcoe_is_started_under_are_the_programs() {
    let scene = Scene::new();
    let text = "ulimit -a | grep -v pipe; ulimit -H -a | grep -v pipe; echo $(echo nested)";
    let under = "ulimit -S -v 1000000; ulimit -S -d 50000; ulimit -S -t 1000; ulimit -S -f 100; \
                 ulimit -S -n 20; ulimit -S -u 5000; ulimit -S -i 5; ulimit -s 1024; exec \"$@\"";
    let native = scene.like_native(under, &["bash", "-c", text]);
    assert!(native.out().contains("1000000"), "{}", native.out());
}

#[test]
fn a_hard_limit_without_room_for_rcoe_is_refused_with_what_is_needed() {
    let scene = Scene::new();
    for (limit, name) in [
        ("ulimit -v 300000", "address space"),
        ("ulimit -d 1000", "data"),
        ("ulimit -f 1000", "size of files"),
    ] {
        let script = format!("{limit}; exec \"$@\"");
        let outcome = scene.rcoe_by(&script, &["run", "-n", "2", "--", "echo", "started"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{limit}");
        assert_eq!(outcome.out(), "", "{limit}");
        let told = outcome.err();
        assert!(told.contains(name) && told.contains("at least"), "{told}");
        assert_eq!(told.trim().lines().count(), 1, "{told}");
    }
}

#[test]
fn replicas_that_are_all_killed_end_as_the_program_would() {
    for replicas in ["1", "2", "3"] {
        let scene = Scene::new();
        let group = scene.start_group(&["-n", replicas], &["sleep", "1000"]);
        // At once is what the supervisor has not seen one by one.
        let supervisor = group.running.pid();
        signal(supervisor, Signal::STOP).unwrap();
        until("rcoe to be stopped", || {
            proc::find(supervisor).filter(|process| process.state == 'T')
        });
        for pid in &group.replicas {
            signal(*pid, Signal::KILL).unwrap();
        }
        signal(supervisor, Signal::CONT).unwrap();
        let (outcome, events) = group.finish();
        assert_eq!(outcome.ended, Ended::Signal(9), "{events:?}");
        let last = events.last().expect("events");
        assert_eq!(last["reason"], "signal 9", "{events:?}");
    }
}

//! The system sphere: signals of static programs of Linux.
//!
//! Each program prints what it sees, and does the same on the host. Threads that signal others do
//! so until that is seen, so that nothing depends on how fast anybody is.

use rcoe_tests::launch::Ended;
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{is_aarch64, system, system_with};

const FAULTS: &str = include_str!("system_linux_signals/faults.c");
const HANDLERS: &str = include_str!("system_linux_signals/handlers.c");
const PENDING: &str = include_str!("system_linux_signals/pending.c");
const ROUNDS: &str = include_str!("system_linux_signals/rounds.c");
const THREADS: &str = include_str!("system_linux_signals/threads.c");
const TIMERS: &str = include_str!("system_linux_signals/timers.c");
const WAITS: &str = include_str!("system_linux_signals/waits.c");

fn compile(scene: &Scene, name: &str, compiler: &[&str], source: &str) {
    scene.compile_by(compiler, name, source, &["-O2", "-pthread"]);
}

/// A program does with so many replicas, and these modes of comparison, what it does on the host.
fn runs(source: &str, scenes: &[(&[&str], &str, &str)]) {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (index, &(compiler, replicas, compare)) in sampled(scenes.iter().enumerate().collect()) {
        let name = format!("program{index}");
        compile(&scene, &name, compiler, source);
        let program = format!("./{name}");
        let native = scene.run(&[&program]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &[&program]);
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

#[test]
fn signals_that_are_blocked_wait_and_are_taken_as_on_linux() {
    let scenes = [(GLIBC, "1", "args"), (MUSL, "3", "args")];
    runs(PENDING, &scenes);
}

#[test]
fn handlers_have_frames_stacks_and_masks_as_on_linux() {
    let scenes = [
        (GLIBC, "1", "args"),
        (GLIBC, "2", "every"),
        (MUSL, "3", "io"),
    ];
    runs(HANDLERS, &scenes);
}

#[test]
fn faults_are_told_to_handlers_as_on_linux() {
    runs(FAULTS, &[(GLIBC, "1", "args"), (GLIBC, "3", "every")]);
}

#[test]
fn calls_that_wait_are_broken_off_or_made_again_as_on_linux() {
    let scenes = [
        (GLIBC, "1", "args"),
        (GLIBC, "2", "args"),
        (GLIBC, "3", "every"),
    ];
    runs(WAITS, &scenes);
}

#[test]
fn timers_ring_at_the_same_place_in_all_replicas() {
    let scenes = [
        (GLIBC, "1", "args"),
        (GLIBC, "2", "every"),
        (MUSL, "3", "args"),
    ];
    runs(TIMERS, &scenes);
}

#[test]
fn of_several_threads_the_right_one_takes_a_signal() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "threads", GLIBC, THREADS);
    let native = scene.run(&["./threads"]);
    for replicas in sampled(vec!["1", "2", "3"]) {
        let outcome = system(&scene, &["-n", replicas], &["./threads"]);
        assert_eq!(outcome.ended, Ended::Exit(143), "{}", outcome.err());
        assert_eq!(outcome.out(), native.out(), "{replicas}");
        assert_eq!(outcome.err(), "", "{replicas}");
    }
}

#[test]
fn traps_of_a_shell_run_as_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let script = "trap 'echo told' USR1; trap '' HUP; kill -HUP $$; kill -USR1 $$; echo behind; \
                  trap - USR1; kill -USR1 $$; echo never";
    for replicas in sampled(vec!["1", "3"]) {
        let command = ["busybox", "sh", "-c", script];
        let outcome = system(&scene, &["-n", replicas], &command);
        assert_eq!(outcome.ended, Ended::Exit(138), "{}", outcome.err());
        assert_eq!(outcome.out(), "told\nbehind\n", "{replicas}");
        assert_eq!(outcome.err(), "", "{replicas}");
    }
}

#[test]
fn a_program_that_a_signal_ends_returns_128_and_its_number() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "faults", GLIBC, FAULTS);
    for (what, status, told) in [
        ("d", 136, "exception 0"),
        ("t", 133, "exception 3"),
        ("b", 139, "no access to 0x10"),
        ("i", 139, "no access to 0x10"),
        ("s", 139, "no stack"),
        ("o", 139, "no stack"),
        ("r", 139, "a wrong frame"),
        ("x", 134, ""),
        ("k", 137, ""),
        ("p", 0, "does not stop programs"),
    ] {
        let outcome = system(&scene, &["-n", "2"], &["./faults", what]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(status), "{what}: {err}");
        assert!(
            err.contains(told) && err.lines().count() <= 1,
            "{what}: {err}"
        );
        assert_eq!(err.is_empty(), told.is_empty(), "{what}: {err}");
    }
    compile(&scene, "timers", GLIBC, TIMERS);
    let outcome = system(&scene, &["-n", "2"], &["./timers", "to the end"]);
    assert_eq!(outcome.ended, Ended::Exit(142), "{}", outcome.err());
}

#[test]
fn signals_come_while_any_replica_is_lost_and_comes_back() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "rounds", GLIBC, ROUNDS);
    let command = ["./rounds", "1000000"];
    let native = scene.run(&command);
    assert_eq!(native.ended, Ended::Exit(21));
    for (probe, victim) in sampled(vec![("astray", 0), ("sudden", 1), ("astray", 2)]) {
        let kernel = format!("probe={probe} victim={victim}");
        let options = ["-n", "3", "--events", "e"];
        let outcome = system_with(&scene, &kernel, &options, &command);
        assert_eq!(outcome.ended, native.ended, "{kernel}: {}", outcome.err());
        assert_eq!(outcome.out(), native.out(), "{kernel}");
        let events = events_of(&scene.path().join("e"));
        let is_of = |event: &serde_json::Value, kind: &str| {
            event["type"] == kind && event.get("removed").unwrap_or(&event["replica"]) == victim
        };
        let lost = events.iter().any(|event| is_of(event, "downgrade"));
        let mut back = events.iter().filter(|it| is_of(it, "reintegration"));
        assert!(lost, "{kernel}: {events:?}");
        assert!(
            back.any(|event| event["stage"] == "done"),
            "{kernel}: {events:?}"
        );
    }
    let kernel = "probe=astray victim=1";
    let outcome = system_with(&scene, kernel, &["-n", "2"], &command);
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
}

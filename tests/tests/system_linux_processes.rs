//! The system sphere: processes of unmodified programs of Linux, with one replica and more.
//!
//! Each program prints what it sees, and does the same on the host.

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::Scene;
use rcoe_tests::system::{is_aarch64, system};

/// Compilers of static programs, with their words.
const MUSL: &[&str] = &["musl-gcc", "-static"];
const GLIBC: &[&str] = &["gcc", "-static"];

const CHILDREN: &str = include_str!("system_linux_processes/children.c");

/// What a carried program did is what it does on the host, and the user is told nothing.
fn assert_alike(carried: &Outcome, native: &Outcome, what: &str) {
    assert_eq!(carried.ended, native.ended, "{what}: {}", carried.err());
    assert_eq!(carried.out(), native.out(), "{what}");
    assert_eq!(carried.err(), "", "{what}");
}

#[test]
fn children_have_what_they_inherit_and_are_waited_for_as_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (compiler, replicas, compare) in [
        (GLIBC, "1", "args"),
        (GLIBC, "2", "every"),
        (MUSL, "3", "io"),
    ] {
        scene.compile_by(compiler, "children", CHILDREN, &["-O2"]);
        let native = scene.run(&["./children"]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &["./children"]);
        assert_eq!(native.ended, Ended::Exit(0));
        assert_alike(
            &outcome,
            &native,
            &format!("{compiler:?} {replicas} {compare}"),
        );
    }
}

/// All that a shell does without another program.
#[test]
fn a_shell_has_subshells_pipes_and_jobs_in_the_background() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let script = "(exit 3); echo $?; x=$(echo sub); echo $x; \
                  echo one | { read y; echo got $y; }; { echo later; } & wait; \
                  for i in 1 2 3; do (echo $i); done | while read n; do echo line $n; done";
    let native = scene.run(&["busybox", "sh", "-c", script]);
    for replicas in ["1", "3"] {
        let command = ["busybox", "sh", "-c", script];
        let outcome = system(&scene, &["-n", replicas], &command);
        assert_alike(&outcome, &native, replicas);
    }
}

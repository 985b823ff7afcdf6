//! The system sphere on AArch64: unmodified programs of Linux.
//!
//! They are compiled for it by a cross compiler. What is not of the processor is held against a run
//! of the same source on the host.

use std::io::Write as _;
use std::time::Duration;

use rcoe_tests::launch::Ended;
use rcoe_tests::linux::{AARCH64, GLIBC, assert_alike};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with, words};

const ARCH: &str = "--arch=aarch64";
/// The port from which bytes of the input are read.
const INPUT: u64 = 0x1060;
/// Where the cross compiler's libraries are.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu/lib";

const PROGRAM: &str = include_str!("system_linux_aarch64/program.c");
const TOLD: &str = include_str!("system_linux_aarch64/told.c");
const ROUNDS: &str = include_str!("system_linux_signals/rounds.c");

fn cross(scene: &Scene, name: &str, source: &str) {
    scene.compile_by(AARCH64, name, source, &["-static", "-O2", "-pthread"]);
}

#[test]
fn static_programs_have_what_is_of_the_processor() {
    let scene = Scene::new();
    cross(&scene, "program", PROGRAM);
    for (replicas, compare) in sampled(vec![("1", "args"), ("2", "every"), ("3", "io")]) {
        let options = [ARCH, "-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &["./program"]);
        let what = format!("{replicas} {compare}: {} {}", outcome.out(), outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(21), "{what}");
        let expected = "aarch64, aarch64, 1\nagain anew\nall well\n";
        assert_eq!(outcome.out(), expected, "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

#[test]
fn dynamic_programs_bring_their_loader_and_libraries() {
    let scene = Scene::new();
    scene.compile_by(AARCH64, "program", PROGRAM, &["-O2", "-pthread"]);
    let file = |name: &str| format!("{LIBRARIES}/{name}:/lib/{name}");
    let files = ["ld-linux-aarch64.so.1", "libc.so.6"].map(file);
    let [loader, library] = &files;
    let options = [ARCH, "-n", "3", "--file", loader, "--file", library];
    let outcome = system(&scene, &options, &["./program"]);
    let what = format!("{} {}", outcome.out(), outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(21), "{what}");
    assert!(outcome.out().ends_with("all well\n"), "{what}");
    assert_eq!(outcome.err(), "");
}

/// Sources of other suites, and how many replicas they have here.
const SOURCES: [(&str, &str); 9] = [
    ("2", include_str!("system_linux_signals/pending.c")),
    ("3", include_str!("system_linux_signals/waits.c")),
    ("2", include_str!("system_linux_signals/timers.c")),
    ("3", include_str!("system_linux_processes/children.c")),
    ("2", include_str!("system_linux_processes/mapped.c")),
    ("2", include_str!("system_linux_local/receive.c")),
    ("3", include_str!("system_linux_local/rights.c")),
    ("1", include_str!("system_linux_local/fifos.c")),
    ("2", include_str!("system_linux_local/packets.c")),
];

#[test]
fn programs_do_what_the_same_source_does_on_linux() {
    for (number, (replicas, source)) in sampled(SOURCES.into_iter().enumerate().collect()) {
        let scene = Scene::new();
        scene.compile_by(GLIBC, "program", source, &["-O2", "-pthread"]);
        let native = scene.run(&["./program"]);
        assert_eq!(native.ended, Ended::Exit(0), "{number}: {}", native.out());
        cross(&scene, "program", source);
        let outcome = system(&scene, &[ARCH, "-n", replicas], &["./program"]);
        assert_alike(&outcome, &native, &format!("source {number}"));
    }
}

#[test]
fn what_cannot_be_carried_is_refused_by_name() {
    let scene = Scene::new();
    cross(&scene, "told", TOLD);
    let outcome = system(&scene, &[ARCH, "-n", "2"], &["./told"]);
    let err = outcome.err();
    assert_eq!(outcome.ended, Ended::Exit(132), "{err}");
    assert_eq!(outcome.out(), "-1 1\n-1 1\n1 1\n", "{err}");
    for said in ["bpf (280)", "unknown (4294901778)", "EACCES", "exception 0"] {
        assert!(err.contains(said), "{said}: {err}");
    }
    scene.compile_by(GLIBC, "other", "int main(void) { return 0; }", &[]);
    for (options, program, said) in [
        (&[ARCH][..], "./other", "use --arch x86_64"),
        (&["--arch=x86_64"], "./told", "use --arch aarch64"),
        (
            &[ARCH, "--coupling", "close"],
            "./told",
            "an exclusive load or store",
        ),
    ] {
        let outcome = system(&scene, options, &[program]);
        let err = outcome.err();
        assert!(matches!(outcome.ended, Ended::Exit(125 | 126)), "{err}");
        assert!(err.contains(said), "{said}: {err}");
        assert_eq!(outcome.out(), "");
    }
}

#[test]
fn a_shell_runs_scripts_with_pipes_and_programs() {
    // Debian has it for one processor at a time.
    let Ok(busybox) = std::env::var("RCOE_GUEST_BUSYBOX") else {
        return;
    };
    let script = "x=$(echo a b | tr a-z A-Z); for i in 1 2 3; do (echo $i $x); done | sort -r; \
                  cat no 2>/dev/null || echo none >f; cat f; uname -m; exit 5";
    let scene = Scene::new();
    for replicas in sampled(vec!["1", "3"]) {
        let command = [busybox.as_str(), "sh", "-c", script];
        let outcome = system(&scene, &[ARCH, "-n", replicas], &command);
        assert_eq!(outcome.ended, Ended::Exit(5), "{}", outcome.err());
        assert_eq!(outcome.out(), "3 A B\n2 A B\n1 A B\nnone\naarch64\n");
        assert_eq!(outcome.err(), "");
    }
}

#[test]
fn any_replica_is_lost_and_comes_back_while_a_program_runs() {
    let scene = Scene::new();
    cross(&scene, "carried", ROUNDS);
    scene.compile_by(GLIBC, "native", ROUNDS, &["-O2", "-pthread"]);
    let native = scene.run(&["./native", "1000000"]);
    assert_eq!(native.ended, Ended::Exit(21));
    let command = ["./carried", "1000000"];
    for (probe, victim) in sampled(vec![("astray", 0), ("sudden", 1), ("astray", 2)]) {
        let kernel = format!("probe={probe} victim={victim}");
        let options = [ARCH, "-n", "3", "--events", "e"];
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
    let outcome = system_with(
        &scene,
        "probe=astray victim=1",
        &[ARCH, "-n", "2"],
        &command,
    );
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
}

const LINES: &str = r#"
#include <stdio.h>
int main(void) {
    char line[200];
    while (fgets(line, sizeof line, stdin)) printf("<%s", line);
    puts("end");
}
"#;

#[test]
fn input_comes_while_the_machine_runs() {
    let scene = Scene::new();
    cross(&scene, "lines", LINES);
    // A byte of it is lost with the primary.
    let word = format!("RCOE_SYSTEM_WORDS=breaks-at-reading-port={INPUT} victim=0");
    let mut words = words(&[ARCH, "-n", "3"], &["./lines"]);
    words.insert(1, word);
    let (running, mut user) = scene.start_reading(&words);
    user.write_all(b"one\na second line\n").unwrap();
    drop(user);
    let outcome = running.finish(Duration::from_secs(240)).unwrap();
    let err = outcome.err();
    assert_eq!(outcome.out(), "<one\n<a second line\nend\n", "{err}");
    assert!(err.contains("break while it reads"), "{err}");
}

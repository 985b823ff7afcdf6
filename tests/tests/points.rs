//! Points between calls: programs that compute get their signals, threads that wait in a loop for
//! each other go on, and racing threads race alike in all replicas.

use std::process::Command;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Compiles a program of `points/` and runs it with so many replicas that come to points; what it
/// printed.
#[track_caller]
fn run(name: &str, source: &str, replicas: &str) -> String {
    let scene = Scene::new();
    let program = scene.compile(name, source, &["-O1", "-pthread"]);
    let outcome = scene.rcoe(&with_points(replicas, &program));
    assert_eq!(outcome.err(), "", "{name} with {replicas}");
    assert_eq!(outcome.ended, Ended::Exit(0), "{name} with {replicas}");
    outcome.out()
}

/// A run in which so many replicas come to points.
fn with_points<'a>(replicas: &'a str, program: &'a str) -> [&'a str; 7] {
    ["run", "-n", replicas, "--slice", "5ms", "--", program]
}

/// Numbers of replicas.
const ALL: [&str; 3] = ["1", "2", "3"];

#[test]
fn a_program_that_computes_gets_its_signals() {
    for replicas in ALL {
        let told = run("alarm", include_str!("points/alarm.c"), replicas);
        assert_eq!(told, "ready\n10 signals, and it computed\n", "{replicas}");
    }
}

#[test]
fn states_that_differ_in_memory_only_are_told_apart() {
    for replicas in ALL {
        let told = run("recursion", include_str!("points/recursion.c"), replicas);
        assert_eq!(told, "10 signals, 0 wrong\n", "{replicas}");
    }
}

#[test]
fn code_that_a_program_reads_is_as_it_was() {
    let processor = std::fs::read_to_string("/proc/cpuinfo").expect("readable");
    if !processor.contains(" ospke") {
        eprintln!("skipped: this machine has no protection keys");
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("itself", include_str!("points/itself.c"), &["-O1"]);
    // A program that another one has become begins with other registers.
    for (first, rest) in [(program.as_str(), None), ("/usr/bin/env", Some(&program))] {
        for replicas in ALL {
            let mut command = with_points(replicas, first).to_vec();
            command.extend(rest.map(String::as_str));
            let outcome = scene.rcoe(&command);
            let what = format!("{replicas} of {first}: {}", outcome.err());
            assert_eq!(outcome.out(), "8 signals, 0 wrong\n", "{what}");
        }
    }
}

#[test]
fn code_that_a_program_makes_and_writes_to_is_computed_in() {
    for replicas in ALL {
        let told = run("made", include_str!("points/made.c"), replicas);
        let expected = "8 signals, all rounds, the same code\n";
        assert_eq!(told, expected, "{replicas}");
    }
}

#[test]
fn threads_that_wait_in_code_of_their_own_making_go_on() {
    for replicas in ALL {
        let told = run("turns", include_str!("points/turns.c"), replicas);
        assert_eq!(told, "all turns taken\n", "{replicas}");
    }
}

#[test]
fn a_breakpoint_stops_where_no_jump_can() {
    let scene = Scene::new();
    let source = include_str!("points/turns.c");
    let program = scene.compile("turns", source, &["-O1", "-pthread"]);
    let probe = scene.compile("probe", include_str!("points/probe.c"), &["-O1"]);
    if !Command::new(&probe).status().expect("it runs").success() {
        eprintln!("skipped: this host offers no breakpoints");
        return;
    }
    for replicas in ALL {
        let mut command = with_points(replicas, &program).to_vec();
        command.push("short");
        let outcome = scene.rcoe(&command);
        assert_eq!(outcome.err(), "", "{replicas}");
        assert_eq!(outcome.out(), "all turns taken\n", "{replicas}");
    }
}

#[test]
fn a_clock_that_only_some_have_to_wait_for_is_no_way_ahead() {
    for replicas in ALL {
        let told = run("clock", include_str!("points/clock.c"), replicas);
        assert_eq!(told, "20 rounds\n", "{replicas}");
    }
}

#[test]
fn threads_that_wait_in_loops_go_on() {
    for replicas in ALL {
        let told = run("spin", include_str!("points/spin.c"), replicas);
        assert_eq!(told, "all turns taken\n", "{replicas}");
    }
}

#[test]
fn threads_race_alike_in_all_replicas() {
    for replicas in ALL {
        let told = run("race", include_str!("points/race.c"), replicas);
        let count: u64 = told.trim().parse().expect("a number");
        assert!((4_000_000..=32_000_000).contains(&count), "{count}");
    }
}

#[test]
fn threads_go_on_where_points_have_left_them() {
    let scene = Scene::new();
    let source = include_str!("points/midst.c");
    let program = scene.compile("midst", source, &["-O1", "-pthread"]);
    let run = |replicas| {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--slice", "1ms", "--", &program]);
        assert_eq!(outcome.err(), "", "{replicas}");
        outcome.out()
    };
    let alone = run("1");
    for replicas in ["2", "3", "2"] {
        assert_eq!(run(replicas), alone, "{replicas}");
    }
}

#[test]
fn the_others_go_on_without_one_that_is_lost_while_all_compute() {
    let scene = Scene::new();
    let program = scene.compile("alarm", include_str!("points/alarm.c"), &["-O1"]);
    for lost in 0..3 {
        let options = ["-n", "3", "--slice", "5ms", "--no-reintegrate"];
        let group = scene.start_group(&options, &[&program, "40"]);
        until("the first line", || {
            let told = group.running.stdout_so_far().unwrap();
            told.starts_with("ready\n").then_some(())
        });
        signal(group.replicas[lost], Signal::KILL).unwrap();
        let (outcome, events) = group.finish();
        let what = format!("{lost}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(
            outcome.out(),
            "ready\n40 signals, and it computed\n",
            "{what}"
        );
    }
}

#[test]
fn each_is_replaced_while_all_compute() {
    let scene = Scene::new();
    let program = scene.compile("alarm", include_str!("points/alarm.c"), &["-O1"]);
    for lost in 0..3 {
        let words = [&program, "60", "and until it is told to end"];
        let group = scene.start_group(&["-n", "3", "--slice", "5ms"], &words);
        until("the first line", || {
            let told = group.running.stdout_so_far().unwrap();
            told.starts_with("ready\n").then_some(())
        });
        signal(group.replicas[lost], Signal::KILL).unwrap();
        let is_back = |it: &Value| it["type"] == "reintegration" && it["stage"] == "done";
        until("another replica", || {
            events_of(&group.events).iter().any(is_back).then_some(())
        });
        signal(group.running.pid(), Signal::USR1).unwrap();
        let (outcome, events) = group.finish();
        let what = format!("{lost}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(
            outcome.out(),
            "ready\n60 signals, and it computed\n",
            "{what}"
        );
    }
}

#[test]
fn the_points_are_counted() {
    let scene = Scene::new();
    let source = include_str!("points/alarm.c");
    let program = scene.compile("alarm", source, &["-O1"]);
    let options = [
        "run", "-n", "2", "--slice", "5ms", "--stats", "--", &program,
    ];
    let outcome = scene.rcoe(&options);
    let told = outcome.err();
    let row = |name: &str| {
        let row = told.lines().find(|row| row.starts_with(name));
        let words = row.expect(name).split_whitespace().rev();
        let counts = words.take(2).map(|it| it.parse().expect("a count"));
        counts.collect::<Vec<u64>>()
    };
    let counts = row("points between calls");
    let all = row("phases to points");
    let most = row("most phases to a point");
    assert!(counts[0] > 0 && counts[0] == counts[1], "{counts:?}");
    for ((&points, &all), &most) in counts.iter().zip(&all).zip(&most) {
        assert!(most >= 1 && all >= most + points - 1, "{told}");
    }
}

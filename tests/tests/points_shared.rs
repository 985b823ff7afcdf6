//! Points between calls of processes that share memory: their turns end there, and signals, stops
//! and ends reach one that computes.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Numbers of replicas.
const ALL: [&str; 3] = ["1", "2", "3"];

/// Runs a command with so many replicas that come to points; what it printed.
#[track_caller]
fn run(scene: &Scene, replicas: &str, command: &[&str]) -> String {
    let options = ["run", "-n", replicas, "--slice", "5ms", "--"];
    let outcome = scene.rcoe(&[&options, command].concat());
    assert_eq!(outcome.err(), "", "{command:?} with {replicas}");
    assert_eq!(
        outcome.ended,
        Ended::Exit(0),
        "{command:?} with {replicas}: {}",
        outcome.out()
    );
    outcome.out()
}

/// Runs a program of `points/` with one, two and three replicas; what it printed.
#[track_caller]
fn run_all(name: &str, source: &str) -> [String; 3] {
    let scene = Scene::new();
    let program = scene.compile(name, source, &["-O1"]);
    ALL.map(|replicas| run(&scene, replicas, &[&program]))
}

#[test]
fn processes_that_wait_in_loops_go_on() {
    for told in run_all("flags", include_str!("points/flags.c")) {
        assert_eq!(told, "five turns\nfive turns\nall turns taken, 0\n");
    }
}

#[test]
fn locks_that_are_waited_for_in_loops_exclude() {
    for told in run_all("lock", include_str!("points/lock.c")) {
        assert_eq!(told, "12000 counted, 0\n");
    }
}

#[test]
fn states_that_differ_in_shared_memory_only_are_told_apart() {
    for told in run_all("counter", include_str!("points/counter.c")) {
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!((lines.len(), lines[8]), (9, "ended by 9"), "{told}");
        let counts = lines[..8].iter().map(|it| it.parse::<u64>());
        let counts: Vec<u64> = counts.collect::<Result<_, _>>().expect("numbers");
        assert!(counts.is_sorted_by(|one, next| one < next), "{told}");
    }
}

#[test]
fn one_that_computes_is_signalled_stopped_and_ended() {
    for told in run_all("stopped", include_str!("points/stopped.c")) {
        let round = "stopped 1, stands still 1\n";
        assert_eq!(told, round.repeat(3) + "ended by 9\n");
    }
}

#[test]
fn values_that_python_waits_for_in_loops_come() {
    let scene = Scene::new();
    let script = scene.write("busy.py", include_str!("points/busy.py"));
    let script = script.to_str().expect("a plain path");
    for replicas in ALL {
        let told = run(&scene, replicas, &["python3", script]);
        assert_eq!(told, "12 0\n", "{replicas}");
    }
}

/// The replicas of the second process, which was made last.
fn of_child(group: &Group) -> Vec<u32> {
    let root = proc::find(group.replicas[0]).expect("a living replica");
    let all = proc::session(root.session).into_iter();
    let ours = all.filter(|process| process.parent == root.parent);
    let mut others: Vec<u32> = ours.map(|process| process.pid).collect();
    others.retain(|pid| !group.replicas.contains(pid));
    others.sort_unstable();
    others
}

/// Kills a replica of one of two processes that wait for each other in loops, of three replicas
/// each. Once `done` says so of the events, and they have taken more turns, they end well.
#[track_caller]
fn lose(
    options: &[&str],
    of: fn(&Group) -> Vec<u32>,
    index: usize,
    is_done: impl Fn(&[Value]) -> bool,
) {
    let scene = Scene::new();
    let program = scene.compile("flags", include_str!("points/flags.c"), &["-O1"]);
    let options = [&["-n", "3", "--slice", "5ms"], options].concat();
    let group = scene.start_group(&options, &[&program, "go"]);
    let turns = || group.running.stdout_so_far().unwrap().lines().count();
    let until_more = |before: usize| until("turns", || (turns() > before).then_some(()));
    until_more(0);
    let all = until("three replicas", || {
        let all = of(&group);
        (all.len() == 3).then_some(all)
    });
    signal(all[index], Signal::KILL).unwrap();
    until("what comes of it", || {
        is_done(&events_of(&group.events)).then_some(())
    });
    until_more(turns());
    scene.write("go", "");
    let (outcome, events) = group.finish();
    let what = format!("{index}: {} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
    assert!(outcome.out().ends_with("all turns taken, 0\n"), "{what}");
}

/// Are there two such events, one of each process?
fn are_two(events: &[Value], is_it: impl Fn(&Value) -> bool) -> bool {
    let found = events.iter().filter(|it| is_it(it));
    found.count() == 2
}

#[test]
fn the_others_go_on_without_one_that_is_lost_while_all_compute() {
    let gone = |events: &[Value]| are_two(events, |it| it["type"] == "downgrade");
    for index in 0..3 {
        lose(&["--no-reintegrate"], |it| it.replicas.clone(), index, gone);
        lose(&["--no-reintegrate"], of_child, index, gone);
    }
}

#[test]
fn a_lost_replica_comes_back_in_both_while_all_compute() {
    let is_back = |it: &Value| it["type"] == "reintegration" && it["stage"] == "done";
    for index in 0..3 {
        let back = |events: &[Value]| are_two(events, is_back);
        lose(&[], |it| it.replicas.clone(), index, back);
    }
}

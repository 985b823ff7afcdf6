//! So many replicas are stopped from outside at once that those left are no majority: the run ends
//! in a fail-stop, whether anybody waits for them or not, and none that is well is removed first.

use std::thread;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, Scene, until};
use rustix::process::Signal;

const BUSY: &str = include_str!("standstill/busy.c");

/// What runs, and whose replicas are stopped.
#[derive(Debug, Clone, Copy)]
struct Case {
    replicas: usize,
    /// Of these numbers.
    stopped: &'static [usize],
    how: &'static str,
    of: Process,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    /// The only one.
    Alone,
    /// A shell that waits for the one that does something.
    Parent,
    /// The child of such a shell.
    Child,
}

fn until_state(pid: u32, state: char) {
    until("a process to stop", || {
        proc::find(pid)
            .is_none_or(|process| process.state == state)
            .then_some(())
    });
}

/// The replicas of a child that executed a program of this name, by number: they are born in order.
fn replicas_of_child(group: &Group, name: &str) -> Vec<u32> {
    let supervisor = group.running.pid();
    until("all replicas of the child", || {
        let all = proc::session(supervisor).into_iter();
        let ours = all.filter(|process| process.parent == supervisor);
        let mut pids: Vec<u32> = ours
            .map(|process| process.pid)
            .filter(|pid| {
                let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                comm.is_ok_and(|comm| comm.trim_end() == name)
            })
            .collect();
        pids.sort_unstable();
        (pids.len() == group.replicas.len()).then_some(pids)
    })
}

/// Stops processes, of which the supervisor hears together.
fn stop_at_once(supervisor: u32, victims: &[u32]) {
    signal(supervisor, Signal::STOP).unwrap();
    until_state(supervisor, 'T');
    for &victim in victims {
        signal(victim, Signal::STOP).unwrap();
        until_state(victim, 'T');
    }
    signal(supervisor, Signal::CONT).unwrap();
}

#[track_caller]
fn must_end(case: Case) {
    let scene = Scene::new();
    let program = scene.compile("busy", BUSY, &["-pthread", "-w"]);
    let count = case.replicas.to_string();
    let options = ["-n", &count, "--timeout", "500ms"];
    let script = format!("{program} {}; echo over", case.how);
    let group = match case.of {
        Process::Alone => scene.start_group(&options, &[&program, case.how]),
        _ => scene.start_group(&options, &["sh", "-c", &script]),
    };
    until("the program's first line", || {
        let out = group.running.stdout_so_far().unwrap();
        out.starts_with("ready\n").then_some(())
    });
    let replicas = match case.of {
        Process::Child => replicas_of_child(&group, "busy"),
        _ => group.replicas.clone(),
    };
    let victims: Vec<u32> = case.stopped.iter().map(|&it| replicas[it]).collect();
    stop_at_once(group.running.pid(), &victims);
    let (outcome, events) = group.finish();
    let what = format!("{case:?}: {} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
    let removed = events.iter().find(|event| event["type"] == "downgrade");
    assert!(removed.is_none(), "{what}");
    let divergence = events.iter().find(|event| event["type"] == "divergence");
    assert_eq!(
        divergence.expect("a divergence")["kind"],
        "timeout",
        "{what}"
    );
    let out = outcome.out();
    let lines = out.lines().skip(1).enumerate();
    let told = lines.filter(|(number, line)| *line != number.to_string());
    assert_eq!(told.count(), 0, "{what}");
}

/// All at the same time, because most of it is waiting.
fn all_end(how: &'static str, of: Process, replicas: usize, sets: &[&'static [usize]]) {
    thread::scope(|scope| {
        for &stopped in sets {
            let case = Case {
                replicas,
                stopped,
                how,
                of,
            };
            scope.spawn(move || must_end(case));
        }
    });
}

const TWO_OF_THREE: [&[usize]; 3] = [&[0, 1], &[0, 2], &[1, 2]];
const ALL_OF_THREE: &[usize] = &[0, 1, 2];

#[test]
fn two_of_three_while_they_write() {
    all_end("write", Process::Alone, 3, &TWO_OF_THREE);
}

#[test]
fn two_of_three_while_nobody_waits_for_them() {
    all_end("compute", Process::Alone, 3, &[&[0, 1], &[1, 2]]);
    all_end("pause", Process::Alone, 3, &[&[0, 1], &[1, 2]]);
}

#[test]
fn two_of_three_with_threads() {
    all_end("threads", Process::Alone, 3, &TWO_OF_THREE);
}

#[test]
fn two_of_three_of_a_child() {
    all_end("write", Process::Child, 3, &TWO_OF_THREE);
}

#[test]
fn two_of_three_of_a_parent_that_waits() {
    all_end("write", Process::Parent, 3, &TWO_OF_THREE);
}

#[test]
fn two_of_four() {
    let first = [&[0, 1][..], &[0, 2], &[0, 3]];
    all_end("write", Process::Alone, 4, &first);
    let rest = [&[1, 2][..], &[1, 3], &[2, 3]];
    all_end("write", Process::Alone, 4, &rest);
}

#[test]
fn all_of_them() {
    all_end("write", Process::Alone, 3, &[ALL_OF_THREE]);
    all_end("threads", Process::Alone, 3, &[ALL_OF_THREE]);
    all_end("write", Process::Child, 3, &[ALL_OF_THREE]);
    all_end("write", Process::Alone, 2, &[&[0, 1]]);
    all_end("write", Process::Alone, 4, &[&[0, 1, 2, 3]]);
}

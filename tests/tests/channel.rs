//! How replicas reach the supervisor, whatever the program has made of its rights and limits; and
//! that nothing of a run outlives it.
//!
//! Run as root these programs give up root first; run as somebody else they are that one anyway.

use std::os::fd::OwnedFd;

use rcoe_tests::launch::{Ended, Running, signal};
use rcoe_tests::memory::{find, of_agent, peek, poke, symbol};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, Scene, binary, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

/// Runs a program plainly and as one, two and three replicas, through a script that starts it as
/// `"$@"`; to the outside it does the same.
#[track_caller]
fn same(scene: &Scene, script: &str, program: &str) {
    let native = scene.run(&["sh", "-c", script, "sh", program]);
    assert!(!native.out().is_empty(), "{}", native.err());
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe_by(script, &["run", "-n", replicas, "--", program]);
        let what = format!("-n {replicas} by {script}: {}", outcome.err());
        assert_eq!(outcome.out(), native.out(), "{what}");
        assert_eq!(outcome.ended, native.ended, "{what}");
    }
}

#[test]
fn a_program_that_gave_up_root_has_processes_and_jobs() {
    let scene = Scene::new();
    let program = scene.compile("user", include_str!("channel/user.c"), &["-pthread"]);
    open_to_all(&scene);
    same(&scene, "exec \"$@\"", &program);
}

#[test]
fn processes_of_other_users_are_not_to_be_signalled() {
    let scene = Scene::new();
    let source = include_str!("channel/strangers.c");
    let program = scene.compile("strangers", source, &["-w"]);
    open_to_all(&scene);
    same(&scene, "exec \"$@\"", &program);
}

#[test]
fn no_pending_signal_need_be_allowed() {
    let scene = Scene::new();
    let program = scene.compile("user", include_str!("channel/user.c"), &["-pthread"]);
    open_to_all(&scene);
    same(&scene, "ulimit -i 0; exec \"$@\"", &program);
}

/// Another user executes what lies in the scene's folder.
fn open_to_all(scene: &Scene) {
    let path = scene.path().display().to_string();
    assert_eq!(scene.run(&["chmod", "755", &path]).ended, Ended::Exit(0));
}

/// Under a filter that ends whoever sends signals in one of the old ways, which the program does
/// not do itself.
#[test]
fn an_inherited_filter_forbids_to_send_signals() {
    const SCRIPT: &str = "for i in 1 2 3; do (exit $i); echo $?; done; echo a | tr a b; \
                          trap 'echo child' CHLD; /bin/true; set -m; sleep 0 & wait; echo end";
    let scene = Scene::new();
    let filter = scene.compile("filter", include_str!("channel/filter.c"), &["-w"]);
    for action in ["kill", "refuse"] {
        let native = scene.run(&[&filter, action, "bash", "-c", SCRIPT]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
        let rcoe = binary().expect("a built rcoe").display().to_string();
        for replicas in ["1", "2", "3"] {
            let run = [&*filter, action, &rcoe, "run", "-n", replicas, "--"];
            let outcome = scene.run(&[&run[..], &["bash", "-c", SCRIPT]].concat());
            let what = format!("-n {replicas}, {action}: {}", outcome.err());
            assert_eq!(outcome.ended, native.ended, "{what}");
            assert_eq!(outcome.out(), native.out(), "{what}");
            assert_eq!(outcome.survivors, 0, "{what}");
        }
    }
}

/// What needs timers is refused by name under that filter.
#[test]
fn lengths_that_need_forbidden_timers_are_refused() {
    let scene = Scene::new();
    let filter = scene.compile("filter", include_str!("channel/filter.c"), &["-w"]);
    let rcoe = binary().expect("a built rcoe").display().to_string();
    for action in ["kill", "refuse"] {
        for (option, value) in [("--slice", "5ms"), ("--tick", "1s")] {
            let run = [&*filter, action, &rcoe, "run", "-n", "2", option, value];
            let outcome = scene.run(&[&run[..], &["--", "true"]].concat());
            assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
            assert!(outcome.err().contains("timer_create"), "{}", outcome.err());
        }
        let run = [&*filter, action, &rcoe, "run", "-n", "2", "--", "true"];
        let outcome = scene.run(&run);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert!(outcome.err().contains("--slice off"), "{}", outcome.err());
    }
}

/// A process outside sends real-time signals of all numbers: they are the program's, and mean
/// nothing to rcoe.
#[test]
fn no_signal_of_others_is_a_request() {
    let scene = Scene::new();
    let program = scene.compile("count", include_str!("channel/count.c"), &[]);
    let queue = scene.compile("queue", include_str!("channel/queue.c"), &["-w"]);
    for replicas in ["1", "2", "3"] {
        let group = scene.start_group(&["-n", replicas], &[&program]);
        until_told(&group.running, "ready\n");
        let pid = group.running.pid().to_string();
        assert_eq!(scene.run(&[&queue, &pid]).ended, Ended::Exit(0));
        let (outcome, events) = group.finish();
        let what = format!("-n {replicas}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let signals = (34..=64).sum::<u64>() * (1 + 2 + 4 + 7 + 8 + 11);
        let count = 6 * (34..=64).count();
        let told = format!("ready\n{count} signals, {signals}\n");
        assert_eq!(outcome.out(), told, "{what}");
    }
}

fn until_told(run: &Running, text: &str) {
    until("the program", || {
        let told = run.stdout_so_far().expect("readable output");
        (told.contains(text) || run.has_ended()).then_some(())
    });
}

/// Descriptors of all processes that this one has made and whose parent it is.
fn made_by(parent: u32) -> Vec<OwnedFd> {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).expect("a list of children");
    let pids = children.split_ascii_whitespace();
    pids.map(|pid| {
        let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a number");
        pidfd_open(pid, PidfdFlags::empty()).expect("a process of the run")
    })
    .collect()
}

/// Waits until this process is gone.
fn until_gone(process: &OwnedFd) {
    until("the end of a process of a killed run", || {
        let mut ends = [PollFd::new(process, PollFlags::IN)];
        let soon = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        (poll(&mut ends, Some(&soon)) == Ok(1)).then_some(())
    });
}

#[test]
fn nothing_outlives_a_killed_rcoe() {
    for replicas in ["1", "2", "3"] {
        let scene = Scene::new();
        let program = scene.compile("linger", include_str!("channel/linger.c"), &["-pthread"]);
        let group = scene.start_group(&["-n", replicas], &[&program]);
        until_told(&group.running, "running\n");
        let supervisor = group.running.pid();
        let made = made_by(supervisor);
        let expected = 4 * replicas.parse::<usize>().expect("a number");
        assert!(made.len() >= expected, "{} of {expected}", made.len());
        signal(supervisor, Signal::KILL).unwrap();
        made.iter().for_each(until_gone);
        assert!(proc::session(supervisor).is_empty());
        let (outcome, events) = group.finish();
        assert_eq!(outcome.ended, Ended::Signal(9), "{events:?}");
    }
}

/// Changes the signal that the primary is about to ask for, once it has come to the vote on it.
fn change_signal(group: &Group, target: u64) {
    const SIGUSR1: u64 = 10;
    const SIGUSR2: u64 = 12;
    let primary = group.replicas[0];
    let stack = of_agent(primary, "RCOE_AGENT_STACK");
    // Argument by argument.
    let calls = until("the primary at the vote", || {
        let waits = proc::find(primary).is_some_and(|it| it.state == 'S');
        let mut calls = find(primary, stack, target);
        calls.retain(|&at| peek(primary, at + 8) == SIGUSR1);
        (waits && !calls.is_empty()).then_some(calls)
    });
    for at in calls {
        poke(primary, at + 8, &SIGUSR2.to_le_bytes()).expect("a living replica");
    }
}

/// The primary's arguments change after the vote and before it asks for the signal: the others
/// would ask for something else, so it is not sent.
#[test]
fn a_request_that_only_the_primary_would_make_is_not_carried_out() {
    let scene = Scene::new();
    let source = include_str!("channel/held.c");
    let program = scene.compile("held", source, &["-static", "-no-pie"]);
    let go = symbol(&program, "go");
    for replicas in ["2", "3"] {
        let options = ["-n", replicas, "--timeout", "30s", "--scrub", "off"];
        let group = scene.start_group(&options, &[&program]);
        until_told(&group.running, "\n");
        let told = group.running.stdout_so_far().expect("readable output");
        let child = told.trim().parse().expect("a process id");
        let release = |pid| poke(pid, go, &1_u64.to_le_bytes()).expect("a living replica");
        release(group.replicas[0]);
        change_signal(&group, child);
        group.replicas[1..].iter().copied().for_each(release);
        let (outcome, events) = group.finish();
        let what = format!("-n {replicas}: {} {events:?}", outcome.err());
        let (end, sent) = match replicas {
            "2" => (86, ""),
            _ => (0, "SIGUSR1\n"),
        };
        assert_eq!(outcome.out(), format!("{told}{sent}"), "{what}");
        assert_eq!(outcome.ended, Ended::Exit(end), "{what}");
        let differs = events.iter().find(|event| event["type"] == "divergence");
        let differs = differs.unwrap_or_else(|| panic!("no divergence: {what}"));
        assert_eq!(differs["kind"], "mismatch", "{what}");
        assert_eq!(outcome.survivors, 0, "{what}");
    }
}

//! A primary that is lost while it sends a signal: the signal arrives once.
//!
//! The supervisor is stopped when the signal is asked for, so that the loss comes at a known
//! moment: before the supervisor has done anything, or when the signal has arrived and the sender
//! has not been told.

use rcoe_tests::launch::{self, Ended, Running, signal};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, Scene, until};
use rustix::process::Signal;

/// When the primary is lost.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The request is on its way.
    Asked,
    /// The supervisor has answered it.
    Answered,
}

/// Waits until the process is in this state.
fn until_state(pid: u32, state: char) {
    until("the process to stop or end", || {
        proc::find(pid).filter(|process| process.state == state)
    });
}

/// Waits until the primary has asked the supervisor, which is stopped, for something: it sleeps on
/// one word, where a replica that waits for another has three.
fn until_asked(primary: u32) {
    const FUTEX_WAITV: &str = "449";
    until("a request", || {
        let call = std::fs::read_to_string(format!("/proc/{primary}/syscall")).ok()?;
        let mut words = call.split_ascii_whitespace();
        let waits = words.next() == Some(FUTEX_WAITV) && words.nth(1) == Some("0x1");
        waits.then_some(())
    });
}

/// Waits until the receiver tells this, or the run is over.
fn until_told(run: &Running, receiver: &Running, text: &str) {
    until("the receiver", || {
        let told = receiver.stdout_so_far().expect("readable output");
        (told.contains(text) || run.has_ended()).then_some(())
    });
}

/// Has the program send its signal, and loses the primary meanwhile. `arrives`: the signal does
/// when the request is answered.
fn lose_the_sender(
    scene: &Scene,
    group: &Group,
    receiver: &Running,
    moment: Moment,
    arrives: bool,
) {
    let (supervisor, primary) = (group.running.pid(), group.replicas[0]);
    signal(supervisor, Signal::STOP).unwrap();
    until_state(supervisor, 'T');
    std::fs::write(scene.path().join("go"), "x").unwrap();
    until_asked(primary);
    match moment {
        Moment::Asked => {
            signal(primary, Signal::KILL).unwrap();
            until_state(primary, 'Z');
            signal(supervisor, Signal::CONT).unwrap();
        }
        Moment::Answered => {
            signal(primary, Signal::STOP).unwrap();
            until_state(primary, 'T');
            signal(supervisor, Signal::CONT).unwrap();
            if arrives {
                until_told(&group.running, receiver, "got 1");
            }
            signal(primary, Signal::KILL).unwrap();
        }
    }
    until_told(&group.running, receiver, "got 1");
    let sent = scene.path().join("sent");
    until("the sender", || {
        (sent.exists() || group.running.has_ended()).then_some(())
    });
    scene.write("stop", "");
}

const OPTIONS: [&str; 4] = ["-n", "3", "--timeout", "30s"];

/// A process of the program sends its child a signal.
#[track_caller]
fn arrives_once(way: &str, to_itself: usize) {
    for moment in [Moment::Asked, Moment::Answered] {
        let scene = Scene::new();
        let program = scene.compile("send", include_str!("signalling/send.c"), &["-w"]);
        let _pipe = scene.make_pipe("go");
        let group = scene.start_group(&OPTIONS, &[&program, way]);
        until_told(&group.running, &group.running, "ready");
        if way == "pidfd" {
            let opened = scene.path().join("opened");
            until("a descriptor", || opened.exists().then_some(()));
        }
        lose_the_sender(&scene, &group, &group.running, moment, true);
        let (outcome, events) = group.finish();
        let what = format!("{way} {moment:?}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), "ready\ngot 1\nend 1\n", "{what}");
        let sent = std::fs::read_to_string(scene.path().join("sent")).unwrap();
        assert_eq!(sent, format!("0, {to_itself} to itself\n"), "{what}");
        assert!(events.iter().any(|it| it["type"] == "takeover"), "{what}");
    }
}

#[test]
fn a_signal_of_a_lost_primary_arrives_once() {
    arrives_once("kill", 0);
}

#[test]
fn a_signal_for_a_thread_arrives_once() {
    arrives_once("tgkill", 0);
}

#[test]
fn a_signal_with_a_value_arrives_once() {
    arrives_once("sigqueue", 0);
}

#[test]
fn a_signal_for_a_group_arrives_once_at_each() {
    arrives_once("group", 1);
}

#[test]
fn a_signal_through_a_descriptor_arrives_once() {
    arrives_once("pidfd", 0);
}

/// Outside the program the host sends it, but only once the supervisor has said so.
#[test]
fn a_signal_for_an_outsider_arrives_once_if_it_was_not_begun() {
    for moment in [Moment::Asked, Moment::Answered] {
        let scene = Scene::new();
        let program = scene.compile("send", include_str!("signalling/send.c"), &["-w"]);
        let _pipe = scene.make_pipe("go");
        let argv = [program.clone()];
        let receiver = launch::start(&argv, scene.path(), None).expect("a receiver");
        until_told(&receiver, &receiver, "ready");
        let to = receiver.pid().to_string();
        let group = scene.start_group(&OPTIONS, &[&program, "kill", &to]);
        lose_the_sender(&scene, &group, &receiver, moment, false);
        let (outcome, events) = group.finish();
        let what = format!("{moment:?}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let received = receiver.finish(rcoe_tests::rcoe::LIMIT).expect("its end");
        assert_eq!(received.out(), "ready\ngot 1\nend 1\n", "{what}");
    }
}

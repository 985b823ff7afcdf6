//! A replica that is lost or goes wrong while it computes: detected by two, masked by three.
//!
//! The program is that of [`rcoe_tests::victim`].

use rcoe_tests::launch::{Ended, Outcome, signal};
use rcoe_tests::memory::{of_agent, poke};
use rcoe_tests::rcoe::until;
use rcoe_tests::victim::Victim;
use rustix::process::Signal;
use serde_json::Value;

/// What is done to one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Kill,
    Stop,
    /// Sets this word of the victim to one.
    Word(&'static str),
    /// Makes the agent's code for system calls an invalid instruction.
    Agent,
}

/// Trials of the victim.
trait Trials {
    /// Harms replica `id` of a computing group and tells what came of it.
    fn harm(&self, options: &[&str], id: usize, harm: Harm) -> (Outcome, Vec<Value>);
    /// The harm must end the run, with nothing wrong let out.
    fn must_stop(&self, options: &[&str], id: usize, harm: Harm);
    /// The harm must cost a replica and nothing else.
    fn must_mask(&self, options: &[&str], id: usize, harm: Harm);
}

impl Trials for Victim {
    fn harm(&self, options: &[&str], id: usize, harm: Harm) -> (Outcome, Vec<Value>) {
        // Only what is awaited in vain needs the timeout: whoever is well must arrive within it.
        let timeout = match harm {
            Harm::Stop | Harm::Word("spin") => "2s",
            _ => "30s",
        };
        let group = self.start(&[&["--timeout", timeout], options].concat());
        let pid = group.replicas[id];
        match harm {
            Harm::Kill => signal(pid, Signal::KILL).unwrap(),
            Harm::Stop => signal(pid, Signal::STOP).unwrap(),
            Harm::Word(word) => self.set(pid, word).unwrap(),
            Harm::Agent => {
                let (entry, _) = of_agent(pid, "rcoe_system_call");
                poke(pid, entry, &[0x0f, 0x0b]).unwrap();
            }
        }
        self.release(&group);
        group.finish()
    }

    #[track_caller]
    fn must_stop(&self, options: &[&str], id: usize, harm: Harm) {
        let (outcome, events) = self.harm(options, id, harm);
        let what = format!("{options:?} {harm:?} of {id}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
        assert_eq!(outcome.out(), "ready\n", "{what}");
        assert!(outcome.err().starts_with("rcoe: "), "{what}");
        let divergence = of_type(&events, "divergence").expect("a divergence");
        assert!(fits(harm, divergence), "{what}");
        assert_eq!(
            of_type(&events, "stop").expect("a stop")["status"],
            86,
            "{what}"
        );
        assert!(of_type(&events, "downgrade").is_none(), "{what}");
    }

    #[track_caller]
    fn must_mask(&self, options: &[&str], id: usize, harm: Harm) {
        // A copy that is made before the replicas are let go is never told to.
        let options = [options, &["--no-reintegrate"]].concat();
        let (outcome, events) = self.harm(&options, id, harm);
        let what = format!("{options:?} {harm:?} of {id}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(5), "{what}");
        assert_eq!(outcome.out(), self.expected, "{what}");
        let divergence = of_type(&events, "divergence").expect("a divergence");
        assert!(fits(harm, divergence), "{what}");
        assert_eq!(divergence["replica"], id, "{what}");
        assert!(divergence["core"].is_u64(), "{what}");
        let downgrade = of_type(&events, "downgrade").expect("a downgrade");
        assert_eq!(downgrade["removed"], id, "{what}");
        assert_eq!(downgrade["primary"], usize::from(id == 0), "{what}");
        assert_eq!(
            of_type(&events, "stop").expect("a stop")["status"],
            5,
            "{what}"
        );
        assert!(outcome.err().contains(&format!("replica {id}")), "{what}");
    }
}

fn of_type<'a>(events: &'a [Value], name: &str) -> Option<&'a Value> {
    events.iter().find(|event| event["type"] == name)
}

/// Whether the divergence is told as what it was.
fn fits(harm: Harm, divergence: &Value) -> bool {
    let kind = divergence["kind"].as_str().unwrap_or_default();
    match harm {
        Harm::Kill => kind == "death",
        Harm::Stop | Harm::Word("spin") => kind == "timeout",
        Harm::Word("crash") => kind == "fault" || kind == "mismatch",
        Harm::Word(_) => kind == "mismatch",
        Harm::Agent => {
            let detail = divergence["detail"].as_str().unwrap_or_default();
            kind == "fault" && detail.starts_with("failed: signal 4 in the agent")
        }
    }
}

/// One kind of harm, to the primary and to a follower of two and of three.
macro_rules! harm {
    ($name:ident, $harm:expr) => {
        mod $name {
            use super::{Harm, Trials as _, Victim};

            #[test]
            fn to_the_primary_stops_two() {
                Victim::new().must_stop(&["-n", "2"], 0, $harm);
            }

            #[test]
            fn to_the_follower_stops_two() {
                Victim::new().must_stop(&["-n", "2"], 1, $harm);
            }

            #[test]
            fn to_the_primary_is_masked_by_three() {
                Victim::new().must_mask(&["-n", "3"], 0, $harm);
            }

            #[test]
            fn to_a_follower_is_masked_by_three() {
                Victim::new().must_mask(&["-n", "3"], 2, $harm);
            }

            #[test]
            fn stops_three_if_told_so() {
                Victim::new().must_stop(&["-n", "3", "--on-fault", "stop"], 1, $harm);
            }
        }
    };
}

harm!(killing, Harm::Kill);
harm!(stopping, Harm::Stop);
harm!(looping, Harm::Word("spin"));
harm!(a_wrong_value, Harm::Word("wrong"));
harm!(a_memory_fault, Harm::Word("crash"));

#[test]
fn an_agent_that_fails_stops_two_and_is_named() {
    for id in [0, 1] {
        Victim::new().must_stop(&["-n", "2"], id, Harm::Agent);
    }
}

#[test]
fn an_agent_that_fails_is_masked_by_three() {
    for id in [0, 2] {
        Victim::new().must_mask(&["-n", "3"], id, Harm::Agent);
    }
}
harm!(an_extra_call, Harm::Word("extra"));

#[test]
fn every_mode_of_comparison_detects_a_wrong_output() {
    let victim = Victim::new();
    for compare in ["io", "args", "every"] {
        victim.must_stop(&["-n", "2", "--compare", compare], 1, Harm::Word("wrong"));
        victim.must_mask(&["-n", "3", "--compare", compare], 1, Harm::Word("wrong"));
    }
}

#[test]
fn after_a_downgrade_a_second_fault_stops_the_run() {
    let victim = Victim::new();
    let group = victim.start(&["-n", "3"]);
    signal(group.replicas[2], Signal::KILL).unwrap();
    until("the downgrade", || {
        let events = rcoe_tests::rcoe::events_of(&group.events);
        of_type(&events, "downgrade").map(|_| ())
    });
    signal(group.replicas[0], Signal::KILL).unwrap();
    victim.release(&group);
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    assert_eq!(outcome.out(), "ready\n");
}

/// Two that wait for a third are told of its death before the run is stopped: they must not take
/// that for leave to go on.
#[test]
fn two_that_wait_for_a_lost_third_let_nothing_out_if_faults_stop() {
    let victim = Victim::new();
    for lost in [0, 1, 2] {
        let options = ["--timeout", "60s", "-n", "3", "--on-fault", "stop"];
        let group = victim.start(&options);
        let left = (0..3).filter(|&id| id != lost).map(|id| group.replicas[id]);
        for pid in left {
            victim.set(pid, "go").unwrap();
            until("a replica that waits", || is_asleep(pid).then_some(()));
        }
        signal(group.replicas[lost], Signal::KILL).unwrap();
        let (outcome, events) = group.finish();
        let what = format!("{lost}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
        assert_eq!(outcome.out(), "ready\n", "{what}");
    }
}

/// Whether the only thread of a process sleeps: the victim does so in a vote alone.
fn is_asleep(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind = status.rsplit(") ").next().unwrap();
    behind.starts_with('S')
}

/// Whoever is called away by the supervisor may be called again before it has seen to that, and
/// before it has seen to that in turn.
#[test]
fn calls_that_come_faster_than_they_are_seen_to_do_no_harm() {
    let victim = Victim::new();
    for options in [&["-n", "2"][..], &["-n", "2", "--tick", "1h"]] {
        let group = victim.start(options);
        for _ in 0..30_000 {
            // One that is gone is found out below.
            let _ = signal(group.replicas[1], Signal::STKFLT);
        }
        victim.release(&group);
        let (outcome, events) = group.finish();
        let what = format!("{options:?}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(5), "{what}");
        assert_eq!(outcome.out(), victim.expected, "{what}");
        assert!(of_type(&events, "divergence").is_none(), "{what}");
    }
}

#[test]
fn a_terminating_signal_to_one_replica_does_no_harm() {
    let victim = Victim::new();
    for (options, id) in [
        (["-n", "2"], 0),
        (["-n", "2"], 1),
        (["-n", "3"], 0),
        (["-n", "3"], 2),
    ] {
        for sent in [Signal::TERM, Signal::INT] {
            let group = victim.start(&options);
            signal(group.replicas[id], sent).unwrap();
            victim.release(&group);
            let (outcome, events) = group.finish();
            let what = format!(
                "{options:?} {id}: {:?} {} {events:?}",
                outcome.ended,
                outcome.err()
            );
            match outcome.ended {
                Ended::Exit(5) => assert_eq!(outcome.out(), victim.expected, "{what}"),
                Ended::Exit(86) | Ended::Signal(_) => {
                    assert_eq!(outcome.out(), "ready\n", "{what}")
                }
                _ => panic!("{what}"),
            }
        }
    }
}

//! The system sphere: what a lost replica is replaced by. A copy is made only of a replica that
//! holds what most of those left hold.

use rcoe_tests::launch::{self, Ended};
use rcoe_tests::machine::{OBJECTS, Reached, flip_text};
use rcoe_tests::rcoe::{events_of, until};
use rcoe_tests::sample::sampled;
use rustix::process::Signal;
use serde_json::Value;

/// A byte of object memory that nothing reads, in a partition: of the boot image's fourth word.
const UNUSED: usize = OBJECTS + 4096 + 24;

fn events(reached: &Reached) -> Vec<Value> {
    events_of(&reached.scene.path().join("e"))
}

fn has(events: &[Value], stage: &str, replica: usize) -> bool {
    let is = |event: &&Value| event["stage"] == stage && event["replica"] == replica;
    events.iter().any(|event| is(&event))
}

fn flip(reached: &Reached, replica: usize) {
    reached.change(replica, UNUSED, 1, |bytes| bytes[0] ^= 1);
}

/// One bit of this replica's output is wrong from here on.
fn lose(reached: &Reached, replica: usize) {
    reached.change(replica, OBJECTS, 4 << 20, |bytes| {
        flip_text(bytes, b"slept ");
    });
}

/// Ends the system from outside; nothing wrong may have come out of it.
fn end(reached: Reached) {
    launch::signal(reached.running.pid(), Signal::TERM).unwrap();
    let (outcome, _) = reached.finish();
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    let right: String = (1..=500)
        .map(|tens| format!("slept {tens}0 ticks\n"))
        .collect();
    assert!(right.starts_with(&outcome.out()), "{}", outcome.out());
}

#[test]
fn of_two_that_differ_none_is_copied() {
    let reached = Reached::start(&["-n", "3"], &["sleep", "5000"]);
    for flipped in sampled(vec![0, 2]) {
        flip(&reached, flipped);
        lose(&reached, 1);
        until("the two to find that they differ", || {
            let found = events(&reached);
            let last = found.iter().rev().find(|event| event["replica"] == 1)?;
            let differ = last["reason"] == "the replicas left differ in memory";
            (last["stage"] == "abandoned" && differ).then_some(())
        });
        // As soon as they are alike again, it is brought back.
        flip(&reached, flipped);
        until("the replica to be back", || {
            let found = events(&reached);
            let last = found.iter().rev().find(|event| event["replica"] == 1)?;
            (last["stage"] == "done").then_some(())
        });
    }
    end(reached);
}

#[test]
fn of_three_one_is_copied_that_has_what_most_have() {
    let reached = Reached::start(&["-n", "4"], &["sleep", "5000"]);
    // It would be the one to be copied, being the last.
    flip(&reached, 3);
    lose(&reached, 1);
    until("the replica to be back", || {
        has(&events(&reached), "done", 1).then_some(())
    });
    let found = events(&reached);
    assert!(has(&found, "differs", 3), "{found:?}");
    let bytes = [0, 1, 3].map(|replica| reached.byte(replica, UNUSED));
    assert_eq!(bytes, [bytes[0], bytes[0], bytes[0] ^ 1]);
    end(reached);
}

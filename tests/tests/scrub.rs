//! Flips that lie unused in one replica are found and repaired while the program goes on.

use std::fs::OpenOptions;
use std::io::Write as _;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::memory::{area, peek, poke, symbol};
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Writes lines until there is a file `stop`, and uses none of the memory named here.
const LINES: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n
volatile long data = 7;
const volatile long constant[1024] = { 7 };
volatile char *heap;
int main(void) {
  long i = 0;
  heap = malloc(100000);
  for (int at = 0; at < 100000; at++) heap[at] = 7;
  do {
    printf(\"%ld\\n\", i++);
    fflush(stdout);
    usleep(300);
  } while (access(\"stop\", F_OK) != 0);
  return 3;
}";

/// Waits in a read.
const READER: &str = "#include <unistd.h>\n
volatile long data = 7;
int main(void) {
  char c;
  write(1, \"0\\n\", 2);
  return read(0, &c, 1) == 1 ? 3 : 4;
}";

/// Starts a program that reads from the pipe `input`.
fn start(scene: &Scene, source: &str) -> (Group, String) {
    let program = scene.compile("program", source, &["-static", "-no-pie"]);
    let script = ["/bin/sh", "-c", "exec \"$0\" <input", &program];
    let group = scene.start_group(&["-n", "3", "--scrub", "64"], &script);
    until("output", || {
        let len = group.running.stdout_so_far().unwrap().len();
        (len > 0).then_some(())
    });
    (group, program)
}

fn repairs(group: &Group) -> Vec<Value> {
    let mut events = events_of(&group.events);
    events.retain(|event| event["type"] == "scrub");
    events
}

/// Flips a bit in one replica, and waits until it is as before.
fn flip(group: &Group, replica: usize, address: u64) {
    let pid = group.replicas[replica];
    let before = peek(pid, address);
    let seen = repairs(group).len();
    let flipped = before ^ 0x1000;
    poke(pid, address, &flipped.to_le_bytes()).unwrap();
    let event = until("the repair", || repairs(group).get(seen).cloned());
    assert_eq!(event["replica"], replica, "{event}");
    assert_eq!(event["repaired"], true, "{event}");
    assert_eq!(event["address"], address + 1, "{event}");
    assert_eq!(peek(pid, address), before);
}

#[test]
fn memory_of_every_kind_is_repaired_in_every_replica() {
    let scene = Scene::new();
    scene.write("input", "");
    let (group, program) = start(&scene, LINES);
    let pid = group.replicas[0];
    let heap = peek(pid, symbol(&program, "heap"));
    let (_, agent) = area(pid, &["r-xp", "rcoe-agent"]);
    let places = [
        symbol(&program, "data"),
        symbol(&program, "constant") + 4096,
        heap + 0x4320,
        agent - 8,
    ];
    for replica in 0..3 {
        for address in places {
            flip(&group, replica, address);
        }
    }
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
    let lines = outcome.out().lines().count();
    assert!(
        outcome
            .out()
            .lines()
            .eq((0..lines).map(|it| it.to_string()))
    );
    let counts = &events.last().unwrap()["counts"];
    assert_eq!(counts["repairs"], 12);
    assert_eq!(counts["divergences"], 0);
}

#[test]
fn an_idle_program_is_scrubbed_too() {
    let scene = Scene::new();
    // Open for both, so that nobody waits for the other end.
    let mut options = OpenOptions::new();
    let input = scene.make_pipe("input");
    let mut input = options.read(true).write(true).open(input).unwrap();
    let (group, program) = start(&scene, READER);
    for replica in [0, 2, 1] {
        flip(&group, replica, symbol(&program, "data"));
    }
    input.write_all(b"x").unwrap();
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
    assert_eq!(outcome.out(), "0\n");
}

/// Without scrubbing the flip would be in the only two that are left, and nobody could be copied.
#[test]
fn a_replica_can_be_brought_back_after_a_repair() {
    let scene = Scene::new();
    scene.write("input", "");
    let (group, program) = start(&scene, LINES);
    flip(&group, 1, symbol(&program, "data"));
    signal(group.replicas[2], Signal::KILL).unwrap();
    until("the replica to be back", || {
        let events = events_of(&group.events);
        let mut events = events.into_iter();
        events.find(|event| event["type"] == "reintegration" && event["stage"] == "done")
    });
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
    assert_eq!(events.last().unwrap()["counts"]["replicas"], 3);
}

#[test]
fn two_replicas_cannot_tell_who_is_right() {
    let scene = Scene::new();
    let outcome = scene.rcoe(&["run", "-n", "2", "--scrub", "8", "--", "true"]);
    assert_eq!(outcome.ended, Ended::Exit(125));
    assert!(outcome.err().contains("use -n 3"), "{}", outcome.err());
    for wrong in ["0", "x", "5000"] {
        let outcome = scene.rcoe(&["run", "-n", "3", "--scrub", wrong, "--", "true"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{wrong}");
    }
}

//! Of what was made to bring a replica back nothing is left when its process ends in the middle.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Makes children that end at once.
const BRIEF: &str = include_str!("leftovers/brief.c");
/// Children of which a replica was to be brought back.
const CHILDREN: usize = 40;

fn stages(group: &Group, stage: &str) -> Vec<Value> {
    let mut events = events_of(&group.events);
    events.retain(|event| event["type"] == "reintegration" && event["stage"] == stage);
    events
}

fn is_of_first(group: &Group, event: &Value) -> bool {
    event["process"] == group.running.pid()
}

/// Kills the first process's replica 1, and each copy of it, until so many children that lacked it
/// were to get one.
fn keep_it_away(group: &Group) {
    let mut seen = 0;
    signal(group.replicas[1], Signal::KILL).unwrap();
    until("copies of children", || {
        let copied = stages(group, "copied");
        let news = copied[seen..].iter();
        for copy in news.filter(|event| is_of_first(group, event)) {
            let pid = u32::try_from(copy["pid"].as_u64().unwrap()).unwrap();
            if proc::made_by(group.running.pid()).contains(&pid) {
                let _ = signal(pid, Signal::KILL);
            }
        }
        seen = copied.len();
        let begun = stages(group, "begun");
        let children = begun.iter().filter(|event| !is_of_first(group, event));
        (children.count() >= CHILDREN).then_some(())
    });
}

#[test]
fn children_that_end_while_they_are_copied_leave_nobody_behind() {
    let scene = Scene::new();
    let program = scene.compile("brief", BRIEF, &["-static"]);
    let group = scene.start_group(&["-n", "3", "--timeout", "30s"], &[&program]);
    keep_it_away(&group);
    scene.write("enough", "");
    until("three replicas and nobody else", || {
        (proc::made_by(group.running.pid()).len() == 3).then_some(())
    });
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(
        outcome.ended,
        Ended::Exit(3),
        "{} {events:?}",
        outcome.err()
    );
}

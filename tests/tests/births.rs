//! Children born while their parent lacks a replica, or while another replica than the first leads
//! it: they have the same replicas as their parent, each from its own, and get back who is missing.

use std::collections::BTreeSet;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::memory::{of_agent, poke, symbol};
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Numbers lines in turn with a child, which it has when there is a file `fork`.
const TOKEN: &str = include_str!("births/token.c");

/// What is changed in a replica stays so.
const UNSCRUBBED: [&str; 4] = ["-n", "3", "--scrub", "off"];

struct Run {
    scene: Scene,
    group: Group,
    program: String,
    /// Process ids of the first process's replicas.
    replicas: Vec<u32>,
}

impl Run {
    fn start(options: &[&str], arguments: &[&str]) -> Self {
        let scene = Scene::new();
        let program = scene.compile("token", TOKEN, &["-static", "-no-pie", "-w"]);
        let command = [&[program.as_str()], arguments].concat();
        let group = scene.start_group(options, &command);
        let run = Self {
            replicas: group.replicas.clone(),
            scene,
            group,
            program,
        };
        run.until_more_lines();
        run
    }

    fn until_more_lines(&self) {
        let lines = || self.group.running.stdout_so_far().unwrap().lines().count();
        let before = lines();
        until("more lines", || (lines() > before + 5).then_some(()));
    }

    fn stages(&self, stage: &str) -> Vec<Value> {
        let mut events = events_of(&self.group.events);
        events.retain(|event| event["type"] == "reintegration" && event["stage"] == stage);
        events
    }

    fn set(&self, replica: usize, word: &str) {
        let address = symbol(&self.program, word);
        poke(self.replicas[replica], address, &1_u64.to_le_bytes()).unwrap();
    }

    fn kill(&self, replica: usize) {
        signal(self.replicas[replica], Signal::KILL).unwrap();
    }

    /// Has the program make its child, and waits until that has told a number.
    fn fork(&self) {
        self.scene.write("fork", "");
        let born = self.scene.path().join("born");
        until("the child", || born.exists().then_some(()));
    }

    /// Kills a replica of the first process, and waits until it is back.
    fn replace(&mut self, replica: usize) {
        self.kill(replica);
        let done = until("the replica to be back", || self.stages("done").pop());
        assert_eq!(done["replica"], replica);
        self.replicas[replica] = u32::try_from(done["pid"].as_u64().unwrap()).unwrap();
    }

    /// Lets the program end, which must have told every number once.
    #[track_caller]
    fn finish(self) -> Vec<Value> {
        let (_, events) = self.group.finish_counting(&self.scene);
        events
    }
}

/// The replicas that these events tell of.
fn replicas_of(events: &[Value], kind: &str) -> Vec<u64> {
    let all = events.iter().filter(|event| event["type"] == kind);
    let name = if kind == "downgrade" {
        "removed"
    } else {
        "replica"
    };
    all.map(|event| event[name].as_u64().expect("a replica"))
        .collect()
}

/// A replica is lost that cannot come back as long as the other two differ, and then there is a
/// child.
#[track_caller]
fn comes_back_in_a_child(lost: usize, arguments: &[&str]) {
    let run = Run::start(&UNSCRUBBED, arguments);
    let odd = (lost + 1) % 3;
    run.set(odd, "unused");
    run.kill(lost);
    until("the refusal", || run.stages("abandoned").pop());
    run.fork();
    assert!(run.stages("done").is_empty());
    run.scene.write("mend", "");
    until("the replica to be back in both", || {
        let done = run.stages("done");
        let processes = done.iter().map(|event| event["process"].as_u64());
        (processes.collect::<BTreeSet<_>>().len() == 2).then_some(())
    });
    run.until_more_lines();
    let done = run.stages("done");
    assert!(
        done.iter().all(|event| event["replica"] == lost),
        "{done:?}"
    );
    let events = run.finish();
    let removed = replicas_of(&events, "downgrade");
    assert!(
        removed.iter().all(|&index| index == lost as u64),
        "{events:?}"
    );
    assert_eq!(events.last().unwrap()["counts"]["replicas"], 3);
}

#[test]
fn a_child_gets_back_whom_its_parent_lacked_at_its_birth() {
    for lost in [0, 1, 2] {
        comes_back_in_a_child(lost, &[]);
    }
}

#[test]
fn so_does_one_that_shares_memory() {
    for lost in [0, 1, 2] {
        comes_back_in_a_child(lost, &["shared"]);
    }
}

#[test]
fn what_is_wrong_in_one_replica_is_wrong_in_one_of_the_child_whoever_leads() {
    for odd in [0, 1, 2] {
        let mut run = Run::start(&UNSCRUBBED, &[]);
        run.replace(0);
        run.set(odd, "wrong");
        run.fork();
        run.until_more_lines();
        let events = run.finish();
        let removed = replicas_of(&events, "downgrade");
        assert_eq!(removed, [0, odd as u64], "{events:?}");
    }
}

/// Between the fork and its own first step a child has its parent's part in the protocol: what it
/// does wrong there must not be told as its parent's.
#[test]
fn a_child_that_goes_astray_before_its_birth_is_not_taken_for_its_parent() {
    let run = Run::start(&["-n", "2"], &[]);
    for &pid in &run.replicas {
        let (begin, _) = of_agent(pid, "become_replica");
        // Jumps to an address where nothing is.
        poke(pid, begin, &[0x31, 0xc0, 0xff, 0xe0]).unwrap();
    }
    run.scene.write("fork", "");
    let (outcome, events) = run.group.finish();
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    let divergence = events.iter().find(|event| event["type"] == "divergence");
    let detail = divergence.unwrap()["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("before birth"), "{detail}");
}

/// Times that replicas of the program had to ask the supervisor once more.
fn asked_again(scene: &Scene, script: &str) -> u64 {
    let outcome = scene.rcoe(&["run", "-n", "2", "--stats", "--", "sh", "-c", script]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let errors = outcome.err();
    let row = errors
        .lines()
        .find_map(|line| line.strip_prefix("requests made again"));
    let counts = row.expect("the counter").split_whitespace();
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

/// A child that forks at once asks before it is known. A request is made again when nothing has
/// come for long, which a machine with other work may be the reason for, but not every time.
#[test]
fn children_that_fork_at_once_are_heard() {
    const BIRTHS: u64 = 40;
    let scene = Scene::new();
    let body = "(echo x | cat) >/dev/null; i=$((i + 1))";
    let script = format!("i=0; while [ $i -lt {BIRTHS} ]; do {body}; done");
    let few = |_| asked_again(&scene, &script) <= BIRTHS / 10;
    assert!(
        (0..5).any(few),
        "requests of newborn children are heard when they are made again"
    );
}

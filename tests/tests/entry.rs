//! A flip in the primary after the vote on an effect, and before the kernel has taken the call.
//!
//! A helper stops the primary by ptrace at the last instruction before the call, flips a bit there
//! and lets it go on. A stop takes the CPU away, and that is when such flips happen.

use std::path::Path;

use rcoe_tests::launch::{self, Ended, Outcome, signal};
use rcoe_tests::memory::{of_agent, symbol};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, Scene, binary, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Numbers lines until there is a file `stop`.
const LINES: &str = "#include <stdio.h>\n#include <unistd.h>\n
char text[64];
int main(void) {
  long i = 0;
  do {
    int len = sprintf(text, \"%ld\\n\", i++);
    if (write(1, text, len) != len) return 4;
    usleep(300);
  } while (access(\"stop\", F_OK) != 0);
  return 3;
}";

const TO_FILE: [&str; 3] = ["/bin/sh", "-c", "exec \"$0\" >lines"];
const TO_PIPE: [&str; 3] = ["/bin/sh", "-c", "exec \"$0\""];
/// What the first process of the program starts, it waits for.
const AS_CHILD: [&str; 3] = ["/bin/sh", "-c", "\"$0\" >lines; exit $?"];

/// What is changed at the last instruction before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flip {
    /// The register that says how many bytes are written.
    Length,
    /// The first byte of the line.
    Content,
}

struct Trial {
    scene: Scene,
    program: String,
    inject: String,
}

impl Trial {
    fn new() -> Self {
        let scene = Scene::new();
        let program = scene.compile("program", LINES, &["-static", "-no-pie"]);
        let inject = scene.compile("inject", include_str!("entry/inject.c"), &["-w"]);
        Self {
            scene,
            program,
            inject,
        }
    }

    fn start(&self, replicas: &str, way: [&str; 3]) -> Group {
        let command = [&way[..], &[self.program.as_str()]].concat();
        self.scene
            .start_group(&["-n", replicas, "--timeout", "30s"], &command)
    }

    /// Flips in process `pid`, where the agent is about to make a call or comes to `address`.
    fn flip(&self, pid: u32, address: u64, flip: Flip) {
        let byte = match flip {
            Flip::Length => 0,
            Flip::Content => symbol(&self.program, "text"),
        };
        let words = [pid.to_string(), address.to_string(), byte.to_string()];
        let words = words.each_ref().map(String::as_str);
        let outcome = self
            .scene
            .run(&[&[self.inject.as_str()], &words[..]].concat());
        assert_eq!(outcome.out(), "flipped\n", "{}", outcome.err());
    }

    /// Where the process has told the kernel of a structure for restartable sequences; `None` if
    /// it is gone.
    fn structure(&self, pid: u32) -> Option<u64> {
        let outcome = self.scene.run(&[&self.inject, &pid.to_string()]);
        let told = outcome.out();
        (outcome.ended == Ended::Exit(0)).then(|| u64::from_str_radix(told.trim(), 16).unwrap())
    }

    /// Ends the program; what came of it.
    fn end(&self, group: Group) -> (Outcome, Vec<Value>) {
        self.scene.write("stop", "");
        group.finish()
    }

    fn lines(&self) -> String {
        std::fs::read_to_string(self.scene.path().join("lines")).unwrap_or_default()
    }
}

/// The program writes by now.
fn await_lines(what: impl Fn() -> String) {
    until("output", || (what().lines().count() > 3).then_some(()));
}

/// Numbers from 0 on, each once, but for the last line, which may be missing in part.
#[track_caller]
fn assert_counted(text: &str, whole: bool) {
    let count = text.lines().count();
    let expected: String = (0..count).map(|line| format!("{line}\n")).collect();
    assert!(expected.starts_with(text), "{text}");
    assert!(!whole || expected == text, "{text}");
}

fn has(events: &[Value], kind: &str) -> bool {
    events.iter().any(|event| event["type"] == kind)
}

#[test]
fn registers_that_were_hit_before_a_call_are_not_used() {
    for replicas in ["2", "3"] {
        let trial = Trial::new();
        let group = trial.start(replicas, TO_FILE);
        await_lines(|| trial.lines());
        for _ in 0..3 {
            trial.flip(group.replicas[0], 0, Flip::Length);
        }
        let (outcome, events) = trial.end(group);
        let what = format!("-n {replicas}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(3), "{what}");
        assert!(!has(&events, "divergence"), "{what}");
        assert_counted(&trial.lines(), true);
    }
}

#[test]
fn a_byte_that_was_hit_before_a_call_does_not_go_out() {
    for way in [TO_FILE, TO_PIPE] {
        let trial = Trial::new();
        let group = trial.start("2", way);
        let so_far = || trial.lines() + &group.running.stdout_so_far().unwrap();
        await_lines(so_far);
        trial.flip(group.replicas[0], 0, Flip::Content);
        let (outcome, events) = trial.end(group);
        let what = format!("{way:?}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
        assert_counted(&(trial.lines() + &outcome.out()), false);
    }
}

#[test]
fn a_successor_writes_what_was_right() {
    // The kernel keeps the result of what goes to a pipe, and a file shows it.
    for way in [TO_FILE, TO_PIPE] {
        let trial = Trial::new();
        let group = trial.start("3", way);
        let so_far = || trial.lines() + &group.running.stdout_so_far().unwrap();
        await_lines(so_far);
        trial.flip(group.replicas[0], 0, Flip::Content);
        until("the downgrade", || {
            has(&events_of(&group.events), "downgrade").then_some(())
        });
        let (outcome, events) = trial.end(group);
        let what = format!("{way:?}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(3), "{what}");
        assert_counted(&(trial.lines() + &outcome.out()), true);
    }
}

#[test]
fn children_copies_and_programs_executed_keep_the_structure() {
    let trial = Trial::new();
    let group = trial.start("3", AS_CHILD);
    await_lines(|| trial.lines());
    signal(group.replicas[0], Signal::KILL).unwrap();
    until("the copy", || {
        let mut told = events_of(&group.events).into_iter();
        told.find(|event| event["type"] == "reintegration" && event["stage"] == "done")
    });
    let (expected, _) = of_agent(group.replicas[1], "RCOE_RSEQ");
    let own = std::fs::read_link(format!("/proc/{}/exe", group.replicas[1])).unwrap();
    let runs_agent =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok() == Some(own.clone());
    let mut all = proc::made_by(group.running.pid());
    all.retain(runs_agent);
    let told: Vec<u64> = all.iter().filter_map(|pid| trial.structure(*pid)).collect();
    assert!(told.len() >= 6, "{all:?}: {told:?}");
    assert!(
        told.iter().all(|it| *it == expected),
        "{expected:x}: {told:x?}"
    );
    let (outcome, events) = trial.end(group);
    let what = format!("{} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(3), "{what}");
    assert_counted(&trial.lines(), true);
}

/// Starts two replicas where the kernel refuses restartable sequences.
fn start_refused(trial: &Trial, refuse: &str) -> Group {
    let events = trial.scene.path().join("events");
    let rcoe = binary().unwrap().display().to_string();
    let events_text = events.display().to_string();
    let options = [
        "run",
        "-n",
        "2",
        "--timeout",
        "30s",
        "--events",
        &events_text,
        "--",
    ];
    let argv = [
        &[refuse, rcoe.as_str()],
        &options[..],
        &TO_FILE,
        &[trial.program.as_str()],
    ];
    let argv: Vec<String> = argv.concat().into_iter().map(str::to_owned).collect();
    let running = launch::start(&argv, trial.scene.path(), None).unwrap();
    let replicas = until("the start event", || pids(&events));
    Group {
        running,
        replicas,
        events,
    }
}

fn pids(events: &Path) -> Option<Vec<u32>> {
    let told = events_of(events);
    let start = told.iter().find(|event| event["type"] == "start")?;
    let pid = |replica: &Value| replica["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    start["replicas"].as_array()?.iter().map(pid).collect()
}

#[test]
fn where_the_kernel_tells_nothing_all_is_looked_at_again() {
    let trial = Trial::new();
    let refuse = trial
        .scene
        .compile("refuse", include_str!("entry/refuse.c"), &["-w"]);
    let doctor = trial
        .scene
        .rcoe_by(&format!("exec {refuse} \"$@\""), &["doctor"]);
    let told = doctor.out();
    let mut lines = told.lines();
    let line = lines.find(|line| line.starts_with("restartable sequences"));
    assert!(line.is_some_and(|line| line.contains("limited")), "{told}");
    let group = start_refused(&trial, &refuse);
    await_lines(|| trial.lines());
    let pid = group.replicas[0];
    assert_eq!(trial.structure(pid), Some(0));
    // After the vote, before the look.
    let (look, _) = of_agent(pid, "agreed6insist");
    trial.flip(pid, look, Flip::Content);
    let (outcome, events) = trial.end(group);
    let what = format!("{} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
    assert_counted(&trial.lines(), false);
}

#[test]
fn what_the_agent_changes_for_a_call_is_no_fault() {
    let trial = Trial::new();
    let refuse = trial
        .scene
        .compile("refuse", include_str!("entry/refuse.c"), &["-w"]);
    let ids = trial
        .scene
        .compile("ids", include_str!("edges/ids.c"), &["-w"]);
    let script = format!("exec {refuse} \"$@\"");
    let native = trial.scene.like_native(&script, &[&ids]);
    assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
}

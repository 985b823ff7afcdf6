//! Flips that lie unused in one replica are found and repaired while the program goes on.

use std::fs::OpenOptions;
use std::io::Write as _;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::memory::{AGENT_CODE, area, find, of_agent, peek, poke, statics_of_agent, symbol};
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Writes lines until there is a file `stop`, and uses none of the memory named here.
const LINES: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n
volatile long data = 7;
const volatile long constant[1024] = { 7 };
volatile char *heap;
volatile long hot[512] __attribute__((aligned(4096)));
int main(void) {
  long i = 0;
  heap = malloc(100000);
  for (int at = 0; at < 100000; at++) heap[at] = 7;
  do {
    hot[0] = i;
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

/// Has a handler for a signal, a thread that waits with odd arguments, and a timer.
const KEEPER: &str = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <signal.h>\n
#include <stdio.h>\n#include <sys/signalfd.h>\n#include <sys/time.h>\n#include <unistd.h>\n
volatile sig_atomic_t caught, ticks;
void catch(int signal) { caught = signal; }
void tick(int signal) { ticks++; }
int wait_here[2];
void *wait(void *none) {
  char byte[4096];
  read(wait_here[0], byte, 0xabc);
  return none;
}
int main(void) {
  pthread_t thread;
  sigset_t set;
  char byte = 1;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  sigprocmask(SIG_BLOCK, &set, NULL);
  signalfd(-1, &set, 0);
  signal(SIGUSR1, catch);
  signal(SIGALRM, tick);
  struct itimerval often = { { 0, 3000 }, { 0, 3000 } };
  setitimer(ITIMER_REAL, &often, NULL);
  pipe(wait_here);
  pthread_create(&thread, NULL, wait, NULL);
  for (long i = 0; !caught; i++) {
    printf(\"%ld\\n\", i);
    fflush(stdout);
    usleep(300);
  }
  write(wait_here[1], &byte, 1);
  pthread_join(thread, NULL);
  return ticks ? caught : 0;
}";

/// Starts a program that reads from the pipe `input`.
fn start(scene: &Scene, source: &str) -> (Group, String) {
    start_with(scene, source, &["-n", "3", "--scrub", "64"])
}

fn start_with(scene: &Scene, source: &str, options: &[&str]) -> (Group, String) {
    let build = ["-static", "-no-pie", "-pthread"];
    let program = scene.compile("program", source, &build);
    let script = ["/bin/sh", "-c", "exec \"$0\" <input", &program];
    let group = scene.start_group(options, &script);
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
    let (_, agent) = area(pid, &["r-xp", AGENT_CODE]);
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

/// The same place twice: in between all memory was looked at.
fn pass(group: &Group, address: u64) {
    flip(group, 2, address);
    flip(group, 2, address);
}

#[test]
fn what_the_agent_knows_of_the_program_is_repaired() {
    let scene = Scene::new();
    scene.write("input", "");
    let (group, program) = start(&scene, KEEPER);
    let pid = group.replicas[0];
    let state = of_agent(pid, "6kernel6KERNEL17h");
    let threads = of_agent(pid, "7context5TABLE17h");
    let handler = symbol(&program, "catch");
    let arguments = || find(pid, threads, 0xabc);
    until("the thread to wait", || {
        (arguments().len() > 1).then_some(())
    });
    let mut places = arguments();
    places.extend(find(pid, state, handler));
    for replica in 0..3 {
        for &address in &places {
            flip(&group, replica, address);
        }
    }
    signal(group.running.pid(), Signal::USR1).unwrap();
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(10), "{events:?}");
    let counts = &events.last().unwrap()["counts"];
    assert_eq!(counts["repairs"], 3 * places.len(), "nothing else differs");
    assert_eq!(counts["divergences"], 0);
}

/// Children and threads come and go, with signals and timers.
const BUSY: &str = "import queue, select, signal, subprocess, threading, time
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
def work():
    while tasks.get() is not None:
        time.sleep(0.001)
tasks = queue.Queue()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
poll = select.epoll()
for i in range(300):
    tasks.put(i)
    poll.poll(0.002)
    if i % 20 == 0:
        subprocess.run(['/bin/sh', '-c', 'for i in 1 2 3; do echo $i | cat; done'])
signal.setitimer(signal.ITIMER_REAL, 0)
for thread in threads:
    tasks.put(None)
for thread in threads:
    thread.join()
print(len(ticks) > 0)
";

#[test]
fn nothing_differs_in_healthy_replicas() {
    let scene = Scene::new();
    let busy = scene.write("busy.py", BUSY).display().to_string();
    let shell = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i | cat | tr 1 2; done";
    let python = ["/usr/bin/python3", &busy];
    for command in [&["/bin/bash", "-c", shell][..], &python] {
        let group = scene.start_group(&["-n", "3", "--scrub", "1024"], command);
        let (outcome, events) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let repairs = events.iter().filter(|event| event["type"] == "scrub");
        assert_eq!(repairs.collect::<Vec<_>>(), Vec::<&Value>::new());
    }
}

/// Stops the supervisor, with no order under way; returns its process id.
fn hold(group: &Group) -> u32 {
    let supervisor = group.running.pid();
    signal(supervisor, Signal::STOP).unwrap();
    let lines = || group.running.stdout_so_far().unwrap().len();
    let before = lines();
    until("an order under way to be over", || {
        (lines() > before + 64).then_some(())
    });
    supervisor
}

#[test]
fn a_page_of_which_nobody_knows_is_told_once() {
    let scene = Scene::new();
    scene.write("input", "");
    let (group, program) = start(&scene, LINES);
    let (data, other) = (
        symbol(&program, "data"),
        symbol(&program, "constant") + 4096,
    );
    let supervisor = hold(&group);
    for (replica, byte) in [(0, 1), (1, 2)] {
        poke(group.replicas[replica], data, &[byte]).unwrap();
    }
    signal(supervisor, Signal::CONT).unwrap();
    let event = until("the page to be told", || repairs(&group).into_iter().next());
    assert_eq!(event["repaired"], false, "{event}");
    assert_eq!(event["replica"], Value::Null, "{event}");
    assert_eq!(event["address"], data & !4095, "{event}");
    pass(&group, other);
    let told = repairs(&group)
        .into_iter()
        .filter(|it| it["repaired"] == false);
    assert_eq!(told.count(), 1);
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
    assert!(
        outcome.err().contains("cannot be repaired"),
        "{}",
        outcome.err()
    );
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

/// A flip that comes to nothing in one of three, and the loss of another one before memory is
/// looked at again: what all three had there before tells which of the two is right.
#[test]
fn of_two_the_one_that_is_as_all_were_is_right() {
    for flipped in [0, 1] {
        let scene = Scene::new();
        scene.write("input", "");
        let (group, program) = start(&scene, LINES);
        let data = symbol(&program, "constant") + 4096;
        // One replica has the page for itself from then on, so it is looked at.
        flip(&group, 2, data);
        pass(&group, symbol(&program, "data"));
        let supervisor = hold(&group);
        let before = peek(group.replicas[flipped], data);
        poke(group.replicas[flipped], data, &[0x55]).unwrap();
        signal(group.replicas[2], Signal::KILL).unwrap();
        signal(supervisor, Signal::CONT).unwrap();
        until("the replica to be back", || {
            let events = events_of(&group.events);
            let mut events = events.into_iter();
            events.find(|event| event["type"] == "reintegration" && event["stage"] == "done")
        });
        assert_eq!(peek(group.replicas[flipped], data), before);
        let repair = repairs(&group).pop().unwrap();
        assert_eq!(repair["replica"], flipped, "{repair}");
        assert_eq!(repair["repaired"], true, "{repair}");
        assert_eq!(repair["address"], data, "{repair}");
        scene.write("stop", "");
        let (outcome, events) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
        assert_eq!(events.last().unwrap()["counts"]["replicas"], 3);
        let told = outcome.err();
        assert!(!told.contains("cannot be brought back"), "{told}");
    }
}

/// A flip in a page that the program has never written, and the loss of another replica before
/// anybody has looked there.
#[test]
fn of_two_the_one_that_has_never_written_is_right() {
    for (flipped, scrub) in [(0, "off"), (1, "off"), (0, "1")] {
        let scene = Scene::new();
        scene.write("input", "");
        let (group, program) = start_with(&scene, LINES, &["-n", "3", "--scrub", scrub]);
        let constant = symbol(&program, "constant") + 4096;
        let supervisor = hold(&group);
        let before = peek(group.replicas[flipped], constant);
        poke(group.replicas[flipped], constant, &[0x55]).unwrap();
        signal(group.replicas[2], Signal::KILL).unwrap();
        signal(supervisor, Signal::CONT).unwrap();
        until("the replica to be back", || {
            let events = events_of(&group.events);
            let mut events = events.into_iter();
            events.find(|event| event["type"] == "reintegration" && event["stage"] == "done")
        });
        assert_eq!(peek(group.replicas[flipped], constant), before);
        let repair = repairs(&group).pop().unwrap();
        assert_eq!(repair["replica"], flipped, "{repair}");
        assert_eq!(repair["address"], constant, "{repair}");
        scene.write("stop", "");
        let (outcome, events) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
        assert_eq!(events.last().unwrap()["counts"]["replicas"], 3);
    }
}

/// What all had when a copy was compared tells of each part of a page, so also in a page that the
/// program writes all the time.
#[test]
fn of_two_the_one_whose_part_of_a_page_is_as_all_had_it_is_right() {
    for flipped in [0, 1] {
        let scene = Scene::new();
        scene.write("input", "");
        let (group, program) = start_with(&scene, LINES, &["-n", "3", "--scrub", "off"]);
        let place = symbol(&program, "hot") + 8 * 300;
        let back = |count: usize| {
            until("the replica to be back", || {
                let mut events = events_of(&group.events);
                events.retain(|it| it["type"] == "reintegration" && it["stage"] == "done");
                (events.len() == count).then(|| events.pop().unwrap())
            })
        };
        signal(group.replicas[2], Signal::KILL).unwrap();
        let copy = u32::try_from(back(1)["pid"].as_u64().unwrap()).unwrap();
        let supervisor = hold(&group);
        poke(group.replicas[flipped], place, &[0x55]).unwrap();
        signal(copy, Signal::KILL).unwrap();
        signal(supervisor, Signal::CONT).unwrap();
        back(2);
        assert_eq!(peek(group.replicas[flipped], place), 0);
        let repair = repairs(&group).pop().unwrap();
        assert_eq!(repair["replica"], flipped, "{repair}");
        assert_eq!(repair["address"], place, "{repair}");
        scene.write("stop", "");
        let (outcome, events) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
    }
}

#[test]
fn memory_is_looked_at_without_being_asked_for() {
    let scene = Scene::new();
    scene.write("input", "");
    let (group, program) = start_with(&scene, LINES, &["-n", "3"]);
    flip(&group, 1, symbol(&program, "data"));
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
}

/// Statics of the agent that are alike in all replicas, by a part of their names. What is not named
/// here has to stand where replicas keep what is their own.
const ALIKE: [&str; 32] = [
    "context5TABLE17h",
    "exec5SAVED17h",
    "exec5GIVEN17h",
    "exec6PREFIX17h",
    "space5SPACE17h",
    "cpuid4ABLE17h",
    "cpuid7TRAPPED17h",
    "delivery10ZMM_HALVES17h",
    "cpuid7ANSWERS17h",
    "digest6HELPED17h",
    "detour5ASIDE17h",
    "known5KNOWN17h",
    "labels6LAYOUT17h",
    "context12DIRECT_BASES17h",
    "context6MAPPED17h",
    "delivery14EXTENDED_BYTES17h",
    "delivery17EXTENDED_FEATURES17h",
    "saved10COMPONENTS17h",
    "state6LAYOUT17h",
    "RCOE_GUARD_STACK",
    "RCOE_POINT",
    "RCOE_PROGRAM_STACK",
    "rseq7WATCHED17h",
    "rseq14BLIND_IN_CALLS17h",
    // Nobody writes these.
    "RCOE_SECTION",
    "5NEVER17h",
    // Constants with pointers in them.
    "rcoe_linux_syscalls5table",
    "ways8NOT_CALM17h",
    "ways5ALONE17h",
    "ways12ALONE_SIMPLE17h",
    "ways8TOGETHER17h",
    "ways15TOGETHER_SIMPLE17h",
];

#[test]
fn every_static_of_the_agent_is_alike_or_stands_with_what_is_ones_own() {
    let scene = Scene::new();
    scene.write("input", "");
    let (group, _) = start_with(&scene, LINES, &["-n", "3"]);
    let pid = group.replicas[0];
    let (state, _) = of_agent(pid, "6kernel6KERNEL17h");
    let (_, top) = of_agent(pid, "RCOE_AGENT_STACK");
    let written = statics_of_agent(pid);
    assert!(written.len() > ALIKE.len(), "{written:?}");
    let strange = |(name, address): &&(String, u64)| {
        let own = (state..top).contains(address);
        own == ALIKE.iter().any(|known| name.contains(known))
    };
    let strange: Vec<_> = written.iter().filter(strange).collect();
    assert!(strange.is_empty(), "{strange:?}");
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
}

#[test]
fn two_replicas_cannot_tell_who_is_right() {
    let scene = Scene::new();
    let outcome = scene.rcoe(&["run", "-n", "2", "--scrub", "8", "--", "true"]);
    assert_eq!(outcome.ended, Ended::Exit(125));
    assert!(outcome.err().contains("use -n 3"), "{}", outcome.err());
    for off in ["off", "0"] {
        let outcome = scene.rcoe(&["run", "-n", "2", "--scrub", off, "--", "true"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{off}");
    }
    for wrong in ["x", "-1", "5000"] {
        let outcome = scene.rcoe(&["run", "-n", "3", "--scrub", wrong, "--", "true"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{wrong}");
    }
}

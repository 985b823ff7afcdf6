//! The system sphere: whole systems in QEMU, with one to four replicas.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rcoe_tests::launch::{self, Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rcoe_tests::system::{image, system, words};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn one_to_four_replicas_print_the_same_once() {
    for replicas in ["1", "2", "3", "4"] {
        let scene = Scene::new();
        let outcome = system(&scene, &["-n", replicas, "--events", "e"], &["hello", "7"]);
        assert_eq!(outcome.ended, Ended::Exit(7), "{}", outcome.err());
        assert_eq!(outcome.out(), "hello from a replicated system\n");
        assert_eq!(outcome.err(), "");
        let events = events_of(&scene.path().join("e"));
        let kinds: Vec<&str> = events
            .iter()
            .filter_map(|event| event["type"].as_str())
            .collect();
        assert_eq!(kinds, ["start", "stop"], "{events:?}");
        let listed = events[0]["replicas"].as_array().unwrap().len();
        assert_eq!(listed.to_string(), replicas);
        assert_eq!(events[1]["status"], 7);
    }
}

#[test]
fn cores_may_have_threads_of_their_own() {
    let scene = Scene::new();
    let outcome = system(&scene, &["-n", "2", "--core-threads", "multi"], &["hello"]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), "hello from a replicated system\n");
}

#[test]
fn every_program_computes_the_same_replicated_or_not() {
    let scene = Scene::new();
    for program in [
        ["hash", "1"],
        ["float", "20"],
        ["copy", "1"],
        ["pingpong", "100"],
        ["sleep", "20"],
    ] {
        let base = system(&scene, &["-n", "1"], &program);
        assert_eq!(base.ended, Ended::Exit(0), "{program:?}: {}", base.err());
        assert!(!base.out().is_empty(), "{program:?}");
        let replicated = system(&scene, &["-n", "3"], &program);
        assert_eq!(
            replicated.ended,
            Ended::Exit(0),
            "{program:?}: {}",
            replicated.err()
        );
        assert_eq!(replicated.out(), base.out(), "{program:?}");
    }
}

#[test]
fn all_modes_of_comparison_run() {
    let scene = Scene::new();
    for mode in ["io", "args", "every"] {
        let outcome = system(&scene, &["-n", "2", "--compare", mode], &["pingpong", "50"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{mode}: {}", outcome.err());
    }
}

#[test]
fn faults_of_a_program_are_messages_to_the_root_task() {
    let scene = Scene::new();
    let cases = [
        ("0", 139, "no access to 0x10"),
        ("1", 139, "exception 0"),
        ("2", 139, "unknown system call 4711"),
        ("3", 139, "exception 13"),
        ("4", 101, "as asked"),
    ];
    for (argument, status, text) in cases {
        let outcome = system(&scene, &["-n", "2"], &["crash", argument]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(status),
            "{argument}: {}",
            outcome.err()
        );
        assert!(
            outcome.out().contains(text),
            "{argument}: {}",
            outcome.out()
        );
    }
}

#[test]
fn what_cannot_run_is_named() {
    let scene = Scene::new();
    let missing = system(&scene, &["-n", "1"], &["nonesuch"]);
    assert_eq!(missing.ended, Ended::Exit(127));
    assert!(missing.err().contains("nonesuch"), "{}", missing.err());
    scene.write("text", "no program");
    let text = system(&scene, &["-n", "1"], &["./text"]);
    assert_eq!(text.ended, Ended::Exit(126));
    assert!(text.err().contains("not a static"), "{}", text.err());
    let many = system(&scene, &["-n", "5"], &["hello"]);
    assert_eq!(many.ended, Ended::Exit(125));
    assert!(many.err().contains("at most 4"), "{}", many.err());
    let binary = rcoe_tests::rcoe::binary().unwrap();
    let binary = binary.to_str().unwrap();
    let run = ["run", "--sphere", "system", "--", "hello"];
    let nowhere = [&["env", "RCOE_SYSTEM_IMAGE=/nonexistent", binary], &run[..]].concat();
    let outcome = scene.run(&nowhere);
    assert_eq!(outcome.ended, Ended::Exit(125));
    assert!(
        outcome.err().contains("cargo xtask image"),
        "{}",
        outcome.err()
    );
    let image = format!("RCOE_SYSTEM_IMAGE={}", image().display());
    let bare = [&["env", "PATH=/nonexistent", &image, binary], &run[..]].concat();
    let bare: Vec<&str> = ["/usr/bin/env"]
        .into_iter()
        .chain(bare[1..].iter().copied())
        .collect();
    let outcome = scene.run(&bare);
    assert_eq!(outcome.ended, Ended::Exit(125));
    assert!(
        outcome.err().contains("apt-get install"),
        "{}",
        outcome.err()
    );
}

/// Bytes of a partition of the machine, and where the first one begins.
const PARTITION: usize = 32 << 20;
const FIRST: usize = 16 << 20;
/// Where in a partition object memory begins, and in it the root task's capabilities.
const OBJECTS: usize = 4 << 20;
const CAPABILITIES: usize = 512 << 10;

/// A running system whose memory can be reached.
struct Reached {
    scene: Scene,
    running: launch::Running,
}

impl Reached {
    /// Starts a program and waits for its first output.
    fn start(options: &[&str], command: &[&str]) -> Self {
        let scene = Scene::new();
        let memory = ["--memory-file", "memory", "--events", "e"];
        let words = words(&[&memory, options].concat(), command);
        let running = launch::start(&words, scene.path(), None).unwrap();
        until("the first output", || {
            running
                .stdout_so_far()
                .unwrap()
                .contains('\n')
                .then_some(())
        });
        Self { scene, running }
    }

    /// Stops the emulator, or lets it go on.
    fn signal(&self, signal: Signal) {
        let rcoe = self.running.pid();
        let children = format!("/proc/{rcoe}/task/{rcoe}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        for pid in children.split_whitespace() {
            let _ = launch::signal(pid.parse().unwrap(), signal);
        }
    }

    /// Changes bytes of a replica's partition, from `offset` on, by `change`, while the machine
    /// stands still.
    fn change(&self, replica: usize, offset: usize, len: usize, change: impl Fn(&mut [u8])) {
        self.signal(Signal::STOP);
        self.change_live(replica, offset, len, change);
        self.signal(Signal::CONT);
    }

    fn change_live(&self, replica: usize, offset: usize, len: usize, change: impl Fn(&mut [u8])) {
        let path = self.scene.path().join("memory");
        let file = File::options().read(true).write(true).open(path).unwrap();
        let at = u64::try_from(FIRST + replica * PARTITION + offset).unwrap();
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).unwrap();
        change(&mut bytes);
        file.write_all_at(&bytes, at).unwrap();
    }

    fn finish(self) -> (Outcome, Vec<Value>) {
        let outcome = self.running.finish(rcoe_tests::rcoe::LIMIT).unwrap();
        assert_eq!(outcome.survivors, 0, "nothing outlives rcoe");
        (outcome, events_of(&self.scene.path().join("e")))
    }
}

/// Flips a bit of every copy of a text in memory.
fn flip_text(bytes: &mut [u8], text: &[u8]) {
    let found: Vec<usize> = bytes
        .windows(text.len())
        .enumerate()
        .filter_map(|(at, window)| (window == text).then_some(at))
        .collect();
    assert!(!found.is_empty(), "the text is in memory");
    for at in found {
        bytes[at] ^= 1;
    }
}

/// What `sleep` prints in a hundred ticks, a second.
fn slept() -> String {
    (1..=10)
        .map(|tens| format!("slept {tens}0 ticks\n"))
        .collect()
}

/// Types of events, with the replica that was removed.
fn story(events: &[Value]) -> Vec<(String, Option<u64>)> {
    let told = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        (kind, event["removed"].as_u64())
    };
    events.iter().map(told).collect()
}

#[test]
fn three_replicas_mask_the_divergence_of_any_one() {
    for victim in 0..3_usize {
        let reached = Reached::start(&["-n", "3"], &["sleep", "100"]);
        reached.change(victim, OBJECTS, 4 << 20, |bytes| {
            flip_text(bytes, b"slept ");
        });
        let (outcome, events) = reached.finish();
        assert_eq!(outcome.ended, Ended::Exit(0), "{victim}: {}", outcome.err());
        assert_eq!(outcome.out(), slept(), "{victim}");
        let divergence = events
            .iter()
            .find(|event| event["type"] == "divergence")
            .unwrap();
        assert_eq!(divergence["replica"], victim);
        assert_eq!(divergence["kind"], "mismatch");
        let removed = u64::try_from(victim).unwrap();
        assert!(story(&events).contains(&("downgrade".to_owned(), Some(removed))));
        let back = events
            .iter()
            .find(|event| event["type"] == "reintegration")
            .unwrap();
        assert_eq!(
            (&back["replica"], &back["stage"]),
            (&victim.into(), &"done".into())
        );
        let takeover = events.iter().find(|event| event["type"] == "takeover");
        assert_eq!(
            takeover.map(|event| event["to"].clone()),
            (victim == 0).then(|| 1.into())
        );
        assert!(outcome.err().contains("is faulty"), "{}", outcome.err());
    }
}

#[test]
fn three_replicas_mask_a_kernel_that_breaks() {
    for victim in 0..3_usize {
        let reached = Reached::start(&["-n", "3"], &["sleep", "100"]);
        let capabilities = OBJECTS + CAPABILITIES;
        reached.change(victim, capabilities, 64 << 10, |bytes| bytes.fill(0xff));
        let (outcome, events) = reached.finish();
        assert_eq!(outcome.ended, Ended::Exit(0), "{victim}: {}", outcome.err());
        assert_eq!(outcome.out(), slept(), "{victim}");
        let divergence = events
            .iter()
            .find(|event| event["type"] == "divergence")
            .unwrap();
        assert_eq!(divergence["replica"], victim);
        assert_eq!(divergence["kind"], "fault", "{victim}: {}", outcome.err());
        assert!(
            outcome.err().contains("no capability has type 255"),
            "{}",
            outcome.err()
        );
    }
}

#[test]
fn two_replicas_stop_at_a_divergence() {
    for (victim, options) in [
        (0, ["-n", "2"]),
        (1, ["-n", "2"]),
        (1, ["-n3", "--on-fault=stop"]),
    ] {
        let reached = Reached::start(&options, &["sleep", "100"]);
        reached.change(victim, OBJECTS, 4 << 20, |bytes| {
            flip_text(bytes, b"slept ");
        });
        let (outcome, events) = reached.finish();
        assert_eq!(
            outcome.ended,
            Ended::Exit(86),
            "{victim}: {}",
            outcome.err()
        );
        assert!(slept().starts_with(&outcome.out()), "{}", outcome.out());
        assert_eq!(events.last().unwrap()["reason"], "fail-stop");
        assert!(
            outcome.err().contains("cannot be masked"),
            "{}",
            outcome.err()
        );
    }
}

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

#[test]
fn flipped_bits_never_lead_to_wrong_output() {
    // Enough for a look; campaigns belong into the fault lab.
    let seed = 0x5eed;
    let mut numbers = Numbers(seed);
    let right = slept();
    for index in 0..8 {
        let replicas = 2 + index % 2;
        let count = replicas.to_string();
        let victim = numbers.below(replicas);
        let reached = Reached::start(&["-n", &count], &["sleep", "100"]);
        // Kernel text and data, then objects and programs: what is in use, for the most part.
        let (from, len) = if numbers.below(3) == 0 {
            (0, 256 << 10)
        } else {
            (OBJECTS, 3 << 20)
        };
        reached.signal(Signal::STOP);
        for _ in 0..64 {
            let (at, bit) = (from + numbers.below(len), numbers.below(8));
            reached.change_live(victim, at, 1, |bytes| bytes[0] ^= 1 << bit);
        }
        reached.signal(Signal::CONT);
        let (outcome, events) = reached.finish();
        let what = format!("seed {seed:#x} index {index}: {} {events:?}", outcome.err());
        match outcome.ended {
            Ended::Exit(0) => assert_eq!(outcome.out(), right, "{what}"),
            Ended::Exit(86 | 125) => assert!(right.starts_with(&outcome.out()), "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// How many replicas have been brought back so far.
fn brought_back(reached: &Reached) -> usize {
    let events = events_of(&reached.scene.path().join("e"));
    let back = events.iter().filter(|event| event["stage"] == "done");
    back.count()
}

#[test]
fn each_replica_in_turn_is_lost_and_brought_back() {
    let reached = Reached::start(&["-n", "3"], &["sleep", "5000"]);
    for (cycle, victim) in [0, 1, 2, 0].into_iter().enumerate() {
        reached.change(victim, OBJECTS, 4 << 20, |bytes| {
            flip_text(bytes, b"slept ")
        });
        until("the replica to be back", || {
            (brought_back(&reached) == cycle + 1).then_some(())
        });
    }
    // Ended from outside, so that the test takes no longer than that took.
    let lines = reached.running.stdout_so_far().unwrap().lines().count();
    until("more output", || {
        (reached.running.stdout_so_far().unwrap().lines().count() > lines + 1).then_some(())
    });
    launch::signal(reached.running.pid(), Signal::TERM).unwrap();
    let (outcome, events) = reached.finish();
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    let right: String = (1..=500)
        .map(|tens| format!("slept {tens}0 ticks\n"))
        .collect();
    assert!(right.starts_with(&outcome.out()), "{}", outcome.out());
    let removed = story(&events)
        .into_iter()
        .filter_map(|(_, removed)| removed);
    assert_eq!(removed.collect::<Vec<_>>(), [0, 1, 2, 0]);
    let leads = |event: &Value| (event["type"] == "takeover").then(|| event["to"].as_u64());
    let leaders: Vec<Option<u64>> = events.iter().filter_map(leads).collect();
    assert_eq!(
        leaders,
        [Some(1), Some(0), Some(1)],
        "the lowest that lives leads"
    );
}

#[test]
fn a_lost_replica_stays_away_if_told() {
    let reached = Reached::start(&["-n", "3", "--no-reintegrate"], &["sleep", "100"]);
    reached.change(2, OBJECTS, 4 << 20, |bytes| flip_text(bytes, b"slept "));
    let (outcome, events) = reached.finish();
    assert_eq!((outcome.ended, outcome.out()), (Ended::Exit(0), slept()));
    assert!(events.iter().all(|event| event["type"] != "reintegration"));
    assert_eq!(events.last().unwrap()["counts"]["replicas"], 2);
}

#[test]
fn a_wild_store_of_a_kernel_reaches_no_other_replica() {
    for probe in ["sibling", "code", "window", "program"] {
        let scene = Scene::new();
        let mut words = words(&["-n", "3", "--events", "e"], &["sleep", "30"]);
        words.insert(1, format!("RCOE_SYSTEM_WORDS=probe={probe} victim=1"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let outcome = scene.run(&words);
        assert_eq!(outcome.ended, Ended::Exit(0), "{probe}: {}", outcome.err());
        assert!(
            slept().starts_with(&outcome.out()),
            "{probe}: {}",
            outcome.out()
        );
        assert!(
            outcome.err().contains("exception vector=14"),
            "{probe}: {}",
            outcome.err()
        );
        let events = events_of(&scene.path().join("e"));
        let divergence = events.iter().find(|event| event["type"] == "divergence");
        let divergence = divergence.unwrap_or_else(|| panic!("{probe}: {events:?}"));
        assert_eq!(
            (&divergence["replica"], &divergence["kind"]),
            (&1.into(), &"fault".into())
        );
    }
}

#[test]
fn a_lone_kernel_that_breaks_ends_the_machine() {
    let scene = Scene::new();
    let mut words = words(&["-n", "1"], &["sleep", "30"]);
    words.insert(1, "RCOE_SYSTEM_WORDS=probe=code victim=0".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = scene.run(&words);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    assert!(
        outcome.err().contains("exception vector=14"),
        "{}",
        outcome.err()
    );
}

#[test]
fn a_loss_is_noticed_while_the_others_compute() {
    let scene = Scene::new();
    for (replicas, victim, status) in [("3", "1", 0), ("3", "0", 0), ("2", "1", 86)] {
        let counted = ["--core-threads", "counted", "--tick", "1ms"];
        let options = ["-n", replicas, "--timeout", "50ms", "--events", "e"];
        // Computes for longer than all that takes, without a system call.
        let mut words = words(&[&options[..], &counted].concat(), &["float", "2000"]);
        words.insert(1, format!("RCOE_SYSTEM_WORDS=probe=code victim={victim}"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let outcome = scene.run(&words);
        assert_eq!(outcome.ended, Ended::Exit(status), "{}", outcome.err());
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().any(|event| event["stage"] == "done");
        assert_eq!(
            back,
            status == 0,
            "brought back before the program ends: {events:?}"
        );
    }
}

#[test]
fn the_removal_of_a_replica_is_measured() {
    let scene = Scene::new();
    for victim in ["0", "2"] {
        let options = ["-n", "3", "--core-threads", "counted", "--stats"];
        let mut words = words(&options, &["sleep", "30"]);
        words.insert(1, format!("RCOE_SYSTEM_WORDS=probe=astray victim={victim}"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let outcome = scene.run(&words);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let err = outcome.err();
        assert!(
            err.contains(&format!("replica {victim} is faulty (mismatch)")),
            "{err}"
        );
        assert!(err.contains("removals 1, cycles each "), "{err}");
        assert!(err.contains("interrupts "), "{err}");
    }
}

#[test]
fn a_counted_clock_and_counters_of_the_run_are_to_be_had() {
    let scene = Scene::new();
    let mut seen = Vec::new();
    for rounds in ["100", "200"] {
        let options = ["-n", "2", "--core-threads", "counted", "--stats"];
        let outcome = system(&scene, &options, &["pingpong", rounds]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let err = outcome.err();
        let (cycles, rest) = err
            .strip_prefix("cycles ")
            .unwrap()
            .split_once(", events ")
            .unwrap();
        let (events, _) = rest.split_once(", rendezvous ").unwrap();
        assert!(cycles.parse::<u64>().is_ok(), "{err}");
        seen.push(events.parse::<u64>().unwrap());
    }
    // A call and its reply are two system calls and two switches of threads at least.
    assert!(seen[1] >= seen[0] + 400, "{seen:?}");
}

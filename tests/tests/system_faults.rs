//! The system sphere under faults: replicas that diverge, break, or are stuck, are found out,
//! removed and brought back.

use rcoe_tests::launch::{self, Ended, Outcome};
use rcoe_tests::machine::{
    CAPABILITIES, OBJECTS, Reached, TABLES, flip_text, removed, slept, story,
};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{is_aarch64, system_with};
use rustix::process::Signal;
use serde_json::Value;

/// Runs a program while the kernel of replica `victim` does at its first tick what `probe` says.
fn probed(
    scene: &Scene,
    (probe, victim): (&str, usize),
    options: &[&str],
    command: &[&str],
) -> Outcome {
    let words = format!("probe={probe} victim={victim}");
    system_with(scene, &words, options, command)
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

/// A core can end all of the machine. One that wants that for no reason ends alone.
#[test]
fn a_kernel_that_calls_for_the_end_is_not_obeyed_where_others_go_on() {
    for victim in 0..3 {
        let scene = Scene::new();
        let options = ["-n", "3", "--events", "events"];
        let outcome = probed(&scene, ("stop", victim), &options, &["sleep", "100"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{victim}: {}", outcome.err());
        assert_eq!(outcome.out(), slept(), "{victim}");
        let err = outcome.err();
        assert!(err.contains("withdraws timeout"), "{err}");
        assert!(err.contains("is back as a copy"), "{err}");
    }
    let scene = Scene::new();
    let outcome = probed(&scene, ("stop", 1), &["-n", "2"], &["sleep", "100"]);
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
}

/// So does one that comes to where a machine that cannot start is refused, which would end all.
#[test]
fn a_kernel_that_refuses_to_start_anew_ends_alone() {
    for victim in 0..3 {
        let scene = Scene::new();
        let options = ["-n", "3", "--core-threads", "counted"];
        let outcome = probed(&scene, ("refuse", victim), &options, &["sleep", "100"]);
        let what = format!("{victim}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), slept(), "{what}");
        assert!(
            what.contains("a machine that has started is refused"),
            "{what}"
        );
    }
    let scene = Scene::new();
    let outcome = probed(&scene, ("refuse", 1), &["-n", "2"], &["sleep", "100"]);
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
}

/// So does one that takes others for removed, as a flipped register has it in the midst of a vote.
#[test]
fn a_kernel_that_takes_the_others_for_removed_is_the_one_that_is_removed() {
    for victim in 0..3 {
        let scene = Scene::new();
        // Counted, so that nobody is late because the host is busy.
        let options = ["-n", "3", "--core-threads", "counted", "--events", "e"];
        let outcome = probed(&scene, ("exclude", victim), &options, &["sleep", "100"]);
        let what = format!("{victim}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), slept(), "{what}");
        assert!(what.contains("withdraws broken"), "{what}");
        let events = events_of(&scene.path().join("e"));
        assert_eq!(removed(&events), [u64::try_from(victim).unwrap()], "{what}");
    }
}

/// Any core can stop any other, and all of the machine. One that comes to such a command for no
/// reason ends alone.
#[test]
fn a_kernel_that_gives_a_command_for_no_reason_is_the_one_that_is_removed() {
    let commands = [
        ("command", "commanded for no reason"),
        ("off", "switched off for no reason"),
    ];
    let each = commands.map(|command| (0..3).map(move |victim| (command, victim)));
    for ((probe, said), victim) in each.into_iter().flatten() {
        let scene = Scene::new();
        let options = ["-n", "3", "--events", "e"];
        let outcome = probed(&scene, (probe, victim), &options, &["sleep", "100"]);
        let what = format!("{probe} {victim}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), slept(), "{what}");
        assert!(what.contains(said), "{what}");
        let events = events_of(&scene.path().join("e"));
        assert_eq!(removed(&events), [u64::try_from(victim).unwrap()], "{what}");
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
        // One that is stuck may be waited for twice. A healthy one that is late ends well, too.
        let options = ["-n", &count, "--timeout", "5s"];
        let reached = Reached::start(&options, &["sleep", "100"]);
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
    assert_eq!(removed(&events), [0, 1, 2, 0]);
    let leads = |event: &Value| (event["type"] == "takeover").then(|| event["to"].as_u64());
    let leaders: Vec<Option<u64>> = events.iter().filter_map(leads).collect();
    assert_eq!(
        leaders,
        [Some(1), Some(0), Some(1)],
        "the lowest that lives leads"
    );
}

/// The victim of a probe is lost and comes back.
fn comes_back(probe: &str, options: &[&str]) {
    for victim in 0..3 {
        let scene = Scene::new();
        let options = [options, &["-n", "3"]].concat();
        let outcome = probed(&scene, (probe, victim), &options, &["sleep", "100"]);
        let what = format!("{probe} {victim}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), slept(), "{what}");
        let events = events_of(&scene.path().join("e"));
        assert_eq!(removed(&events), [u64::try_from(victim).unwrap()], "{what}");
        let back = events.iter().any(|event| event["stage"] == "done");
        assert!(back, "{what}: {events:?}");
    }
}

/// What the lost replica left in its place is not taken for the copy's: that it has ended.
#[test]
fn a_copy_whose_core_begins_late_is_waited_for() {
    comes_back("late", &["--events", "e"]);
}

/// Page tables and the loader's parameters are made anew for a copy.
#[test]
fn what_a_lost_replica_leaves_of_its_own_is_not_used() {
    comes_back("remains", &["--events", "e"]);
}

/// On AArch64 there is no reset for a core that masks everything: its replica stays lost.
#[test]
fn a_core_that_nothing_but_a_reset_stops_is_reset() {
    if !is_aarch64() {
        comes_back("deaf", &COUNTED);
    }
}

/// A PC's processor that can deliver no exception shuts down, and a board answers by a reset.
#[test]
fn a_core_that_shuts_down_is_no_end_of_the_machine() {
    if is_aarch64() {
        return;
    }
    comes_back("shutdown", &["--events", "e"]);
    comes_back("shutdown", &COUNTED);
    for (replicas, victim, status, said) in [
        ("2", 0, 86, "cannot be masked"),
        ("2", 1, 86, "cannot be masked"),
        ("1", 0, 125, "reset the machine"),
    ] {
        let scene = Scene::new();
        let options = ["-n", replicas, "--core-threads", "multi"];
        let outcome = probed(&scene, ("shutdown", victim), &options, &["sleep", "100"]);
        assert_eq!(outcome.ended, Ended::Exit(status), "{}", outcome.err());
        assert!(outcome.err().contains(said), "{}", outcome.err());
    }
}

/// Nothing of a kernel is mapped any more: neither its handlers nor a stack for them. (On AArch64
/// such a core faults for ever, and is missed.)
#[test]
fn a_kernel_without_page_tables_is_no_end_of_the_machine() {
    if is_aarch64() {
        return;
    }
    for victim in 0..3_usize {
        let reached = Reached::start(&["-n", "3"], &["sleep", "100"]);
        reached.change(victim, TABLES, OBJECTS - TABLES, |bytes| bytes.fill(0));
        let (outcome, events) = reached.finish();
        assert_eq!(outcome.ended, Ended::Exit(0), "{victim}: {}", outcome.err());
        assert_eq!(outcome.out(), slept(), "{victim}");
        assert_eq!(removed(&events), [u64::try_from(victim).unwrap()]);
    }
}

/// Both kernels are without tables: whoever shuts down first, the machine comes to an end.
#[test]
fn a_machine_without_replicas_ends() {
    if is_aarch64() {
        return;
    }
    let reached = Reached::start(&["-n", "2"], &["sleep", "5000"]);
    reached.signal(Signal::STOP);
    for replica in 0..2 {
        reached.change_live(replica, TABLES, OBJECTS - TABLES, |bytes| bytes.fill(0));
    }
    reached.signal(Signal::CONT);
    let (outcome, _) = reached.finish();
    let what = outcome.err();
    assert!(matches!(outcome.ended, Ended::Exit(86 | 125)), "{what}");
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

/// What a kernel tells of a store that is not allowed.
fn wild_store() -> &'static str {
    if is_aarch64() {
        "exception vector=37"
    } else {
        "exception vector=14"
    }
}

#[test]
fn a_wild_store_of_a_kernel_reaches_no_other_replica() {
    for probe in sampled(vec!["sibling", "code", "window", "program"]) {
        let scene = Scene::new();
        let options = ["-n", "3", "--events", "e"];
        let outcome = probed(&scene, (probe, 1), &options, &["sleep", "30"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{probe}: {}", outcome.err());
        assert!(
            slept().starts_with(&outcome.out()),
            "{probe}: {}",
            outcome.out()
        );
        assert!(
            outcome.err().contains(wild_store()),
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
    let outcome = probed(&scene, ("code", 0), &["-n", "1"], &["sleep", "30"]);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    assert!(outcome.err().contains(wild_store()), "{}", outcome.err());
}

/// A machine whose clock counts instructions, with short times.
const COUNTED: [&str; 8] = [
    "--core-threads",
    "counted",
    "--tick",
    "1ms",
    "--timeout",
    "50ms",
    "--events",
    "e",
];

#[test]
fn a_loss_is_noticed_while_the_others_compute() {
    let scene = Scene::new();
    for (replicas, victim, status) in sampled(vec![("3", 1, 0), ("3", 0, 0), ("2", 1, 86)]) {
        let options = [&COUNTED[..], &["-n", replicas]].concat();
        // Computes for longer than all that takes, without a system call.
        let outcome = probed(&scene, ("code", victim), &options, &["float", "2000"]);
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
fn a_kernel_that_is_stuck_with_interrupts_off_is_missed() {
    // Whoever is stuck, the others are idle or compute, and find it out by themselves.
    for (replicas, status) in [("2", 86), ("3", 0)] {
        for (probe, victim) in sampled(vec![("loop", 0), ("loop", 1), ("halt", 0), ("halt", 1)]) {
            for program in [["sleep", "10"], ["float", "1000"]] {
                let scene = Scene::new();
                let options = [&COUNTED[..], &["-n", replicas]].concat();
                let outcome = probed(&scene, (probe, victim), &options, &program);
                let what = format!("{replicas} {probe} {victim} {program:?}: {}", outcome.err());
                assert_eq!(outcome.ended, Ended::Exit(status), "{what}");
                let events = events_of(&scene.path().join("e"));
                let divergence = events.iter().find(|event| event["type"] == "divergence");
                let divergence = divergence.unwrap_or_else(|| panic!("{what}: {events:?}"));
                assert_eq!(divergence["kind"], "timeout", "{what}");
            }
        }
    }
}

#[test]
fn an_address_space_without_a_kernel_is_not_entered() {
    for (replicas, victim, status, probe) in sampled(vec![
        ("2", 1, 86, "spaces"),
        ("3", 0, 0, "spaces"),
        ("3", 2, 0, "base"),
    ]) {
        let scene = Scene::new();
        let options = ["-n", replicas, "--events", "e"];
        let outcome = probed(&scene, (probe, victim), &options, &["sleep", "30"]);
        let what = format!("{replicas} {victim} {probe}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(status), "{what}");
        assert!(slept().starts_with(&outcome.out()), "{what}");
        let events = events_of(&scene.path().join("e"));
        let divergence = events.iter().find(|event| event["type"] == "divergence");
        let divergence = divergence.unwrap_or_else(|| panic!("{what}: {events:?}"));
        let (replica, kind) = (&divergence["replica"], &divergence["kind"]);
        assert_eq!((replica, kind), (&victim.into(), &"fault".into()), "{what}");
        assert!(what.contains("does not map the kernel"), "{what}");
    }
}

#[test]
fn removal_and_return_of_a_replica_are_measured() {
    let scene = Scene::new();
    for victim in sampled(vec![0, 2]) {
        let options = ["-n", "3", "--core-threads", "counted", "--stats"];
        let outcome = probed(&scene, ("astray", victim), &options, &["sleep", "30"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let err = outcome.err();
        assert!(
            err.contains(&format!("replica {victim} is faulty (mismatch)")),
            "{err}"
        );
        assert!(err.contains("removals 1, cycles each "), "{err}");
        assert!(err.contains("copies 1, cycles each "), "{err}");
        assert!(err.contains("interrupts "), "{err}");
    }
}

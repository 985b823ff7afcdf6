//! The system sphere: replicas that are preempted at one instruction (close coupling), so that
//! programs may race.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{image, system, system_with, words};

/// Machines whose replicas can be coupled closely: a counter of instructions for all cores, which
/// take turns; and one of branches for each.
const MACHINES: [&str; 2] = ["aarch64", "x86_64"];

fn close(scene: &Scene, arch: &str, words: &str, options: &[&str], command: &[&str]) -> Outcome {
    let options = [&["--arch", arch, "--coupling", "close"], options].concat();
    system_with(scene, words, &options, command)
}

/// Rounds in which additions were lost, by what the race program prints.
fn raced(outcome: &Outcome) -> u64 {
    let out = outcome.out();
    let words: Vec<&str> = out.split(' ').collect();
    let at = words.iter().position(|&word| word == "rounds,");
    let count = at.and_then(|at| words.get(at + 1)?.parse().ok());
    count.unwrap_or_else(|| panic!("{out:?} {}", outcome.err()))
}

/// DSN'19, V-A1. That programs race shows in the additions that are lost; that they race alike, in
/// that the trace, which holds what each round came to, is the same.
#[track_caller]
fn race_alike(arch: &str, cases: &[(&str, &str, &str, &str, &str)]) {
    let scene = Scene::new();
    for (replicas, mode, tick, how, words) in sampled(cases.to_vec()) {
        let options = ["-n", replicas, "--compare", mode, "--tick", tick];
        let options = [&options[..], &["--stop-by", how]].concat();
        let outcome = close(&scene, arch, words, &options, &["race", "60"]);
        let what = format!("{arch} {options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
        assert!(raced(&outcome) > 0, "{what}");
    }
}

#[test]
fn replicas_race_alike() {
    race_alike(
        "aarch64",
        &[
            ("1", "args", "200us", "counter", ""),
            ("2", "args", "200us", "counter", ""),
            ("2", "args", "200us", "breakpoint", "verify=yes"),
            ("2", "every", "300us", "counter", ""),
            ("2", "io", "500us", "counter", "verify=yes"),
            ("3", "args", "200us", "counter", "verify=yes"),
            ("3", "every", "400us", "breakpoint", ""),
            ("3", "io", "1ms", "counter", ""),
            ("4", "args", "300us", "breakpoint", ""),
        ],
    );
}

#[test]
fn replicas_whose_branches_are_counted_race_alike() {
    race_alike(
        "x86_64",
        &[
            ("1", "args", "200us", "counter", ""),
            ("2", "args", "200us", "counter", "verify=yes"),
            ("2", "args", "200us", "breakpoint", "verify=yes"),
            ("2", "every", "300us", "breakpoint", ""),
            ("3", "args", "200us", "counter", "verify=yes"),
            ("3", "every", "300us", "breakpoint", ""),
            ("3", "io", "200us", "counter", ""),
            ("4", "args", "200us", "counter", ""),
        ],
    );
}

/// What real counters are like: interrupts are late, some more than is allowed for, and far
/// branches are in the count. Whoever was stopped too late is the next target.
#[test]
fn replicas_whose_counters_are_late_race_alike() {
    race_alike(
        "x86_64",
        &[
            ("2", "args", "200us", "counter", "counter=late verify=yes"),
            ("3", "every", "300us", "breakpoint", "counter=late"),
            ("3", "args", "200us", "counter", "counter=late verify=yes"),
        ],
    );
}

/// Where branches are counted each core is by itself, so the clock need not count, and cores need
/// not take turns.
#[test]
fn cores_that_are_counted_one_by_one_run_at_once() {
    let scene = Scene::new();
    for (replicas, threads, how) in [
        ("2", "single", "counter"),
        ("2", "multi", "breakpoint"),
        ("3", "multi", "counter"),
    ] {
        let options = ["-n", replicas, "--core-threads", threads, "--tick", "5ms"];
        let options = [&options[..], &["--stop-by", how]].concat();
        let outcome = close(&scene, "x86_64", "verify=yes", &options, &["race", "60"]);
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

/// The same program with replicas that are preempted at one event each: they lose different
/// additions, sooner or later.
#[test]
fn loosely_coupled_replicas_race_apart() {
    let scene = Scene::new();
    for arch in MACHINES {
        let diverged = |tick: &&str| {
            let options = ["--arch", arch, "--core-threads", "counted", "-n", "2"];
            let options = [&options[..], &["--tick", tick]].concat();
            let outcome = system(&scene, &options, &["race", "200"]);
            outcome.ended == Ended::Exit(86) && outcome.err().contains("mismatch")
        };
        let apart = ["200us", "250us", "300us", "350us"].iter().any(diverged);
        assert!(apart, "{arch}");
    }
}

/// Programs that do not race run as ever, among them drivers that are told who is the primary,
/// threads that are stepped, what takes the kernel many steps, and instructions that repeat
/// themselves, in which no point can be where branches are counted.
#[test]
fn what_does_not_race_runs_as_ever() {
    let scene = Scene::new();
    for (arch, command) in sampled(vec![
        ("aarch64", &["hash"][..]),
        ("aarch64", &["clock"]),
        ("aarch64", &["copy"]),
        ("aarch64", &["float"]),
        ("aarch64", &["foreign"]),
        ("aarch64", &["large"]),
        ("aarch64", &["ledger"]),
        ("aarch64", &["long"]),
        ("aarch64", &["pingpong"]),
        ("aarch64", &["pipeline"]),
        ("aarch64", &["sleep"]),
        ("x86_64", &["clock"]),
        ("x86_64", &["copy"]),
        ("x86_64", &["float"]),
        ("x86_64", &["foreign"]),
        ("x86_64", &["hpet"]),
        ("x86_64", &["large"]),
        ("x86_64", &["pingpong"]),
        ("x86_64", &["sieve"]),
        ("x86_64", &["sleep"]),
    ]) {
        let plain = ["--arch", arch, "-n", "1", "--tick", "500us"];
        let plain = system(&scene, &plain, command);
        for (replicas, how) in [("2", "breakpoint"), ("3", "counter")] {
            let options = ["-n", replicas, "--tick", "500us", "--stop-by", how];
            let outcome = close(&scene, arch, "", &options, command);
            let what = format!("{arch} {command:?} {replicas}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), plain.out(), "{what}");
        }
    }
}

/// Rounds in which additions are lost, at least, where a thousand ticks or so come. How many that
/// are depends on which instructions ticks fall on, and each build has others: from nine to 185.
const RACED: u64 = 4;

/// Whoever is lost, and whatever has become of its core, the others go on, and it comes back, with
/// all that interrupts it: ticks preempt as often as before.
#[test]
fn replicas_that_are_lost_while_programs_race_come_back() {
    let scene = Scene::new();
    for (arch, probe, victim) in sampled(vec![
        ("aarch64", "astray", "0"),
        ("aarch64", "astray", "2"),
        ("aarch64", "sudden", "0"),
        ("aarch64", "sudden", "1"),
        ("aarch64", "halt", "0"),
        ("aarch64", "halt", "2"),
        ("aarch64", "loop", "1"),
        ("x86_64", "astray", "0"),
        ("x86_64", "sudden", "1"),
        ("x86_64", "halt", "0"),
        ("x86_64", "loop", "2"),
        ("x86_64", "astray counter=late", "0"),
        ("x86_64", "sudden counter=late", "2"),
    ]) {
        let words = format!("probe={probe} victim={victim}");
        let options = [
            "-n",
            "3",
            "--tick",
            "1ms",
            "--timeout",
            "100ms",
            "--events",
            "e",
        ];
        let outcome = close(&scene, arch, &words, &options, &["race", "400"]);
        let what = format!("{arch} {words}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        assert_eq!(back.count(), 1, "{what} {events:?}");
        assert_eq!(events[0]["coupling"], "close", "{what}");
        assert!(raced(&outcome) >= RACED, "{what} {}", outcome.out());
    }
}

/// Of two replicas, one that goes astray stops both.
#[test]
fn of_two_none_goes_on_alone() {
    let scene = Scene::new();
    for (arch, probe, why) in [
        ("aarch64", "astray", "mismatch"),
        ("aarch64", "halt", "timeout"),
        ("x86_64", "astray", "mismatch"),
        ("x86_64", "halt", "timeout"),
    ] {
        let words = format!("probe={probe} victim=1");
        let options = ["-n", "2", "--tick", "1ms", "--timeout", "100ms"];
        let outcome = close(&scene, arch, &words, &options, &["race", "400"]);
        assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
        assert!(outcome.err().contains(why), "{}", outcome.err());
    }
}

/// The counter of branches is a plugin of the emulator: without it nobody is coupled loosely
/// instead.
#[test]
fn without_the_plugin_it_is_said_what_to_do() {
    let scene = Scene::new();
    let kernel = scene.path().join("rcoe-kernel");
    for file in std::fs::read_dir(image()).unwrap() {
        let file = file.unwrap().path();
        if file.is_file() && file.extension().is_none() {
            std::fs::copy(&file, kernel.with_file_name(file.file_name().unwrap())).unwrap();
        }
    }
    let options = ["--arch", "x86_64", "--coupling", "close"];
    let mut words = words(&options, &["hello"]);
    words[1] = format!("RCOE_SYSTEM_IMAGE={}", scene.path().display());
    let outcome = scene.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    for part in [
        "librcoe_counter.so",
        "cargo xtask image",
        "--coupling loose",
    ] {
        assert!(outcome.err().contains(part), "{}", outcome.err());
    }
}

/// An emulator that was built without plugins says no more than this.
#[test]
fn an_emulator_without_plugins_is_told() {
    let scene = Scene::new();
    let emulator = scene.path().join("qemu-system-x86_64");
    let says = "#!/bin/sh\necho \"$0: plugin interface not enabled in this build\" >&2\nexit 1\n";
    std::fs::write(&emulator, says).unwrap();
    std::fs::set_permissions(&emulator, Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let options = ["--arch", "x86_64", "--coupling", "close"];
    let mut words = words(&options, &["hello"]);
    words.insert(1, format!("PATH={}:{path}", scene.path().display()));
    let outcome = scene.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    for part in [
        "plugin interface not enabled",
        "built with plugins",
        "--coupling loose",
    ] {
        assert!(outcome.err().contains(part), "{}", outcome.err());
    }
}

/// Bits that flip in a register in which a program counts that makes no call: closely coupled
/// replicas notice at the next tick, whose point they are to come to, others at the program's end.
#[test]
fn a_flip_in_a_loop_is_noticed_at_a_tick() {
    let scene = Scene::new();
    for (arch, register, at) in [("x86_64", 2, 20_000_000), ("aarch64", 9, 1_250_000)] {
        let words = format!("flip={at} behind=300 victim=1 register={register} bit=4");
        let options = ["--arch", arch, "--core-threads", "counted", "--tick", "1ms"];
        let options = [&options[..], &["--stats", "--no-reintegrate", "-n"]].concat();
        let noticed = |replicas: &str, coupling: &str| {
            let options = [&options[..], &[replicas, "--coupling", coupling]].concat();
            let outcome = system_with(&scene, &words, &options, &["float", "2000"]);
            let text = outcome.err().to_owned();
            let mut lines = text.lines();
            let rest = lines.find_map(|it| it.strip_prefix("flips 1, cycles until noticed "));
            let cycles = rest.unwrap_or_else(|| panic!("{arch} {coupling}: {text}"));
            (outcome.ended, cycles.parse::<u64>().unwrap())
        };
        let (ended, close) = noticed("2", "close");
        assert_eq!(ended, Ended::Exit(86), "{arch}");
        let (ended, loose) = noticed("2", "loose");
        assert_eq!(ended, Ended::Exit(86), "{arch}");
        assert!(close * 4 < loose, "{arch}: {close} and {loose}");
        let (ended, _) = noticed("3", "close");
        assert_eq!(ended, Ended::Exit(0), "{arch}: one of three is voted out");
    }
}

#[test]
fn what_cannot_be_coupled_closely_is_refused() {
    let scene = Scene::new();
    for (options, why) in [
        (&["--stop-by", "breakpoint"][..], "add --coupling close"),
        (
            &[
                "--coupling",
                "close",
                "--arch",
                "aarch64",
                "--core-threads",
                "multi",
            ],
            "leave out --core-threads",
        ),
    ] {
        let outcome = system(&scene, options, &["hello"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
        assert!(outcome.err().contains(why), "{}", outcome.err());
    }
}

/// Without the plugin it is the processor that has to count, and an emulated one does not.
#[test]
fn a_processor_that_does_not_count_is_refused_by_what_it_lacks() {
    let scene = Scene::new();
    let outcome = close(&scene, "x86_64", "counter=processor", &[], &["hello"]);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    let why = "cannot count for close coupling: it has no counters of events";
    assert!(outcome.err().contains(why), "{}", outcome.err());
}

//! The system sphere: whole systems in QEMU, with one to four replicas.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::system::{image, is_aarch64, system};

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
    let privileged = if is_aarch64() { "24" } else { "13" };
    let privileged = format!("exception {privileged}");
    let cases = [
        ("0", 139, "no access to 0x10"),
        ("1", 139, "exception 0"),
        ("2", 139, "unknown system call 4711"),
        ("3", 139, &privileged),
        ("4", 101, "as asked"),
    ];
    for (argument, status, text) in cases {
        if is_aarch64() && argument == "1" {
            // A division by zero is no fault there.
            continue;
        }
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
    assert!(text.err().contains("64-bit ELF program"), "{}", text.err());
    let many = system(&scene, &["-n", "5"], &["hello"]);
    assert_eq!(many.ended, Ended::Exit(125));
    assert!(many.err().contains("at most 4"), "{}", many.err());
    let wired = system(
        &scene,
        &["-n", "1", "--arch", "x86_64", "--wire", "."],
        &["hello"],
    );
    assert_eq!(wired.ended, Ended::Exit(125));
    let err = wired.err();
    assert!(
        err.contains("--wire .: the machine has no network: add --publish"),
        "{err}"
    );
    let card = system(&scene, &["-n", "1", "--nic", "virtio"], &["hello"]);
    assert_eq!(card.ended, Ended::Exit(125));
    let err = card.err();
    assert!(err.contains("--nic: the machine has no network"), "{err}");
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

/// A command and a kernel that were built from different sources may not understand each other: the
/// one might not hear that the other has lost a replica.
#[test]
fn an_image_of_another_build_is_refused() {
    let scene = Scene::new();
    let copy = scene.path().join("image");
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(image()).unwrap() {
        let file = file.unwrap().path();
        if file.is_file() {
            std::fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
        }
    }
    let image = format!("RCOE_SYSTEM_IMAGE={}", copy.display());
    let binary = rcoe_tests::rcoe::binary().unwrap();
    let options = ["run", "--sphere", "system", "--arch", "x86_64", "-n", "1"];
    let start = [&["env", &image, binary.to_str().unwrap()], &options[..]].concat();
    let hello = [&start[..], &["--", "hello"]].concat();
    let outcome = scene.run(&hello);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    // The section that tells the build becomes one that nobody looks for.
    let kernel = copy.join("rcoe-kernel");
    let good = std::fs::read(&kernel).unwrap();
    let mut bad = good.clone();
    let at = good
        .windows(11)
        .position(|it| it == b".rcoe.build")
        .expect("a section's name");
    bad[at + 1] = b'R';
    std::fs::write(&kernel, &bad).unwrap();
    let outcome = scene.run(&hello);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    let refused = outcome.err();
    assert!(refused.contains("does not say which"), "{refused}");
    assert!(refused.contains("cargo xtask image"), "{refused}");
    let (_, own) = refused.split_once("of build ").expect("the command's own");
    // Or it tells another one.
    let mut bad = good.clone();
    let own = own.as_bytes()[..16].to_vec();
    let at = good
        .windows(16)
        .position(|it| it == own)
        .expect("the same build");
    bad[at] = if own[0] == b'0' { b'1' } else { b'0' };
    std::fs::write(&kernel, &bad).unwrap();
    let outcome = scene.run(&hello);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    let other = String::from_utf8(bad[at..at + 16].to_vec()).unwrap();
    assert!(outcome.err().contains(&other), "{}", outcome.err());
}

#[test]
fn a_part_of_the_system_is_not_run_alone() {
    let scene = Scene::new();
    for part in ["root", "serial", "pong"] {
        let outcome = system(&scene, &["-n", "2"], &[part]);
        assert_eq!(outcome.ended, Ended::Exit(127), "{part}");
        let err = outcome.err();
        assert!(err.contains("neither a program"), "{err}");
        assert!(!err.contains(&format!(" {part},")), "{err}");
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

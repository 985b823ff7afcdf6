//! The system sphere: closely coupled replicas whose programs count their own branches, so that
//! nothing of the machine has to count.

use std::path::Path;

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{image, system, system_with};

/// The processors.
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];

/// A run whose programs count.
fn counted(scene: &Scene, arch: &str, words: &str, options: &[&str], command: &[&str]) -> Outcome {
    let close = ["--coupling", "close", "--count-by", "compiler"];
    let options = [&["--arch", arch], &close[..], options].concat();
    system_with(scene, words, &options, command)
}

/// Rounds in which additions were lost, by what a race says at its end.
fn raced(outcome: &Outcome) -> u64 {
    let out = outcome.out();
    let words: Vec<&str> = out.split(' ').collect();
    let at = words.iter().position(|&word| word == "rounds,");
    let count = at.and_then(|at| words.get(at + 1)?.parse().ok());
    count.unwrap_or_else(|| panic!("{out:?} {}", outcome.err()))
}

/// A program of the image that counts.
fn program(arch: &str, name: &str) -> Vec<u8> {
    let folder = image().join(if arch == "aarch64" { arch } else { "" });
    std::fs::read(folder.join("counted").join(format!("system-{name}"))).unwrap()
}

/// DSN'19, V-A1, with a program in Rust and one in C: what each round comes to is in the trace, so
/// replicas that are not preempted at one instruction diverge.
#[test]
fn replicas_that_count_themselves_race_alike() {
    let scene = Scene::new();
    for arch in MACHINES {
        for (name, replicas, tick, mode, words) in sampled(vec![
            ("race", "1", "200us", "args", ""),
            ("race", "2", "500us", "args", "verify=yes"),
            ("race", "2", "1ms", "every", ""),
            ("race", "3", "1ms", "io", "verify=yes"),
            ("racing", "2", "1ms", "args", "verify=yes"),
            ("racing", "3", "200us", "args", ""),
            ("racing", "4", "500us", "args", ""),
        ]) {
            let options = ["-n", replicas, "--tick", tick, "--compare", mode];
            let outcome = counted(&scene, arch, words, &options, &[name, "60"]);
            let what = format!("{arch} {name} {options:?}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.err(), "", "{what}");
            assert!(raced(&outcome) > 0, "{what} {}", outcome.out());
        }
    }
}

/// No clock that counts instructions is needed, and no core waits for its turn.
#[test]
fn they_race_alike_on_any_clock() {
    let scene = Scene::new();
    for (arch, threads, replicas) in sampled(vec![
        ("x86_64", "single", "2"),
        ("x86_64", "multi", "2"),
        ("x86_64", "multi", "3"),
        ("aarch64", "single", "3"),
        ("aarch64", "multi", "2"),
    ]) {
        let options = ["-n", replicas, "--core-threads", threads, "--tick", "5ms"];
        let outcome = counted(&scene, arch, "verify=yes", &options, &["race", "40"]);
        let what = format!("{arch} {options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

/// Programs that do not race do what they do uncounted: drivers that are told who is the primary,
/// numbers with a point, messages between programs.
#[test]
fn what_does_not_race_computes_the_same() {
    let scene = Scene::new();
    for (arch, command) in sampled(vec![
        ("x86_64", &["float"][..]),
        ("x86_64", &["copy"]),
        ("x86_64", &["pingpong"]),
        ("x86_64", &["hpet"]),
        ("x86_64", &["sieve"]),
        ("aarch64", &["hash"]),
        ("aarch64", &["ledger"]),
        ("aarch64", &["pipeline"]),
        ("aarch64", &["sieve"]),
        ("aarch64", &["rounds", "1000000100"]),
    ]) {
        let plain = ["--arch", arch, "-n", "1", "--tick", "500us"];
        let plain = system(&scene, &plain, command);
        for replicas in ["2", "3"] {
            let options = ["-n", replicas, "--tick", "500us"];
            let outcome = counted(&scene, arch, "", &options, command);
            let what = format!("{arch} {command:?} {replicas}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), plain.out(), "{what}");
        }
    }
}

/// Cores share one clock, so a program seems slower while others have it: it must not run past the
/// place of the others for that, again and again, until they give it up.
#[test]
fn nobody_is_given_up_who_computes_in_a_tight_loop() {
    let scene = Scene::new();
    for (tick, words) in sampled(vec![("500us", "verify=yes"), ("600us", "")]) {
        let options = ["-n", "3", "--tick", tick, "--core-threads", "counted"];
        let outcome = counted(&scene, "x86_64", words, &options, &["sieve", "1000000"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.err(), "");
    }
}

/// Whoever is lost, the others go on, and it comes back.
#[test]
fn replicas_that_are_lost_come_back() {
    let scene = Scene::new();
    for (arch, probe, victim) in sampled(vec![
        ("x86_64", "astray", "0"),
        ("x86_64", "sudden", "1"),
        ("x86_64", "halt", "0"),
        ("x86_64", "loop", "2"),
        ("aarch64", "astray", "2"),
        ("aarch64", "sudden", "0"),
        ("aarch64", "halt", "1"),
        ("aarch64", "loop", "0"),
    ]) {
        let words = format!("probe={probe} victim={victim}");
        let options = ["-n", "3", "--tick", "1ms", "--timeout", "100ms"];
        let options = [&options[..], &["--events", "e"]].concat();
        let outcome = counted(&scene, arch, &words, &options, &["race", "200"]);
        let what = format!("{arch} {words}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        assert_eq!(back.count(), 1, "{what} {events:?}");
        assert!(raced(&outcome) > 0, "{what} {}", outcome.out());
    }
}

/// Of two replicas, one that goes astray or is silent stops both.
#[test]
fn of_two_none_goes_on_alone() {
    let scene = Scene::new();
    for arch in MACHINES {
        for (probe, why) in [("astray", "mismatch"), ("halt", "timeout")] {
            let words = format!("probe={probe} victim=1");
            let options = ["-n", "2", "--tick", "1ms", "--timeout", "100ms"];
            let outcome = counted(&scene, arch, &words, &options, &["race", "400"]);
            assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
            assert!(outcome.err().contains(why), "{}", outcome.err());
        }
    }
}

/// What does not count is refused by its name and the place of what is not counted: a program that
/// was built without, and one in which a single count is missing.
#[test]
fn what_is_not_counted_is_refused_by_its_place() {
    let scene = Scene::new();
    for (arch, count) in [
        ("x86_64", &[0x66, 0x44, 0x0f, 0xd4, 0x3d][..]),
        ("aarch64", &[0xfe, 0xe7, 0x07, 0x2f, 0xff, 0x87, 0xfe, 0x7e]),
    ] {
        let good = program(arch, "racing");
        let nop: &[u8] = match arch {
            "x86_64" => &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90],
            _ => &[0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5],
        };
        let at = good.windows(count.len()).rposition(|it| it == count);
        let mut bad = good.clone();
        bad[at.unwrap()..][..nop.len()].copy_from_slice(nop);
        let folder = image().join(if arch == "aarch64" { arch } else { "" });
        let plain = std::fs::read(folder.join("system-racing")).unwrap();
        for (name, content, told) in [
            ("good", &good, None),
            ("bad", &bad, Some("not counted at 0x40")),
            ("plain", &plain, Some("not counted at 0x40")),
        ] {
            let path = scene.path().join(name);
            std::fs::write(&path, content).unwrap();
            let path = path.to_str().unwrap();
            let outcome = counted(&scene, arch, "", &["-n", "2"], &[path, "1"]);
            let Some(told) = told else {
                assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
                continue;
            };
            assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
            for part in [name, told, ", in ", "cargo xtask counted"] {
                assert!(outcome.err().contains(part), "{}", outcome.err());
            }
        }
    }
}

#[test]
fn what_cannot_be_counted_so_is_refused() {
    let scene = Scene::new();
    let close = ["--coupling", "close", "--count-by", "compiler"];
    for (options, program, why) in [
        (
            &["--count-by", "compiler"][..],
            "hello",
            "add --coupling close",
        ),
        (
            &[&close[..], &["--stop-by", "counter"]].concat(),
            "hello",
            "leave out --stop-by",
        ),
        (&close, "/bin/true", "this is one of Linux"),
        (
            &[&close[..], &["--accel", "kvm", "--core-threads", "multi"]].concat(),
            "hello",
            "leave out --accel",
        ),
    ] {
        let options = [&["--arch", "x86_64"], options].concat();
        let outcome = system(&scene, &options, &[program]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
        assert!(outcome.err().contains(why), "{}", outcome.err());
    }
    // Its numbers need registers of which none is left.
    let outcome = counted(&scene, "aarch64", "", &[], &["float"]);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    let why = "float of the image does not count its branches";
    assert!(outcome.err().contains(why), "{}", outcome.err());
}

/// An image that was built without a compiler of C has no programs that count.
#[test]
fn an_image_without_counted_programs_is_told() {
    let scene = Scene::new();
    for file in std::fs::read_dir(image()).unwrap() {
        let file = file.unwrap().path();
        if file.is_file() {
            let name = Path::new(file.file_name().unwrap());
            std::fs::copy(&file, scene.path().join(name)).unwrap();
        }
    }
    let options = [
        "--arch",
        "x86_64",
        "--coupling",
        "close",
        "--count-by",
        "compiler",
    ];
    let mut words = rcoe_tests::system::words(&options, &["hello"]);
    words[1] = format!("RCOE_SYSTEM_IMAGE={}", scene.path().display());
    let outcome = scene.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    assert!(
        outcome.err().contains("cargo xtask image"),
        "{}",
        outcome.err()
    );
}

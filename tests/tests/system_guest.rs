//! The system sphere: an operating system as a guest, on a virtual processor, replicated with its
//! monitor and all else (AArch64).

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{image, system, system_with, words};

/// Where a guest has its memory.
const MEMORY: u64 = 0x4000_0000;

/// What the image's small guest prints with so many interrupts.
fn printed(ticks: u32) -> String {
    let begin = "a guest on level 1, with translation\n1000 calls of a program on level 0\n\
                 1 instruction that is unknown here\n";
    let ticks = (1..=ticks).map(|tick| format!("tick {tick}: 7.485470860550\n"));
    begin.to_owned() + &ticks.collect::<String>()
}

/// The small guest as an image of Linux has it: a header that says how much memory it needs, and
/// where it begins.
fn small_image() -> Vec<u8> {
    let file = std::fs::read(image().join("aarch64/guest-small")).unwrap();
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let place = |at: usize| usize::try_from(number(at)).unwrap();
    let (entry, headers) = (number(24) - MEMORY, place(32));
    let mut made = vec![0; 64];
    for at in (headers..headers + usize::from(file[56]) * 56).step_by(56) {
        if file[at] == 1 {
            let start = place(at + 16) - usize::try_from(MEMORY).unwrap();
            made.resize(start + place(at + 40), 0);
            let (from, len) = (place(at + 8), place(at + 32));
            made[start..start + len].copy_from_slice(&file[from..from + len]);
        }
    }
    let size = made.len() as u64;
    // A branch to its entry.
    let branch = u32::try_from(entry / 4).unwrap() | 5 << 26;
    made[..4].copy_from_slice(&branch.to_le_bytes());
    made[16..24].copy_from_slice(&size.to_le_bytes());
    made[56..60].copy_from_slice(b"ARMd");
    made
}

/// It finds in the description of its board what it was given.
#[test]
fn an_image_of_linux_is_told_of_its_board() {
    let scene = Scene::new();
    std::fs::write(scene.path().join("Image"), small_image()).unwrap();
    std::fs::write(scene.path().join("files"), [3; 5_001]).unwrap();
    for (replicas, options, files) in [
        ("1", &["--memory", "64M"][..], "there are no files"),
        (
            "3",
            &["--memory", "64M", "--initrd", "files"],
            "files of 5001 bytes, whose sum is 15003",
        ),
    ] {
        let options = [
            &["--arch", "aarch64", "-n", replicas, "--guest", "Image"],
            options,
        ];
        let outcome = system(&scene, &options.concat(), &["console=none", "quiet"]);
        let what = format!("{options:?}: {} {}", outcome.out(), outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let out = outcome.out();
        let memory = out
            .lines()
            .find(|it| it.ends_with("MiB of memory at 0x40000000"));
        let size = memory.and_then(|it| it.split(' ').next()?.parse::<u32>().ok());
        assert!(size.is_some_and(|size| (16..64).contains(&size)), "{what}");
        let told = format!(
            "here\n{}\nthe command line is \"console=none quiet\"\n{files}\n",
            memory.unwrap_or_default()
        );
        let right = printed(5).replace("here\n", &told);
        assert_eq!(outcome.out(), right, "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

/// The small guest, with an argument.
fn guest(scene: &Scene, words: &str, options: &[&str], argument: &str) -> Outcome {
    let file = image().join("aarch64/guest-small");
    let file = file.to_str().unwrap();
    let options = [&["--arch", "aarch64", "--guest", file], options].concat();
    system_with(scene, words, &options, &[argument])
}

#[test]
fn a_guest_prints_the_same_replicated_or_not() {
    let scene = Scene::new();
    for (replicas, mode) in [
        ("1", "args"),
        ("2", "args"),
        ("3", "args"),
        ("2", "every"),
        ("3", "io"),
        ("4", "args"),
    ] {
        let options = ["-n", replicas, "--compare", mode];
        let outcome = guest(&scene, "", &options, "3");
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), printed(3), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

/// Its timer interrupts it while it computes; so all of memory is compared at those instructions,
/// its own and that of programs.
#[test]
fn a_guest_is_interrupted_at_one_instruction() {
    let scene = Scene::new();
    for (replicas, tick, how) in sampled(vec![
        ("2", "300us", "counter"),
        ("2", "500us", "breakpoint"),
        ("3", "400us", "counter"),
        ("3", "1ms", "breakpoint"),
    ]) {
        let options = ["-n", replicas, "--tick", tick, "--stop-by", how];
        let options = [&options[..], &["--stats"]].concat();
        let outcome = guest(&scene, "verify=yes", &options, "8");
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), printed(8), "{what}");
        let points = outcome.err();
        let points = points.lines().find_map(|it| it.strip_prefix("points "));
        let count = points.and_then(|it| it.split(',').next()?.parse::<u32>().ok());
        assert!(count.is_some_and(|count| count > 8), "{what}");
    }
}

#[test]
fn a_guest_outlives_each_replica_and_each_comes_back() {
    for victim in sampled(vec!["0", "1", "2"]) {
        let scene = Scene::new();
        let words = format!("probe=sudden victim={victim}");
        let options = ["-n", "3", "--events", "e"];
        let outcome = guest(&scene, &words, &options, "60");
        let what = format!("{victim}: {} {}", outcome.out(), outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), printed(60), "{what}");
        let events = events_of(&scene.path().join("e"));
        let is = |kind: &str| events.iter().any(|event| event["type"] == kind);
        assert_eq!(is("takeover"), victim == "0", "{what} {events:?}");
        let back = events.iter().any(|event| event["stage"] == "done");
        assert!(is("downgrade") && back, "{what} {events:?}");
    }
}

/// A bit of a register flips while the guest computes: nothing wrong goes out.
#[test]
fn a_flip_in_a_guest_is_found() {
    let scene = Scene::new();
    for (replicas, ended) in [("2", Ended::Exit(86)), ("3", Ended::Exit(0))] {
        let words = "flip=1250000 behind=300 victim=1 register=31 bit=40";
        let options = [
            "-n",
            replicas,
            "--tick",
            "1ms",
            "--no-reintegrate",
            "--stats",
            "--timeout",
            "1s",
        ];
        let outcome = guest(&scene, words, &options, "40");
        let what = format!("{replicas}: {} {}", outcome.out(), outcome.err());
        assert!(what.contains("flips 1"), "{what}");
        assert_eq!(outcome.ended, ended, "{what}");
        assert!(printed(40).starts_with(&outcome.out()), "{what}");
    }
}

#[test]
fn what_is_no_guest_is_refused() {
    let scene = Scene::new();
    std::fs::write(scene.path().join("text"), "no guest").unwrap();
    let program = image().join("aarch64/system-hello");
    let program = program.to_str().unwrap();
    let small = image().join("aarch64/guest-small");
    let small = small.to_str().unwrap();
    let aarch64 = "--arch=aarch64";
    for (options, argument, status, why) in [
        (
            &[aarch64, "--guest", "text"][..],
            "1",
            126,
            "text: no guest",
        ),
        (&[aarch64, "--guest", "none"], "1", 125, "none"),
        (&[aarch64, "--guest", program], "1", 126, "a segment is at"),
        (&[aarch64, "--guest", small], "x", 125, "one number"),
        (
            &[aarch64, "--guest", small, "--initrd", "text"],
            "1",
            126,
            "--initrd is for one",
        ),
        (
            &[aarch64, "--guest", small, "--disk", "d"],
            "1",
            125,
            "--disk",
        ),
        (
            &[aarch64, "--guest", small, "--memory", "8M"],
            "1",
            125,
            "at least",
        ),
        (
            &["--arch=x86_64", "--guest", small],
            "1",
            125,
            "use --arch aarch64",
        ),
    ] {
        let outcome = system(&scene, options, &[argument]);
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(status), "{what}");
        assert!(outcome.err().contains(why), "{what}");
        assert_eq!(outcome.out(), "", "{what}");
    }
    let process = ["run", "--guest", "text"];
    let mut command = words(&[], &["1"]);
    command.truncate(3);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let outcome = scene.run(&[&command[..], &process[..]].concat());
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    assert!(
        outcome.err().contains("--sphere system"),
        "{}",
        outcome.err()
    );
}

//! What a program of the system sphere reads while its machine runs.

use std::io::Write as _;
use std::time::Duration;

use rcoe_tests::launch::{Ended, Outcome, Running};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::words;

/// How long a machine may take.
const LIMIT: Duration = Duration::from_secs(240);
/// The first port of the line, of which bytes are read, and that of its state.
const LINE: u64 = 0x2f8;
const STATE: u64 = LINE + 5;

/// Waits until a command has written that.
fn hear(running: &Running, text: &str) {
    until(text, || {
        let said = running.stdout_so_far().unwrap();
        said.contains(text).then_some(())
    });
}

fn finish(running: Running) -> Outcome {
    let outcome = running.finish(LIMIT).unwrap();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    outcome
}

#[test]
fn a_program_and_its_user_take_turns() {
    let script = "echo ready; while read x; do echo \"<$x>\"; done; echo end";
    let ways = vec![
        ("1", "args", ""),
        ("2", "every", "--outgoing"),
        ("3", "io", ""),
    ];
    for (replicas, compare, network) in sampled(ways) {
        let scene = Scene::new();
        let options = ["-n", replicas, "--compare", compare, network];
        let options = &options[..if network.is_empty() { 4 } else { 5 }];
        let (running, mut user) =
            scene.start_reading(&words(options, &["busybox", "sh", "-c", script]));
        hear(&running, "ready");
        for line in ["a", "a line of more bytes than one portion has", ""] {
            writeln!(user, "{line}").unwrap();
            hear(&running, &format!("<{line}>"));
        }
        drop(user);
        let outcome = finish(running);
        let expected = "ready\n<a>\n<a line of more bytes than one portion has>\n<>\nend\n";
        assert_eq!(outcome.out(), expected, "{}", outcome.err());
        assert_eq!(outcome.err(), "");
    }
}

#[test]
fn a_wait_for_input_ends_when_its_time_has_come() {
    let script = "read -t 0.3 x || echo late; read x; echo $x; exec cat";
    for network in sampled(vec![&[][..], &["--outgoing"]]) {
        let scene = Scene::new();
        let options = [&["-n", "2"], network].concat();
        let (running, mut user) =
            scene.start_reading(&words(&options, &["busybox", "sh", "-c", script]));
        hear(&running, "late");
        user.write_all(b"first\nrest").unwrap();
        hear(&running, "first");
        drop(user);
        assert_eq!(finish(running).out(), "late\nfirst\nrest");
    }
}

/// One reading of whether something came is all replicas', and wrong: nothing diverges, and what
/// came is had all the same.
#[test]
fn a_wrong_reading_of_the_primary_leaves_the_line_at_work() {
    for after in sampled(vec![0, 1, 2, 5, 26]) {
        let scene = Scene::new();
        let mut words = words(&["-n", "2", "--events", "e"], &["busybox", "cat"]);
        let word = format!("misreads-port={STATE} victim=0 after={after}");
        words.insert(1, format!("RCOE_SYSTEM_WORDS={word}"));
        let (running, mut user) = scene.start_reading(&words);
        for line in ["one\n", "two\n", "three\n"] {
            user.write_all(line.as_bytes()).unwrap();
            hear(&running, line);
        }
        drop(user);
        let outcome = finish(running);
        assert_eq!(
            outcome.out(),
            "one\ntwo\nthree\n",
            "{after}: {}",
            outcome.err()
        );
    }
}

/// Each byte is gone from the line once it was read, so what a primary has read and not told is
/// asked for again, as is what it may not have asked for.
#[test]
fn what_is_lost_with_a_primary_comes_again() {
    let text: String = (0..300).map(|number| format!("line {number}\n")).collect();
    for (word, said) in sampled(vec![
        (format!("breaks-at-reading-port={LINE}"), "while it reads"),
        (format!("breaks-at-reading-port={STATE}"), "while it reads"),
        (format!("breaks-at-port={LINE}"), "while it writes"),
    ]) {
        let scene = Scene::new();
        let options = ["-n", "3", "--events", "e"];
        let mut words = words(&options, &["busybox", "cat"]);
        words.insert(1, format!("RCOE_SYSTEM_WORDS={word} victim=0"));
        let (running, mut user) = scene.start_reading(&words);
        user.write_all(text.as_bytes()).unwrap();
        drop(user);
        let outcome = finish(running);
        let err = outcome.err();
        assert_eq!(outcome.out(), text, "{word}: {err}");
        assert!(err.contains(said), "{word}: {err}");
        let events = events_of(&scene.path().join("e"));
        let takeover = events.iter().any(|event| event["type"] == "takeover");
        assert!(takeover, "{word}: {events:?}");
    }
}

#[test]
fn nothing_is_taken_from_the_user_that_the_program_does_not_read() {
    let scene = Scene::new();
    let program = ["busybox", "sh", "-c", "'read x; echo got $x'"];
    let run = words(&["-n", "1"], &program).join(" ");
    let script = format!("{run}; cat");
    let words = ["sh", "-c", &script].map(str::to_owned);
    let (running, mut user) = scene.start_reading(&words);
    user.write_all(b"one\n").unwrap();
    hear(&running, "got one");
    user.write_all(b"two\n").unwrap();
    hear(&running, "two");
    drop(user);
    assert_eq!(finish(running).out(), "got one\ntwo\n");
}

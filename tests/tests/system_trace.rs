//! What replicas of the system sphere compare: data that a program adds to its trace convicts
//! alone, and what differs is told in words.

use rcoe_tests::launch::Ended;
use rcoe_tests::machine::{OBJECTS, Reached};
use rcoe_tests::rcoe::Scene;
use rcoe_tests::system::system;
use serde_json::Value;

const ARCHS: [&str; 2] = ["--arch=x86_64", "--arch=aarch64"];

/// What `ledger` prints, whatever the accounts are.
const PRINTED: &str = "the accounts are open\nthe accounts are closed\n";

/// The first accounts of `ledger`, as they are in memory.
fn accounts(ticks: u64) -> Vec<u8> {
    let numbers = (ticks | 1..).take(4);
    let words = numbers.map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Flips a bit of the accounts of one replica while `ledger` runs for so many ticks.
fn flipped(options: &[&str], ticks: u64, victim: usize) -> (Ended, String, String, Vec<Value>) {
    let reached = Reached::start(options, &["ledger", &ticks.to_string()]);
    let sought = accounts(ticks);
    reached.change(victim, OBJECTS, 8 << 20, |bytes| {
        let found = bytes.windows(sought.len()).position(|it| it == sought);
        bytes[found.expect("the accounts are in memory")] ^= 1;
    });
    let (outcome, events) = reached.finish();
    (outcome.ended, outcome.out(), outcome.err(), events)
}

fn divergences(events: &[Value]) -> Vec<&Value> {
    let divergences = events.iter().filter(|it| it["type"] == "divergence");
    divergences.collect()
}

/// Data and nothing else: in this mode not even the arguments of system calls are compared.
#[test]
fn what_a_program_adds_to_the_trace_convicts_alone_and_is_named() {
    for (arch, victim) in ARCHS.into_iter().zip([2, 0]) {
        let options = [arch, "-n", "3", "--compare", "io"];
        let (ended, out, err, events) = flipped(&options, 60, victim);
        assert_eq!(ended, Ended::Exit(0), "{err}");
        assert_eq!(out, PRINTED, "{err}");
        let found = divergences(&events);
        let [found] = found[..] else {
            panic!("{arch}: {events:?}");
        };
        assert_eq!(found["replica"], victim, "{found}");
        assert_eq!(found["kind"], "mismatch", "{found}");
        let detail = found["detail"].as_str();
        let detail = detail.unwrap_or_else(|| panic!("{found}: {err}"));
        let number = found["event"].as_u64().unwrap();
        let data = "data that a program added to the trace (0x";
        let expected = format!("event {number}: expected {data}");
        assert!(detail.starts_with(&expected), "{detail}");
        assert!(detail.contains(&format!("seen {data}")), "{detail}");
        assert!(err.contains(detail), "{err}");
    }
}

#[test]
fn two_replicas_stop_and_tell_what_each_has() {
    for arch in ARCHS {
        // Here the call that adds the data differs first, by its arguments.
        let options = [arch, "-n", "2"];
        let (ended, _, err, events) = flipped(&options, 60, 1);
        assert_eq!(ended, Ended::Exit(86), "{err}");
        let found = divergences(&events);
        let detail = found[0]["detail"].as_str().unwrap();
        for replica in ["replica 0", "replica 1"] {
            let text = format!("{replica} the system call AddTrace (0x");
            assert!(detail.contains(&text), "{detail}");
        }
        assert!(err.contains(detail), "{err}");
    }
}

/// The same flip where nothing is added is nobody's loss.
#[test]
fn without_the_right_a_program_adds_nothing_and_nobody_is_convicted() {
    for arch in ARCHS {
        let options = [arch, "-n", "3", "--compare", "io"];
        let (ended, out, err, events) = flipped(&options, 61, 1);
        assert_eq!(ended, Ended::Exit(0), "{err}");
        assert_eq!(out, PRINTED, "{err}");
        assert!(divergences(&events).is_empty(), "{events:?}");
    }
}

#[test]
fn messages_results_and_devices_agree_where_all_is_compared() {
    let scene = Scene::new();
    for arch in ARCHS {
        for program in [&["pipeline", "2"][..], &["large"]] {
            let base = system(&scene, &[arch, "-n", "1"], program);
            let options = [arch, "-n", "3", "--compare", "every"];
            let outcome = system(&scene, &options, program);
            let what = format!("{arch} {program:?}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), base.out(), "{what}");
        }
    }
    for program in [["clock", "4"], ["device", "2"], ["hpet", "50"]] {
        let options = ["-n", "2", "--compare", "every"];
        let outcome = system(&scene, &options, &program);
        let what = format!("{program:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
    }
}

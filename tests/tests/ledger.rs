//! Faults are charged to the core that they happened on, and a core that is wrong again and again
//! is left.

use std::fs;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::memory::{poke, symbol};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rcoe_tests::victim::Victim;
use rustix::process::Signal;
use serde_json::Value;

/// Writes lines until there is a file `stop`; `wrong` changes what it writes.
const LINES: &str = "#include <stdio.h>\n#include <unistd.h>\n
volatile unsigned long wrong;
int main(void) {
  do {
    printf(\"%lu\\n\", wrong);
    fflush(stdout);
    usleep(1000);
  } while (access(\"stop\", F_OK) != 0);
  return 7;
}";

/// Below a test's home.
const LEDGER: &str = ".local/state/rcoe/cores.ndjson";

fn cores(scene: &Scene, options: &[&str]) -> Value {
    let outcome = scene.rcoe(&[&["cores", "--json"], options].concat());
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

fn entries(scene: &Scene) -> Vec<Value> {
    events_of(&scene.path().join(LEDGER))
}

/// Makes replica `id` of a computing group wrong, and returns the core it was on.
fn flip(victim: &Victim, options: &[&str], id: usize) -> u64 {
    let group = victim.start(options);
    victim.set(group.replicas[id], "wrong").unwrap();
    victim.release(&group);
    let (_, events) = group.finish();
    events[0]["replicas"][id]["core"].as_u64().expect("a core")
}

#[test]
fn a_sticky_core_is_found_and_left_within_three_faults() {
    let victim = Victim::new();
    let mut core = 0;
    for faults in 1..=3 {
        core = flip(&victim, &["-n", "3", "--timeout", "30s"], 0);
        let table = cores(&victim.scene, &[]);
        let record = &table["cores"][0];
        assert_eq!(
            (record["core"].as_u64(), record["faults"].as_u64()),
            (Some(core), Some(faults))
        );
        assert_eq!(record["suspect"], faults == 3, "{table}");
        assert_eq!(record["programs"][0], victim.program.as_str());
    }
    let entry = &entries(&victim.scene)[0];
    assert_eq!(
        (&entry["kind"], &entry["blame"]),
        (&"mismatch".into(), &"core".into()),
        "{entry}"
    );
    assert_eq!(entry["replica"], 0, "{entry}");

    let placed = |options: &[&str]| {
        let arguments = [
            &["run", "-n", "1", "--events", "e"],
            options,
            &["--", "true"],
        ]
        .concat();
        let outcome = victim.scene.rcoe(&arguments);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let start = events_of(&victim.scene.path().join("e")).remove(0);
        (
            start["replicas"][0]["core"].as_u64(),
            start["avoided"].clone(),
            outcome.err(),
        )
    };
    let only = core.to_string();
    let (used, avoided, said) = placed(&["--cores", &only]);
    assert_eq!(
        (used, avoided),
        (Some(core), Value::from(Vec::<u64>::new()))
    );
    assert!(said.contains(&format!("core {core} is suspect")), "{said}");
    let (used, avoided, said) = placed(&["--suspect-after", "4"]);
    assert_eq!(
        (used, avoided.as_array().map(Vec::len)),
        (Some(core), Some(0))
    );
    assert_eq!(said, "");
    let (used, avoided, said) = placed(&[]);
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert_ne!(used, Some(core));
        assert_eq!((avoided, said.as_str()), (Value::from(vec![core]), ""));
    }
    let (used, ..) = placed(&["--no-ledger"]);
    assert_eq!(used, Some(core));
}

/// The CPUs that a process may run on, as the host lists them.
fn allowed(pid: u64) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("a list").trim().to_owned()
}

#[test]
fn a_run_in_progress_leaves_a_sticky_core() {
    let scene = Scene::new();
    let program = scene.compile("lines", LINES, &["-static", "-no-pie"]);
    let options = "-n 3 --suspect-after 1 --timeout 30s --scrub off";
    let options: Vec<&str> = options.split(' ').collect();
    let group = scene.start_group(&options, &[&program]);
    until("a line", || {
        let text = group.running.stdout_so_far().expect("readable output");
        (!text.is_empty()).then_some(())
    });
    let address = symbol(&program, "wrong");
    poke(group.replicas[0], address, &1_u64.to_le_bytes()).expect("a living replica");
    let events = until("three replicas again", || {
        let events = events_of(&group.events);
        events
            .iter()
            .any(|event| event["stage"] == "done")
            .then_some(events)
    });
    let suspect = &events[0]["replicas"][0]["core"];
    let back = events.iter().find(|event| event["stage"] == "done");
    let back = back.expect("just seen");
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let moved = until("a relocation", || {
            let events = events_of(&group.events);
            events.into_iter().find(|it| it["type"] == "relocation")
        });
        assert_eq!(&moved["from"], suspect, "{moved}");
        assert_ne!(&moved["to"], suspect, "{moved}");
        let pid = if moved["replica"] == back["replica"] {
            &back["pid"]
        } else {
            let id = moved["replica"].as_u64().expect("a number");
            &events[0]["replicas"][usize::try_from(id).expect("a small one")]["pid"]
        };
        let pid = pid.as_u64().expect("a process id");
        assert_eq!(allowed(pid), moved["to"].to_string());
    }
    scene.write("stop", "");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(7), "{}", outcome.err());
    assert!(
        outcome.out().lines().all(|line| line == "0"),
        "nothing wrong got out"
    );
}

#[test]
fn two_that_differ_are_charged_by_halves() {
    let victim = Victim::new();
    flip(&victim, &["-n", "2", "--timeout", "30s"], 1);
    let entry = &entries(&victim.scene)[0];
    assert_eq!(entry["blame"], "shared", "{entry}");
    for record in cores(&victim.scene, &[])["cores"].as_array().unwrap() {
        assert_eq!(
            (&record["faults"], &record["shared"]),
            (&0.into(), &1.into())
        );
    }
}

#[test]
fn killing_and_stopping_from_outside_is_charged_to_nobody() {
    let victim = Victim::new();
    for (sent, timeout, kind, reason) in [
        (Signal::KILL, "30s", "death", "it was killed from outside"),
        (Signal::STOP, "3s", "timeout", "it was stopped from outside"),
    ] {
        let group = victim.start(&["-n", "3", "--timeout", timeout]);
        signal(group.replicas[1], sent).unwrap();
        victim.release(&group);
        let (outcome, _) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(5), "{}", outcome.err());
        let entry = entries(&victim.scene).pop().expect("an entry");
        assert_eq!(
            (&entry["kind"], &entry["blame"]),
            (&kind.into(), &"nobody".into()),
            "{entry}"
        );
        assert_eq!(entry["reason"], reason, "{entry}");
    }
    let table = cores(&victim.scene, &["--suspect-after", "1"]);
    assert_eq!(table["cores"].as_array().map(Vec::len), Some(1), "{table}");
    assert_eq!(table["cores"][0]["uncounted"], 2, "{table}");
    assert_eq!(table["cores"][0]["suspect"], false, "{table}");
}

#[test]
fn one_killed_while_its_siblings_wait_for_it_is_charged_to_nobody() {
    let scene = Scene::new();
    // So much memory that its end is heard of before the kernel tells.
    let heavy = LINES.replace(
        "int main(void) {",
        "#include <string.h>\nchar much[1 << 26];\n
int main(void) {\n  memset(much, 1, sizeof much);",
    );
    let program = scene.compile("heavy", &heavy, &["-static", "-no-pie"]);
    let group = scene.start_group(
        &["-n", "3", "--timeout", "30s", "--scrub", "off"],
        &[&program],
    );
    until("a line", || {
        let text = group.running.stdout_so_far().expect("readable output");
        (!text.is_empty()).then_some(())
    });
    signal(group.replicas[1], Signal::KILL).unwrap();
    let entry = until("an entry", || entries(&scene).pop());
    assert_eq!(
        (&entry["blame"], &entry["reason"]),
        (&"nobody".into(), &"it was killed from outside".into()),
        "{entry}"
    );
    scene.write("stop", "");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(7), "{}", outcome.err());
}

#[test]
fn a_loop_is_charged_to_the_core_that_ran_it() {
    let victim = Victim::new();
    let group = victim.start(&["-n", "3", "--timeout", "6s"]);
    victim.set(group.replicas[1], "spin").unwrap();
    victim.release(&group);
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(5), "{}", outcome.err());
    let entry = entries(&victim.scene).pop().expect("an entry");
    assert_eq!(
        (&entry["kind"], &entry["blame"]),
        (&"timeout".into(), &"core".into()),
        "{entry}"
    );
}

#[test]
fn the_ledger_is_shown_cleared_and_exported() {
    let victim = Victim::new();
    let scene = &victim.scene;
    let core = flip(&victim, &["-n", "3", "--timeout", "30s"], 0).to_string();
    let table = scene.rcoe(&["cores", "--suspect-after", "1"]).out();
    assert!(
        table.contains("suspect") && table.contains(&victim.program),
        "{table}"
    );
    let lines = scene.rcoe(&["cores", "export"]).out();
    assert_eq!(
        lines,
        fs::read_to_string(scene.path().join(LEDGER)).unwrap()
    );
    let rows = scene.rcoe(&["cores", "export", "--csv"]).out();
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert!(rows.contains("\"mismatch\""), "{rows}");
    for arguments in [vec!["cores", "clear", &core], vec!["cores", "clear"]] {
        assert_eq!(scene.rcoe(&arguments).ended, Ended::Exit(0));
        assert_eq!(cores(scene, &[])["cores"].as_array().map(Vec::len), Some(0));
    }
    assert_eq!(
        scene.rcoe(&["cores", "export"]).out().lines().count(),
        3,
        "nothing is lost"
    );
    assert!(scene.rcoe(&["cores"]).out().contains("No faults"));
}

#[test]
fn a_ledger_that_cannot_be_written_is_a_warning() {
    let victim = Victim::new();
    fs::write(victim.scene.path().join(".local"), "no folder").unwrap();
    let group = victim.start(&["-n", "3", "--timeout", "30s"]);
    victim.set(group.replicas[1], "wrong").unwrap();
    victim.release(&group);
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(5), "{}", outcome.err());
    assert_eq!(outcome.out(), victim.expected);
    let warnings = outcome.err().matches("ledger of cores").count();
    assert!(warnings >= 1, "{}", outcome.err());
}

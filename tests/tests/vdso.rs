//! Programs read clocks by functions of rcoe's own vDSO: found by every parser, right for every
//! clock, the same in all replicas whoever is lost, and gone with `--clock calls`.

use std::fs;
use std::time::Duration;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rustix::process::Signal;

/// Finds and calls all functions, and compares every clock with the system call.
const PARSE: &str = include_str!("vdso/parse.c");
/// Writes what a call leaves in registers and below the stack pointer.
const LEAVES: &str = include_str!("vdso/leaves.c");
/// Bad pointers.
const BAD: &str = include_str!("vdso/bad.c");
/// Unwinds from the handlers of a timer.
const UNWIND: &str = include_str!("vdso/unwind.c");
/// Reads clocks in a loop and says if one goes back.
const READS: &str = include_str!("vdso/reads.c");
/// Threads that wait by reading the clock.
const THREADS: &str = include_str!("vdso/threads.c");
/// Reads the time stamp counter by code that came into memory as it is told.
const COUNTER: &str = include_str!("vdso/counter.c");
/// Draws random numbers by an instruction in pages that are read anew, or move.
const RANDOM: &str = include_str!("vdso/random.c");
/// Asks what the processor is by an instruction in a page that is read anew, or moves.
const ASKS: &str = include_str!("vdso/asks.c");
/// Looks whether tables beside code are as they were written.
const TABLES: &str = include_str!("vdso/tables.c");
/// Executes a file that is mapped shared, and looks whether that stays as it is.
const SHARED: &str = include_str!("vdso/shared.c");
/// The ways.
const COUNTER_WAYS: [&str; 21] = [
    "own",
    "dropped",
    "dropped-locked",
    "dropped-changed",
    "moved",
    "generated",
    "made-both",
    "made-executable",
    "nameless",
    "shared",
    "shared-changed",
    "shared-later",
    "nameless-later",
    "segment",
    "grown",
    "execute-only",
    "many-mappings",
    "short",
    "text",
    "memory",
    "personality",
];

/// How a program can be linked.
const LINKED: [(&str, &[&str]); 3] = [
    ("dynamic", &["-w", "-pthread", "-rdynamic"]),
    ("static", &["-w", "-pthread", "-static"]),
    ("static-pie", &["-w", "-pthread", "-static-pie"]),
];

/// Runs it as without rcoe and with one to three replicas: the same, and silently.
#[track_caller]
fn like_native(name: &str, source: &str) {
    for (how, flags) in LINKED {
        let scene = Scene::new();
        let program = scene.compile(name, source, flags);
        let native = scene.run(&[&program]);
        assert_eq!(native.ended, Ended::Exit(0), "{how}: {}", native.out());
        for options in [
            ["-n", "1", "--compare", "args"],
            ["-n", "2", "--compare", "args"],
            ["-n", "2", "--compare", "every"],
            ["-n", "3", "--compare", "io"],
        ] {
            let outcome = scene.rcoe(&[&["run"], &options[..], &["--", &program]].concat());
            let what = format!("{how} {options:?}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            assert_eq!(outcome.out(), native.out(), "{what}");
        }
    }
}

#[test]
fn all_functions_are_found_and_right() {
    like_native("parse", PARSE);
}

#[test]
fn a_bad_pointer_is_the_programs_fault() {
    like_native("bad", BAD);
}

#[test]
fn threads_wait_by_reading_the_clock() {
    like_native("threads", THREADS);
}

#[test]
fn handlers_unwind_through_it() {
    let scene = Scene::new();
    let program = scene.compile("unwind", UNWIND, &["-w", "-rdynamic"]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), "handled 1, all whole 1\n");
    }
}

#[test]
fn a_call_leaves_the_same_in_all_replicas() {
    let scene = Scene::new();
    let program = scene.compile("leaves", LEAVES, &["-w"]);
    for replicas in ["2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    }
}

#[test]
fn readings_are_no_dispatched_calls_and_still_count() {
    let scene = Scene::new();
    scene.write("stop", "");
    let program = scene.compile("reads", READS, &["-static"]);
    let counted = |clock: &str| {
        let options = [
            "run", "-n", "2", "--stats", "--clock", clock, "--", &program,
        ];
        let outcome = scene.rcoe(&options);
        assert_eq!(outcome.ended, Ended::Exit(3), "{}", outcome.err());
        let err = outcome.err();
        let count = |name: &str| {
            let line = err.lines().find(|line| line.starts_with(name)).unwrap();
            let words = line.split_whitespace().rev().take(2);
            let counts: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            assert_eq!(counts[0], counts[1], "{line}");
            counts[0]
        };
        [count("calls: input"), count("rewritten sites")]
    };
    let ([readings, no_sites], [calls, sites]) = (counted("vdso"), counted("calls"));
    assert!(readings >= 3000 && calls >= 3000, "{readings} {calls}");
    assert!(sites > no_sites, "{sites} {no_sites}");
}

#[test]
fn it_can_be_left_out() {
    let scene = Scene::new();
    let program = scene.compile("parse", PARSE, &["-w"]);
    for replicas in ["1", "2"] {
        let options = ["run", "-n", replicas, "--clock", "calls", "--", &program];
        let outcome = scene.rcoe(&options);
        assert_eq!(outcome.ended, Ended::Exit(1), "{}", outcome.err());
        assert_eq!(outcome.out(), "no vDSO\n");
    }
    let outcome = scene.rcoe(&["run", "--sphere", "system", "--clock", "calls", "hello"]);
    assert_eq!(outcome.ended, Ended::Exit(125));
    let err = outcome.err();
    assert!(err.contains("--clock is for the process sphere"), "{err}");
}

#[test]
fn a_new_program_gets_one_of_its_own() {
    let scene = Scene::new();
    let parse = scene.compile("parse", PARSE, &["-w"]);
    let native = scene.run(&[&parse]);
    let script = "\"$0\"; exec \"$0\"";
    let outcome = scene.rcoe(&["run", "-n", "2", "--", "sh", "-c", script, &parse]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), native.out().repeat(2));
}

/// Kills the primary again and again while clocks are read: none goes back, and all replicas, old
/// and copied, see the same times.
#[test]
fn clocks_go_on_when_primaries_are_lost() {
    for compare in ["io", "args"] {
        let scene = Scene::new();
        let program = scene.compile("reads", READS, &["-static"]);
        let options = ["-n", "3", "--compare", compare, "--timeout", "30s"];
        let group = scene.start_group(&options, &[&program]);
        let mut replicas = group.replicas.clone();
        // The two that take over from each other.
        for round in 0..8_usize {
            let victim = round % 2;
            signal(replicas[victim], Signal::KILL).unwrap();
            let copies = until("a copy of the first process", || {
                let mut events = events_of(&group.events);
                events.retain(|it| it["type"] == "reintegration" && it["stage"] == "done");
                events.retain(|it| it["process"] == group.running.pid());
                (events.len() > round || group.running.has_ended()).then_some(events)
            });
            let copy = copies.get(round).expect("the run goes on");
            assert_eq!(copy["replica"], victim, "{copies:?}");
            replicas[victim] = u32::try_from(copy["pid"].as_u64().unwrap()).unwrap();
        }
        scene.write("stop", "");
        let (outcome, events) = group.finish();
        let what = format!("{compare}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(3), "{what}");
        let lines = outcome.out();
        let numbers = lines.lines().map(|line| line.split(' ').next().unwrap());
        assert!(numbers.zip(0..).all(|(text, at)| text == at.to_string()));
    }
}

/// The program reads the counter in this way, with two and three replicas, and executes itself.
#[track_caller]
fn reads_one_counter(scene: &Scene, program: &str, way: &str) {
    for replicas in ["2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", program, way, "again"]);
        let (out, errors) = (outcome.out(), outcome.err());
        let what = format!("{way} -n {replicas}: {out} {errors}");
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(errors, "", "{what}");
        assert_eq!(out.lines().count(), 20, "{what}");
    }
}

#[test]
fn the_counter_is_the_same_however_its_reader_came_into_memory() {
    let scene = Scene::new();
    let program = scene.compile("counter", COUNTER, &["-w"]);
    for way in COUNTER_WAYS {
        reads_one_counter(&scene, &program, way);
    }
}

#[test]
fn the_counter_traps_if_its_reader_may_have_been_overlooked() {
    let scene = Scene::new();
    let program = scene.compile("odd", COUNTER, &["-w", "-DODD"]);
    reads_one_counter(&scene, &program, "odd");
}

/// Makes the code of a 64-bit ELF file writable, as some old or packed programs have it.
fn make_code_writable(program: &str) {
    const LOADED_AND_EXECUTED: (u32, u32) = (1, 1);
    const WRITABLE: u8 = 2;
    let mut file = fs::read(program).unwrap();
    let number = |file: &[u8], at: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&file[at..at + len]);
        usize::try_from(u64::from_le_bytes(bytes)).unwrap()
    };
    let (first, count) = (number(&file, 32, 8), number(&file, 56, 2));
    for header in (0..count).map(|index| first + 56 * index) {
        let [kind, flags] = [0, 4].map(|at| u32::try_from(number(&file, header + at, 4)).unwrap());
        if (kind, flags & 1) == LOADED_AND_EXECUTED {
            file[header + 4] |= WRITABLE;
        }
    }
    fs::write(program, file).unwrap();
}

#[test]
fn the_counter_traps_if_a_programs_own_code_can_be_written() {
    let scene = Scene::new();
    let program = scene.compile("counter", COUNTER, &["-w"]);
    make_code_writable(&program);
    reads_one_counter(&scene, &program, "stored");
}

#[test]
fn what_is_replaced_stays_so_when_its_page_is_read_anew_or_moves() {
    let scene = Scene::new();
    let program = scene.compile("random", RANDOM, &["-w"]);
    for replicas in ["2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        let (out, errors) = (outcome.out(), outcome.err());
        let what = format!("-n {replicas}: {out} {errors}");
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(errors, "", "{what}");
        assert_eq!(out.lines().count(), 6, "{what}");
        assert!(out.lines().all(|line| line.ends_with(": 0")), "{what}");
    }
}

/// Only of a file that has rested is known what it has.
fn until_it_has_rested(program: &str) {
    let changed = fs::metadata(program).unwrap().modified().unwrap();
    let rested = || {
        changed
            .elapsed()
            .is_ok_and(|age| age > Duration::from_millis(2200))
    };
    until("the file to rest", || rested().then_some(()));
}

#[test]
fn a_jump_that_answers_for_the_processor_becomes_a_trap_where_its_page_moves() {
    let scene = Scene::new();
    let program = scene.compile("asks", ASKS, &["-w"]);
    until_it_has_rested(&program);
    let ways = [
        ("at first", "a jump"),
        ("moved", "a trap"),
        ("there again", "a trap"),
        ("read anew", "a trap"),
        ("moved once more", "a trap"),
        ("read anew where it was", "a trap"),
    ];
    let expected = ways.map(|(place, how)| format!("{place}: {how}, 0 wrong\n"));
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        let what = format!("-n {replicas}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
        assert_eq!(outcome.out(), expected.concat(), "{what}");
    }
}

#[test]
fn a_file_that_is_mapped_shared_is_not_changed() {
    let scene = Scene::new();
    let program = scene.compile("shared", SHARED, &["-w"]);
    let outcome = scene.like_native("exec \"$@\"", &[&program]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), "as it was: 1\n".repeat(2));
}

#[test]
fn tables_that_the_linker_puts_beside_code_stay_as_they_are() {
    let scene = Scene::new();
    let one_segment = "-Wl,-z,noseparate-code";
    for (name, flags) in [
        ("dynamic", &["-w", one_segment][..]),
        ("static", &["-w", one_segment, "-static"]),
    ] {
        let program = scene.compile(name, TABLES, flags);
        for replicas in ["1", "2", "3"] {
            let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
            assert_eq!(outcome.ended, Ended::Exit(0), "{name}: {}", outcome.err());
            assert_eq!(
                outcome.out(),
                "768 entries, 0 wrong\n",
                "{name}, {replicas}"
            );
        }
    }
}

//! Ticks: replicas of a program that makes no call agree on its state now and then, so a corrupted
//! loop ends in a verdict although no call ever comes.
//!
//! The program computes until a signal tells it to stop. Meanwhile the test changes, in one
//! replica, the word that it computes with.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rcoe_tests::{memory, proc};
use rustix::process::Signal;
use serde_json::Value;

/// A program that computes. There is one at a time: its replicas have more to do than two cores as
/// it is, and time is what tells them how far they are.
struct Victim {
    scene: Scene,
    program: String,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Victim {
    fn new() -> Self {
        Self::of("loop", include_str!("ticks/loop.c"))
    }

    fn of(name: &str, source: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let scene = Scene::new();
        let program = scene.compile(name, source, &["-O1", "-static", "-no-pie"]);
        Self {
            scene,
            program,
            _turn: turn,
        }
    }

    /// Replicas that compute.
    fn start(&self, options: &[&str], arguments: &[&str]) -> Group {
        let command = [&[self.program.as_str()], arguments].concat();
        let group = self.scene.start_group(options, &command);
        until("the first line", || {
            let told = group.running.stdout_so_far().unwrap();
            told.starts_with("ready\n").then_some(())
        });
        group
    }

    /// Changes the word that the loop computes with.
    fn corrupt(&self, pid: u32) {
        let word = memory::symbol(&self.program, "word");
        memory::poke(pid, word, &9_u64.to_le_bytes()).unwrap();
    }
}

fn is_mismatch(event: &Value) -> bool {
    event["type"] == "divergence" && event["kind"] == "mismatch"
}

/// Has a replica come back?
fn is_back(event: &Value) -> bool {
    event["type"] == "reintegration" && event["stage"] == "done"
}

#[test]
fn a_corrupted_loop_that_makes_no_call_stops_two_replicas() {
    let victim = Victim::new();
    for (hit, more) in [(0, &[][..]), (1, &["--slice", "20ms"])] {
        let options = [&["-n", "2", "--tick", "100ms"], more].concat();
        let group = victim.start(&options, &[]);
        victim.corrupt(group.replicas[hit]);
        // Nobody tells the program to stop.
        let (outcome, events) = group.finish();
        let what = format!("{hit}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
        assert_eq!(outcome.out(), "ready\n", "{what}");
        assert!(events.iter().any(is_mismatch), "{what}");
    }
}

#[test]
fn a_corrupted_loop_that_makes_no_call_is_outvoted_and_replaced() {
    let victim = Victim::new();
    for hit in [0, 2] {
        let group = victim.start(&["-n", "3", "--tick", "100ms", "--scrub", "off"], &[]);
        victim.corrupt(group.replicas[hit]);
        until("the replica is back", || {
            let events = events_of(&group.events);
            let ended = group.running.has_ended();
            assert!(!ended, "{hit}: {events:?}");
            events.iter().any(is_back).then_some(())
        });
        signal(group.running.pid(), Signal::USR1).unwrap();
        let (outcome, events) = group.finish();
        let what = format!("{hit}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), "ready\n7\n", "{what}");
        let is_named = |it: &Value| is_mismatch(it) && it["replica"] == hit;
        assert!(events.iter().any(is_named), "{what}");
    }
}

#[test]
fn a_child_that_computes_agrees_by_itself() {
    let victim = Victim::new();
    let group = victim.start(&["-n", "2", "--tick", "100ms"], &["child"]);
    let all = proc::made_by(group.running.pid());
    let is_child = |pid: &&u32| !group.replicas.contains(pid);
    victim.corrupt(*all.iter().find(is_child).expect("a replica of the child"));
    let (outcome, events) = group.finish();
    let what = format!("{} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
    assert_eq!(outcome.out(), "ready\n", "{what}");
}

/// One leaves its loop and waits at a call, before it or past some; the other computes for ever. It
/// takes more phases than between calls, but not as many as there are at most.
#[test]
fn who_never_comes_to_the_call_at_which_the_other_waits_is_noticed() {
    const MOST: u64 = 14;
    let victim = Victim::of("ends", include_str!("ticks/ends.c"));
    for (hit, arguments) in [(1, &[][..]), (0, &["calls"])] {
        let group = victim.start(&["-n", "2", "--tick", "300ms", "--stats"], arguments);
        // The one that waits is as patient as it has computed before.
        until("some ticks are over", || {
            let computed = |pid: &u32| proc::find(*pid).is_some_and(|it| it.ticks >= 100);
            group.replicas.iter().all(computed).then_some(())
        });
        victim.corrupt(group.replicas[hit]);
        let (outcome, events) = group.finish();
        let what = format!("{hit}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
        assert_eq!(outcome.out(), "ready\n", "{what}");
        let most = row(&outcome.err(), "most phases to a point").max();
        assert!(
            most.is_some_and(|most| (1..=MOST).contains(&most)),
            "{what}"
        );
    }
}

/// This row of `--stats`.
fn row(told: &str, name: &str) -> impl Iterator<Item = u64> {
    let row = told.lines().find_map(|row| row.strip_prefix(name));
    let row = row.unwrap_or_else(|| panic!("no {name}: {told}"));
    row.split_whitespace().map(|it| it.parse().unwrap())
}

fn sum(told: &str, name: &str) -> u64 {
    row(told, name).sum()
}

/// What counts, and the program.
#[derive(Clone, Copy)]
enum Count {
    /// A breakpoint, as a processor's counter of branches would.
    Visits,
    /// A jump at the place of the last point.
    Milestones,
}

impl Count {
    fn victim(self) -> Victim {
        match self {
            Self::Visits => Victim::of("counted", include_str!("ticks/counted.c")),
            Self::Milestones => Victim::of("rounds", include_str!("ticks/rounds.c")),
        }
    }

    /// The option, of which the default is left out.
    fn places(self, victim: &Victim) -> Option<String> {
        match self {
            Self::Visits => {
                let visit = memory::symbol(&victim.program, "visit");
                Some(format!("--places=visits:{visit:#x}"))
            }
            Self::Milestones => None,
        }
    }
}

/// Replicas of a program of which something is counted, after some points.
fn start_counted(count: Count, replicas: &str, victim: &Victim) -> Group {
    let places = count.places(victim);
    let options = ["-n", replicas, "--tick", "50ms", "--stats"].into_iter();
    let options: Vec<&str> = options.chain(places.as_deref()).collect();
    let group = victim.start(&options, &[]);
    until("some ticks are over", || {
        assert!(!group.running.has_ended(), "a program that is well");
        let computed = |pid: &u32| proc::find(*pid).is_some_and(|it| it.ticks >= 40);
        group.replicas.iter().all(computed).then_some(())
    });
    group
}

/// Corrupts one replica of two, which has to end in a verdict. Did counts show that each has passed
/// the other?
fn is_passed_by_both(count: Count, victim: &Victim, hit: usize) -> bool {
    let group = start_counted(count, "2", victim);
    victim.corrupt(group.replicas[hit]);
    let (outcome, events) = group.finish();
    let what = format!("{hit}: {} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
    assert!(events.iter().any(is_mismatch), "{what}");
    assert!(sum(&outcome.err(), "points counted from") > 0, "{what}");
    sum(&outcome.err(), "targets passed") >= 2
}

/// Which targets are passed while counts are certain is for the host's scheduler to say, so there
/// are some tries.
fn show_passing(count: Count) {
    const TRIES: usize = 8;
    let victim = count.victim();
    for hit in [0, 1] {
        let shown = (0..TRIES).any(|_| is_passed_by_both(count, &victim, hit));
        assert!(shown, "{hit}: in none of {TRIES} tries");
    }
}

#[test]
fn a_counter_shows_that_a_corrupted_loop_has_passed_the_other() {
    show_passing(Count::Visits);
}

#[test]
fn milestones_show_that_a_corrupted_loop_has_passed_the_other() {
    show_passing(Count::Milestones);
}

#[test]
fn counts_change_nothing_for_a_loop_that_is_well() {
    for (count, replicas) in [
        (Count::Visits, "2"),
        (Count::Milestones, "2"),
        (Count::Milestones, "3"),
    ] {
        leave_well(count, replicas);
    }
}

fn leave_well(count: Count, replicas: &str) {
    let victim = count.victim();
    let group = start_counted(count, replicas, &victim);
    signal(group.running.pid(), Signal::USR1).unwrap();
    let (outcome, events) = group.finish();
    let what = format!("{} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
    assert_eq!(outcome.out(), "ready\n7\n", "{what}");
    assert!(sum(&outcome.err(), "points counted from") > 0, "{what}");
    assert_eq!(sum(&outcome.err(), "targets passed"), 0, "{what}");
    assert_eq!(sum(&outcome.err(), "points not agreed on"), 0, "{what}");
}

#[test]
fn programs_that_compute_end_as_without_ticks() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::new();
    let source = include_str!("points/recursion.c");
    let program = scene.compile("recursion", source, &["-O1", "-pthread"]);
    for replicas in ["2", "3"] {
        let options = ["run", "-n", replicas, "--tick", "10ms", "--stats"];
        let outcome = scene.rcoe(&[&options[..], &["--", &program]].concat());
        let told = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(0), "{told}");
        assert_eq!(outcome.out(), "10 signals, 0 wrong\n", "{told}");
        let row = told.lines().find(|row| row.starts_with("points between"));
        let agreed = row.and_then(|row| row.split_whitespace().last());
        assert_ne!(agreed, Some("0"), "{told}");
    }
}

/// Slices are short: a jump that stays would cost more there than counts tell.
#[test]
fn nothing_is_counted_without_ticks_or_if_states_alone_are_to_tell() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::new();
    let source = include_str!("points/recursion.c");
    let program = scene.compile("recursion", source, &["-O1", "-pthread"]);
    for options in [
        &["--slice", "10ms"][..],
        &["--tick", "10ms", "--places", "states"],
    ] {
        let arguments = [&["run", "-n", "2", "--stats"], options, &["--", &program]].concat();
        let outcome = scene.rcoe(&arguments);
        let told = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(0), "{told}");
        assert!(sum(&told, "points between calls") > 0, "{told}");
        assert_eq!(sum(&told, "points counted from"), 0, "{told}");
    }
}

#[test]
fn ticks_that_make_no_sense_are_refused() {
    let scene = Scene::new();
    for (options, cure) in [
        (&["-n", "1", "--tick", "1s"][..], "use -n 2"),
        (&["-n", "2", "--tick", "9ms"], "from 10ms to 1h, or off"),
        (
            &["--sphere", "system", "--tick", "2s"],
            "from 100us to 1s with --sphere system",
        ),
        (&["-n", "2", "--places", "visits:0x1000"], "add --tick"),
        (&["-n", "2", "--places", "milestones"], "add --tick"),
        (&["-n", "2", "--places", "somewhere"], "states, counter, or"),
    ] {
        let arguments = [&["run"], options, &["--", "true"]].concat();
        let outcome = scene.rcoe(&arguments);
        assert_eq!(outcome.ended, Ended::Exit(125), "{options:?}");
        assert!(outcome.err().contains(cure), "{}", outcome.err());
    }
}

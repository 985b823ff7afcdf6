//! Programs with threads: equal to a plain run whenever that is determined, and alike in all
//! replicas when it is not.

use std::collections::BTreeSet;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rustix::process::Signal;

/// Compiles a program of `threads/` and demands that replicas do what a plain run does.
#[track_caller]
fn like_native(name: &str, source: &str) {
    Scene::new().program_like_native(name, source, &["-pthread"]);
}

#[test]
fn threads_take_turns_and_are_joined() {
    like_native("turns", include_str!("threads/turns.c"));
}

#[test]
fn waits_end_by_their_timeouts() {
    like_native("waits", include_str!("threads/waits.c"));
}

#[test]
fn a_blocking_call_holds_up_one_thread_only() {
    like_native("streams", include_str!("threads/streams.c"));
}

#[test]
fn a_terminal_that_another_thread_reads_is_written_to() {
    like_native("terminals", include_str!("threads/terminals.c"));
}

#[test]
fn calls_that_may_wait_leave_behind_what_they_do_without_threads() {
    like_native("left", include_str!("threads/left.c"));
}

#[test]
fn a_wait_finds_the_child_that_a_signal_tells_of() {
    like_native("reaping", include_str!("threads/reaping.c"));
}

#[test]
fn signals_find_their_thread() {
    like_native("signals", include_str!("threads/signals.c"));
}

#[test]
fn a_call_that_a_signal_keeps_from_being_begun_is_made_again() {
    like_native("restart", include_str!("threads/restart.c"));
}

#[test]
fn locks_of_all_kinds_exclude() {
    like_native("locks", include_str!("threads/locks.c"));
}

#[test]
fn each_thread_has_its_own_state() {
    like_native("state", include_str!("threads/state.c"));
}

#[test]
fn every_way_of_comparing_agrees() {
    let scene = Scene::new();
    let program = scene.compile("turns", include_str!("threads/turns.c"), &["-pthread"]);
    let native = scene.run(&[&program]);
    for compare in ["io", "args", "every"] {
        let outcome = scene.rcoe(&["run", "-n", "2", "--compare", compare, "--", &program]);
        assert_eq!(outcome.out(), native.out(), "{compare}: {}", outcome.err());
        assert_eq!(outcome.err(), "", "{compare}");
    }
}

#[test]
fn a_file_is_read_whole_although_its_beginning_is_there_at_once() {
    like_native("cold", include_str!("threads/cold.c"));
}

#[test]
fn a_race_comes_out_in_different_ways_but_alike_in_all_replicas() {
    let scene = Scene::new();
    let program = scene.compile("race", include_str!("threads/race.c"), &["-pthread"]);
    let mut values = BTreeSet::new();
    for replicas in ["1", "2", "3"] {
        for _ in 0..10 {
            let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
            assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
            assert_eq!(outcome.err(), "");
            values.insert(outcome.out());
        }
    }
    assert!(values.len() > 5, "the race does not vary: {values:?}");
}

#[test]
fn a_seed_repeats_a_race() {
    let scene = Scene::new();
    let program = scene.compile("race", include_str!("threads/race.c"), &["-pthread"]);
    let value = |seed: u32, replicas: &str| {
        let script = format!("RCOE_THREAD_SEED={seed} exec \"$@\"");
        let outcome = scene.rcoe_by(&script, &["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        outcome.out()
    };
    for seed in [1, 2, 3] {
        let once = value(seed, "2");
        assert_eq!(once, value(seed, "2"), "seed {seed}");
        assert_eq!(once, value(seed, "1"), "seed {seed}");
    }
}

#[test]
fn a_seed_must_be_a_number() {
    let scene = Scene::new();
    let script = "RCOE_THREAD_SEED=often exec \"$@\"";
    let outcome = scene.rcoe_by(script, &["run", "-n", "1", "--", "true"]);
    assert!(matches!(outcome.ended, Ended::Exit(status) if status != 0));
    assert!(outcome.err().contains("RCOE_THREAD_SEED"));
}

#[test]
fn a_thread_that_keeps_the_others_waiting_is_told_of() {
    let scene = Scene::new();
    let program = scene.compile("spin", include_str!("threads/spin.c"), &["-pthread"]);
    let running = scene.start(&["run", "-n", "2", "--slice", "off", "--", &program]);
    until("the warning", || {
        let errors = running.stderr_so_far().ok()?;
        errors.contains("without a system call").then_some(())
    });
    signal(running.pid(), Signal::TERM).expect("rcoe runs");
    let outcome = running.finish(LIMIT).expect("an end");
    assert_eq!(outcome.err().lines().count(), 1, "{}", outcome.err());
}

#[test]
fn threads_survive_the_loss_of_a_replica_while_all_wait() {
    let source = "#include <fcntl.h>\n#include <pthread.h>\n#include <unistd.h>\n
static int fifo;
static void *echo(void *unused) {
  char c;
  for (int i = 0; i < 4 && read(fifo, &c, 1) == 1; i++) { c += 1; write(1, &c, 1); }
  return unused;
}
int main(void) {
  pthread_t thread;
  fifo = open(\"fifo\", O_RDWR);
  pthread_create(&thread, 0, echo, 0);
  write(1, \"ready\\n\", 6);
  pthread_join(thread, 0);
  return 7;
}";
    for victim in [0, 2] {
        let scene = Scene::new();
        let program = scene.compile("echo", source, &["-pthread"]);
        let fifo = scene.make_pipe("fifo");
        let group = scene.start_group(&["-n", "3"], &[&program]);
        until("the first line", || {
            let so_far = group.running.stdout_so_far().ok()?;
            (so_far == "ready\n").then_some(())
        });
        signal(group.replicas[victim], Signal::KILL).expect("a replica");
        until("the downgrade", || {
            events_of(&group.events)
                .into_iter()
                .find(|event| event["type"] == "downgrade")
        });
        std::fs::write(&fifo, "abcd").expect("a reader");
        let (outcome, _) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(7), "{}", outcome.err());
        assert_eq!(outcome.out(), "ready\nbcde", "{}", outcome.err());
    }
}

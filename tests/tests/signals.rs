//! Signals, timers and job control: as without rcoe.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rustix::process::Signal;

/// Compiles a program of `signals/` and demands that replicas do what a plain run does.
#[track_caller]
fn like_native(name: &str, source: &str) {
    Scene::new().program_like_native(name, source, &["-pthread"]);
}

#[test]
fn a_handler_without_room_is_a_fault() {
    like_native("noframe", include_str!("signals/noframe.c"));
}

#[test]
fn timers_of_all_kinds_signal() {
    like_native("timers", include_str!("signals/timers.c"));
}

#[test]
fn a_signal_that_comes_while_computing_ends_the_wait_after_it() {
    like_native("before", include_str!("signals/before.c"));
}

#[test]
fn a_handler_that_is_nowhere_is_a_fault() {
    like_native("astray", include_str!("signals/astray.c"));
}

#[test]
fn the_flag_nt_does_no_harm() {
    like_native("nested", include_str!("signals/nested.c"));
}

#[test]
fn a_signal_does_not_interrupt_what_does_not_wait() {
    like_native("busy", include_str!("signals/busy.c"));
}

#[test]
fn a_poll_ends_by_a_signal_after_which_reading_goes_on() {
    like_native("restart", include_str!("signals/restart.c"));
}

#[test]
fn a_signal_reaches_calls_that_need_nothing_from_outside() {
    like_native("quiet", include_str!("signals/quiet.c"));
}

#[test]
fn handlers_nest_jump_and_repair() {
    like_native("handlers", include_str!("signals/handlers.c"));
}

#[test]
fn signals_are_read_with_all_that_comes_with_them() {
    like_native("read", include_str!("signals/read.c"));
}

#[test]
fn values_reach_other_processes_than_the_first() {
    like_native("queued", include_str!("signals/queued.c"));
}

#[test]
fn a_time_limit_is_kept_and_not_kept() {
    let scene = Scene::new();
    let native = scene.like_native("exec \"$@\"", &["timeout", "0.2", "sleep", "100"]);
    assert_eq!(native.ended, Ended::Exit(124));
    let native = scene.like_native("exec \"$@\"", &["timeout", "100", "echo", "soon"]);
    assert_eq!(native.out(), "soon\n");
    // Time enough for the shell to speak first.
    let text = "exec 2>/dev/null; timeout -s KILL 2 sh -c 'echo a; sleep 100'; echo $?; \
                timeout 100 false; echo $?";
    scene.like_native("exec \"$@\"", &["bash", "-c", text]);
}

#[test]
fn a_lost_primary_loses_no_timer() {
    let source = "#include <signal.h>\n#include <stdio.h>\n#include <sys/time.h>\n\
#include <unistd.h>\n
static volatile sig_atomic_t count;
static void on(int number) { (void)number; count++; }
int main(void) {
  signal(SIGALRM, on);
  setitimer(ITIMER_REAL, &(struct itimerval){ {0, 200000}, {0, 200000} }, 0);
  printf(\"armed\\n\");
  fflush(stdout);
  for (int last = 0; last < 1000; last++) {
    pause();
    if (!access(\"go\", F_OK)) break;
  }
  int before = count;
  while (count < before + 3) pause();
  printf(\"%d\\n\", before > 0);
}";
    let scene = Scene::new();
    let program = scene.compile("ticks", source, &[]);
    let group = scene.start_group(&["-n", "3"], &[&program]);
    until("the timer", || {
        let text = group.running.stdout_so_far().expect("readable output");
        text.contains("armed").then_some(())
    });
    signal(group.replicas[0], Signal::KILL).expect("a living primary");
    until("the downgrade", || {
        let events = events_of(&group.events);
        events
            .iter()
            .any(|event| event["type"] == "downgrade")
            .then_some(())
    });
    scene.write("go", "");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), "armed\n1\n");
}

//! Exit status: the program's own, whatever it is, and nothing else.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Scene, until};
use rustix::process::Signal;

/// Waits for ever, having said so.
const WAITER: &str = "#include <unistd.h>
int main(void) { write(1, \"ready\\n\", 6); for (;;) pause(); }";

#[test]
fn the_exit_status_is_the_programs() {
    let scene = Scene::new();
    for status in ["0", "3", "86", "125", "255"] {
        let native = scene.like_native("exec \"$@\"", &["dash", "-c", &format!("exit {status}")]);
        assert_eq!(native.ended, Ended::Exit(status.parse().unwrap()));
    }
}

#[test]
fn death_by_a_fault_is_passed_on() {
    let scene = Scene::new();
    let cases = [
        ("segv", "*(volatile int *)8 = 1;", 11),
        ("fpe", "volatile int z = 0; return 7 / z;", 8),
        ("ill", "__builtin_trap();", 4),
        ("abort", "abort();", 6),
        ("term", "raise(SIGTERM); return 1;", 15),
    ];
    for (name, body, number) in cases {
        let headers = "#include <stdlib.h>\n#include <signal.h>\n";
        let program = scene.compile(name, &format!("{headers}int main(void) {{ {body} }}"), &[]);
        let native = scene.like_native("ulimit -c 0; exec \"$@\"", &[&program]);
        assert_eq!(native.ended, Ended::Signal(number), "{name}");
    }
}

#[test]
fn a_terminating_signal_to_rcoe_ends_the_program() {
    for replicas in ["1", "2", "3"] {
        for (sent, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
            let scene = Scene::new();
            let program = scene.compile("waiter", WAITER, &[]);
            let group = scene.start_group(&["-n", replicas], &[&program]);
            signal(group.running.pid(), sent).unwrap();
            let (outcome, _) = group.finish();
            assert_eq!(outcome.ended, Ended::Signal(number), "{}", outcome.err());
        }
    }
}

#[test]
fn a_handled_signal_reaches_the_handler_once() {
    let source = "#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n
static volatile sig_atomic_t seen;
static void on(int number) { seen += number; }
int main(void) {
  struct sigaction a = { .sa_handler = on };
  sigaction(SIGUSR1, &a, 0);
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, &old);
  write(1, \"ready\\n\", 6);
  sigsuspend(&old);
  printf(\"%d\\n\", seen);
  return 0;
}";
    for replicas in ["1", "2", "3"] {
        let scene = Scene::new();
        let program = scene.compile("handler", source, &[]);
        let group = scene.start_group(&["-n", replicas], &[&program]);
        until("the program's word", || {
            group
                .running
                .stdout_so_far()
                .unwrap()
                .contains("ready")
                .then_some(())
        });
        signal(group.running.pid(), Signal::USR1).unwrap();
        let (outcome, _) = group.finish();
        assert_eq!(
            outcome.out(),
            "ready\n10\n",
            "-n {replicas}: {}",
            outcome.err()
        );
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    }
}

#[test]
fn killing_rcoe_leaves_nothing_behind() {
    let scene = Scene::new();
    let program = scene.compile("waiter", WAITER, &[]);
    let group = scene.start_group(&["-n", "3"], &[&program]);
    signal(group.running.pid(), Signal::KILL).unwrap();
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Signal(9));
}

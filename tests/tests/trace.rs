//! `rcoe_add_trace`: data that is voted although it never leaves the program.

use std::os::unix::fs::FileExt as _;
use std::process::Command;

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, until};

/// Adds a word to the trace once it is told to go on; what it prints does not depend on the word.
const SOURCE: &str = "#include <errno.h>\n#include <stdio.h>\n#include \"rcoe.h\"\n
volatile unsigned long go, wrong;
int main(int argc, char **argv) {
  write(1, \"ready\\n\", 6);
  while (argc > 1 && !go) {}
  unsigned long x = wrong;
  int voted = rcoe_add_trace(&x, sizeof x) == 0;
  if (!voted && errno != ENOSYS) return 1;
  if (voted && (rcoe_add_trace((void *)8, 8) != -1 || errno != EFAULT)) return 2;
  write(1, \"done\\n\", 5);
  return voted ? 7 : 8;
}";

fn compile(scene: &Scene) -> String {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../include");
    scene.compile("tracer", SOURCE, &["-static", "-no-pie", include])
}

/// Sets a word of one replica to one.
fn set(program: &str, pid: u32, word: &str) {
    let output = Command::new("nm").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let ending = format!(" {word}");
    let line = text.lines().find(|line| line.ends_with(&ending)).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let path = format!("/proc/{pid}/mem");
    let memory = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    memory.write_all_at(&1_u64.to_le_bytes(), address).unwrap();
}

#[test]
fn it_is_harmless_without_rcoe_and_silent_with_it() {
    let scene = Scene::new();
    let program = compile(&scene);
    assert_eq!(scene.run(&[&program]).ended, Ended::Exit(8));
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--strict", "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(7), "{}", outcome.err());
        assert_eq!(outcome.out(), "ready\ndone\n");
        assert_eq!(outcome.err(), "");
    }
}

#[test]
fn wrong_data_is_noticed_before_the_next_output() {
    let scene = Scene::new();
    let program = compile(&scene);
    let options = ["-n", "2", "--compare", "io", "--timeout", "30s"];
    let group = scene.start_group(&options, &[&program, "wait"]);
    until("the first line", || {
        let out = group.running.stdout_so_far().unwrap();
        out.starts_with("ready\n").then_some(())
    });
    set(&program, group.replicas[1], "wrong");
    for &pid in &group.replicas {
        set(&program, pid, "go");
    }
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    assert_eq!(outcome.out(), "ready\n");
    assert!(
        outcome.err().contains("rcoe_add_trace"),
        "{}",
        outcome.err()
    );
}

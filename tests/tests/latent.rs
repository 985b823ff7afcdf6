//! A flip that lies unused in one replica's memory when the program forks: each replica of the
//! child has the memory of its own replica of the parent, so it is noticed as soon as the child
//! uses it, and can be outvoted.
//!
//! The victim loops until it is released; meanwhile the test changes a word of one replica through
//! the proc file system. The parent never looks at that word, only its child does.

use std::os::unix::fs::FileExt as _;
use std::process::Command;

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, until};

const VICTIM: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
#include <sys/wait.h>\n#include <unistd.h>\n
enum { WORDS = 1 << 20 };
volatile unsigned long go;
unsigned long word = 7;
unsigned long large[WORDS];
unsigned long deep[WORDS];
static void tell(unsigned long value) {
  char line[32];
  write(1, line, snprintf(line, sizeof line, \"%lu\\n\", value));
}
int main(int argc, char **argv) {
  const char *how = argv[1];
  int status;
  for (unsigned long i = 0; i < WORDS; i += 512) large[i] = deep[i] = i + 1;
  write(1, \"ready\\n\", 6);
  while (!go) {}
  pid_t child = strcmp(how, \"vfork\") ? fork() : vfork();
  if (!child) {
    char text[32];
    if (!strcmp(how, \"large\")) tell(large[WORDS / 2]);
    if (!strcmp(how, \"small\")) tell(word);
    if (!strcmp(how, \"exit\")) _exit((int)word);
    if (!strcmp(how, \"grand\")) {
      if (!fork()) { tell(deep[WORDS / 2]); _exit(0); }
      wait(&status);
    }
    if (!strcmp(how, \"exec\") || !strcmp(how, \"vfork\")) {
      snprintf(text, sizeof text, \"%lu\", word);
      execl(\"/bin/echo\", \"echo\", text, (char *)0);
    }
    _exit(0);
  }
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}";

struct Victim {
    scene: Scene,
    program: String,
}

impl Victim {
    fn new() -> Self {
        let scene = Scene::new();
        let program = scene.compile("victim", VICTIM, &["-static", "-no-pie"]);
        Self { scene, program }
    }

    fn address(&self, word: &str) -> u64 {
        let output = Command::new("nm").arg(&self.program).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let ending = format!(" {word}");
        let line = text.lines().find(|line| line.ends_with(&ending)).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    }

    /// Changes what the child will use, in replica `id` of the parent only, and tells what came of
    /// it.
    fn harm(&self, replicas: &str, id: usize, how: &str) -> Outcome {
        let arguments = ["-n", replicas, "--timeout", "30s"];
        let group = self.scene.start_group(&arguments, &[&self.program, how]);
        until("the first line", || {
            let so_far = group.running.stdout_so_far().unwrap();
            so_far.starts_with("ready\n").then_some(())
        });
        let set = |pid: u32, address: u64, value: u64| {
            let memory = std::fs::OpenOptions::new()
                .write(true)
                .open(format!("/proc/{pid}/mem"))
                .unwrap();
            memory.write_all_at(&value.to_le_bytes(), address).unwrap();
        };
        const MIDDLE: u64 = 8 << 19;
        let place = match how {
            "large" | "grand" => {
                let array = if how == "large" { "large" } else { "deep" };
                self.address(array) + MIDDLE
            }
            _ => self.address("word"),
        };
        set(group.replicas[id], place, 99);
        for &pid in &group.replicas {
            set(pid, self.address("go"), 1);
        }
        group.finish().0
    }
}

/// What the child does, and what comes out of that.
const WAYS: [(&str, &str, i32); 6] = [
    ("small", "ready\n7\n", 0),
    ("large", "ready\n524289\n", 0),
    ("grand", "ready\n524289\n", 0),
    ("exec", "ready\n7\n", 0),
    ("vfork", "ready\n7\n", 0),
    ("exit", "ready\n", 7),
];

#[test]
fn two_stop_before_the_child_lets_it_out() {
    let victim = Victim::new();
    for (how, ..) in WAYS {
        for id in [0, 1] {
            let outcome = victim.harm("2", id, how);
            let what = format!("{how}, replica {id}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
            assert_eq!(outcome.out(), "ready\n", "{what}");
        }
    }
}

#[test]
fn three_outvote_it_in_the_child() {
    let victim = Victim::new();
    for (how, right, status) in WAYS {
        for id in if how == "small" { vec![0, 2] } else { vec![0] } {
            let outcome = victim.harm("3", id, how);
            let what = format!("{how}, replica {id}: {}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(status), "{what}");
            assert_eq!(outcome.out(), right, "{what}");
            assert!(outcome.err().contains("going on with 2"), "{what}");
        }
    }
}

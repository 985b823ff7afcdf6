//! A program that can be harmed while it computes.
//!
//! It looks at words of its own memory at every turn of a loop that it leaves when it is told to; a
//! test writes them, in one replica only, through the proc file system. So each kind of fault
//! happens to a running program at a place where all replicas can be compared, however slow the
//! machine is.

use crate::launch::Ended;
use crate::memory::{poke, symbol};
use crate::rcoe::{Group, Scene, until};

const VICTIM: &str = "#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n
volatile unsigned long go, spin, wrong, crash, extra;
int main(int argc, char **argv) {
  write(1, \"ready\\n\", 6);
  unsigned long x = 88172645463325252UL;
  unsigned long released;
  do {
    released = go;
    while (spin) {}
    if (wrong) x = 1;
    if (crash) *(volatile int *)8 = 1;
    if (extra) { extra = 0; syscall(SYS_getuid); }
  } while (argc > 1 && !released);
  for (unsigned long i = 0; i < 1000000UL; i++) {
    x ^= x << 13; x ^= x >> 7; x ^= x << 17;
  }
  char line[32];
  write(1, line, snprintf(line, sizeof line, \"%016lx\\n\", x));
  return 5;
}";

/// The compiled program, and what it prints when nobody harms it.
#[derive(Debug)]
pub struct Victim {
    /// Where it runs.
    pub scene: Scene,
    /// Its path.
    pub program: String,
    /// What it prints to the end.
    pub expected: String,
}

impl Default for Victim {
    fn default() -> Self {
        Self::new()
    }
}

impl Victim {
    /// Compiles it and runs it once plainly.
    ///
    /// # Panics
    /// If it does not compile or run.
    #[must_use]
    pub fn new() -> Self {
        let scene = Scene::new();
        let program = scene.compile("victim", VICTIM, &["-static", "-no-pie"]);
        let native = scene.run(&[&program]);
        assert_eq!(native.ended, Ended::Exit(5));
        Self {
            scene,
            program,
            expected: native.out(),
        }
    }

    /// Starts a group whose replicas loop until they are released.
    ///
    /// # Panics
    /// If it does not come so far.
    #[must_use]
    pub fn start(&self, options: &[&str]) -> Group {
        // What is changed in a replica is to be found by what it does.
        let options = [options, &["--scrub", "off"]].concat();
        let command = [self.program.as_str(), "wait"];
        let group = self.scene.start_group(&options, &command);
        until("the first line", || {
            group
                .running
                .stdout_so_far()
                .unwrap()
                .starts_with("ready\n")
                .then_some(())
        });
        group
    }

    /// Sets a word of one replica to one.
    ///
    /// # Errors
    /// If the replica is gone.
    pub fn set(&self, pid: u32, word: &str) -> std::io::Result<()> {
        let address = symbol(&self.program, word);
        poke(pid, address, &1_u64.to_le_bytes())
    }

    /// Lets all replicas that are still there leave their loop.
    pub fn release(&self, group: &Group) {
        for &pid in &group.replicas {
            // Whoever is gone need not be told.
            let _ = self.set(pid, "go");
        }
    }
}

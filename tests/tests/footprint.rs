//! How much of its own memory the agent writes in each replica: that is memory which siblings do
//! not share, a page fault for each page, and more to copy and to compare at each birth.

use std::fs;

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, until};

/// Waits until there is a file `stop`.
const WAITS: &str = "#include <stdio.h>\n#include <unistd.h>\n
int main(void) {
  puts(\"ready\");
  fflush(stdout);
  while (access(\"stop\", F_OK) != 0) usleep(1000);
  return 3;
}";

/// The agent's image: code, constants and state.
const IMAGE: std::ops::Range<u64> = 0x6f00_0000_0000..0x6f10_0000_0000;

/// KiB of anonymous memory there: what was written.
fn written_kib(pid: u32) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its mappings");
    let (mut within, mut sum) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if first == "Anonymous:" && within {
            sum += second.parse::<u64>().expect("a number");
        } else if let Some((start, _)) = first.split_once('-') {
            within = u64::from_str_radix(start, 16).is_ok_and(|start| IMAGE.contains(&start));
        }
    }
    sum
}

/// A fifth above what it takes, which differs by a few pages from machine to machine.
#[test]
fn a_replica_of_a_small_program_writes_few_pages_of_the_agent() {
    const MOST_KIB: u64 = 156;
    let scene = Scene::new();
    let program = scene.compile("waits", WAITS, &["-static"]);
    let group = scene.start_group(&["-n", "2"], &[&program]);
    until("output", || {
        let out = group.running.stdout_so_far().unwrap();
        (!out.is_empty()).then_some(())
    });
    let written: Vec<_> = group.replicas.iter().map(|pid| written_kib(*pid)).collect();
    assert!(written.iter().all(|kib| *kib > 0), "{written:?} KiB");
    assert!(
        written.iter().all(|kib| *kib <= MOST_KIB),
        "{written:?} KiB"
    );
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
}

//! How much memory the agent has in each replica. What it writes siblings do not share: it is a
//! page fault for each page, and more to copy and to compare at each birth. What it does not write
//! all replicas of all runs share, if it is of one file.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Group, Scene, binary, until};

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

/// The sum of what `smaps` tells of this kind about areas of the image that may be used so, in KiB.
fn kib(pid: u32, kind: &str, may: &str) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its mappings");
    let (mut within, mut sum) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if first == kind && within {
            sum += second.parse::<u64>().expect("a number");
        } else if let Some((start, _)) = first.split_once('-') {
            let image = u64::from_str_radix(start, 16).is_ok_and(|start| IMAGE.contains(&start));
            within = image && second.starts_with(may);
        }
    }
    sum
}

/// Starts two replicas of the program; they wait when this returns.
fn start(scene: &Scene) -> Group {
    let program = scene.compile("waits", WAITS, &["-static"]);
    let group = scene.start_group(&["-n", "2"], &[&program]);
    until("output", || {
        let out = group.running.stdout_so_far().unwrap();
        (!out.is_empty()).then_some(())
    });
    group
}

/// Has the program end.
#[track_caller]
fn finish(group: Group, scene: &Scene) {
    scene.write("stop", "");
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(3), "{events:?}");
}

/// A fifth above what it takes, which differs by a few pages from machine to machine.
#[test]
fn a_replica_of_a_small_program_writes_few_pages_of_the_agent() {
    const MOST_KIB: u64 = 156;
    let scene = Scene::new();
    let group = start(&scene);
    let replicas = group.replicas.iter();
    let written: Vec<_> = replicas.map(|&pid| kib(pid, "Anonymous:", "")).collect();
    assert!(written.iter().all(|kib| *kib > 0), "{written:?} KiB");
    assert!(
        written.iter().all(|kib| *kib <= MOST_KIB),
        "{written:?} KiB"
    );
    finish(group, &scene);
}

/// Eleven times sixteen pages: ten that hold what the program uses, and one more. The least of some
/// replicas, since the host brings in more while it has not read the file.
#[test]
fn a_small_program_has_the_code_in_memory_that_it_uses() {
    const MOST_KIB: u64 = 704;
    let mut code = Vec::new();
    for _ in 0..3 {
        let scene = Scene::new();
        let group = start(&scene);
        code.extend(group.replicas.iter().map(|&pid| kib(pid, "Rss:", "r-x")));
        finish(group, &scene);
    }
    let least = code.iter().min().expect("replicas");
    assert!((1..=MOST_KIB).contains(least), "{code:?} KiB");
}

#[test]
fn no_run_has_a_copy_of_the_agent() {
    let scene = Scene::new();
    let group = start(&scene);
    let own = fs::metadata(binary().expect("what is tested"));
    let own = own.expect("a file").ino();
    for pid in &group.replicas {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
        let mut parts = 0;
        for line in maps.lines() {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            let (start, _) = words[0].split_once('-').expect("a range");
            let start = u64::from_str_radix(start, 16).expect("an address");
            // What is of no file has number 0.
            let file = words[4].parse::<u64>().expect("a number");
            if IMAGE.contains(&start) && file != 0 {
                assert_eq!(file, own, "{line}");
                parts += 1;
            }
        }
        assert!(parts >= 3, "constants, code and tables: {maps}");
    }
    finish(group, &scene);
}

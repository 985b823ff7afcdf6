//! A primary that is killed in the middle of reading and writing files: its successor finishes the
//! call exactly once.
//!
//! The program appends a file to its copy by small reads and writes, so that nearly always one of
//! the two is going on, and again until it is told to stop. The primary is killed whenever the copy
//! has grown to the next mark.

use rcoe_tests::data::generate;
use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rustix::process::Signal;

/// Appends `original.bin` to `copy` in chunks of so many bytes, and again, until there is a file
/// `stop` at the end of a round.
const COPIER: &str = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n
int main(int argc, char **argv) {
  int chunk = atoi(argv[1]), from = open(\"original.bin\", O_RDONLY);
  int to = open(\"copy\", O_WRONLY | O_CREAT | O_TRUNC, 0600), got;
  char *bytes = malloc(chunk);
  do {
    lseek(from, 0, SEEK_SET);
    while ((got = read(from, bytes, chunk)) > 0)
      // A write that its writer's death cut short comes back as that.
      for (int done = 0, more; done < got; done += more)
        if ((more = write(to, bytes + done, got - done)) <= 0) return 1;
  } while (!got && access(\"stop\", F_OK));
  return got != 0;
}";

/// Runs, each with its mark.
const RUNS: u64 = 12;

fn copy_with_a_lost_primary(compare: &str, chunk: &str, size: usize) {
    let scene = Scene::new();
    let program = scene.compile("copier", COPIER, &[]);
    let original = generate("original.bin", size).unwrap();
    scene.write("original.bin", &original);
    let copy = scene.path().join("copy");
    for run in 1..=RUNS {
        let _ = std::fs::remove_file(&copy);
        let _ = std::fs::remove_file(scene.path().join("stop"));
        let options = ["-n", "3", "--compare", compare, "--timeout", "30s"];
        let group = scene.start_group(&options, &[&program, chunk]);
        let mark = run * size as u64 / RUNS;
        until("a growing copy", || {
            let len = std::fs::metadata(&copy).map_or(0, |data| data.len());
            (len >= mark).then_some(())
        });
        signal(group.replicas[0], Signal::KILL).unwrap();
        until("the downgrade, or the end", || {
            let lost = |event: &serde_json::Value| event["type"] == "downgrade";
            let told = events_of(&group.events).iter().any(lost);
            (told || group.running.has_ended()).then_some(())
        });
        scene.write("stop", "");
        let (outcome, events) = group.finish();
        let what = format!("run {run}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let copied = std::fs::read(&copy).unwrap();
        assert!(
            !copied.is_empty() && copied.len().is_multiple_of(size),
            "{what}"
        );
        assert!(copied.chunks(size).all(|it| it == original), "{what}");
        assert_eq!(events.last().unwrap()["counts"]["takeovers"], 1, "{what}");
    }
}

#[test]
fn small_reads_and_writes_are_finished_once() {
    copy_with_a_lost_primary("args", "512", 3 << 20);
}

#[test]
fn results_of_several_records_are_finished_once() {
    copy_with_a_lost_primary("io", "98304", 12 << 20);
}

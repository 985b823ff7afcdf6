//! A primary that is killed in the middle of reading and writing files: its successor finishes the
//! call exactly once.
//!
//! The program copies a file by small reads and writes, so that nearly always one of the two is
//! going on. The primary is killed whenever the copy has grown to the next mark.

use rcoe_tests::data::generate;
use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Scene, until};
use rustix::process::Signal;

/// Runs, each with its mark.
const RUNS: u64 = 12;

/// The marks lie in the first half, so that the copy is not done before the signal is sent.
fn copy_with_a_lost_primary(compare: &str, chunk: &str, size: usize) {
    let scene = Scene::new();
    let original = generate("original.bin", size).unwrap();
    scene.write("original.bin", &original);
    let copy = scene.path().join("copy");
    for run in 1..=RUNS {
        let _ = std::fs::remove_file(&copy);
        let command = ["dd", "if=original.bin", "of=copy", "status=none", chunk];
        let options = ["-n", "3", "--compare", compare, "--timeout", "30s"];
        let group = scene.start_group(&options, &command);
        let mark = run * size as u64 / (2 * RUNS);
        until("a growing copy", || {
            let len = std::fs::metadata(&copy).map_or(0, |data| data.len());
            (len >= mark).then_some(())
        });
        signal(group.replicas[0], Signal::KILL).unwrap();
        let (outcome, events) = group.finish();
        let what = format!("run {run}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert!(std::fs::read(&copy).unwrap() == original, "{what}");
        let lost = |event: &serde_json::Value| event["type"] == "downgrade";
        assert!(events.iter().any(lost), "the copy was done before: {what}");
    }
}

#[test]
fn small_reads_and_writes_are_finished_once() {
    copy_with_a_lost_primary("args", "bs=512", 6 << 20);
}

#[test]
fn results_of_several_records_are_finished_once() {
    copy_with_a_lost_primary("io", "bs=96K", 64 << 20);
}

//! The system sphere: programs of several processes, which hand each other capabilities.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};

/// What `pipeline` prints for so many blocks, unreplicated; every block is checked against what was
/// generated, and the digests against an implementation of its own.
fn alone(scene: &Scene, blocks: &str) -> String {
    let outcome = system(scene, &["-n", "1"], &["pipeline", blocks]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let out = outcome.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), blocks.parse::<usize>().unwrap() + 1, "{out}");
    for (number, (line, text)) in lines
        .iter()
        .zip(Texts::default())
        .enumerate()
        .take(lines.len() - 1)
    {
        let right = format!("block {number}: 2048 bytes in ");
        let packed = line
            .strip_prefix(&right)
            .unwrap_or_else(|| panic!("{line}"));
        let (packed, digest) = packed.split_once(", ").unwrap();
        assert!(
            packed.parse::<usize>().unwrap() < 1024,
            "it is packed: {line}"
        );
        assert_eq!(digest, format!("{:016x}", fnv(&text)), "{line}");
    }
    out
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The texts that `generate` makes.
struct Texts(u64);

impl Default for Texts {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Iterator for Texts {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let list = [
            "replica ", "kernel ", "votes ", "on ", "every ", "output ", "and ", "agrees, ",
        ];
        let mut text = Vec::new();
        while text.len() < 2048 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            text.extend(list[usize::try_from(self.0 >> 61).unwrap()].bytes());
        }
        text.truncate(2048);
        Some(text)
    }
}

#[test]
fn a_pipeline_of_programs_prints_the_same_replicated_or_not() {
    let scene = Scene::new();
    let right = alone(&scene, "12");
    for (replicas, mode) in sampled(vec![
        ("2", "args"),
        ("3", "args"),
        ("3", "every"),
        ("2", "io"),
    ]) {
        let options = ["-n", replicas, "--compare", mode];
        let outcome = system(&scene, &options, &["pipeline", "12"]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "{options:?}: {}",
            outcome.err()
        );
        assert_eq!(outcome.out(), right, "{options:?}");
    }
}

#[test]
fn threads_of_one_priority_are_preempted_alike_in_every_mode() {
    let scene = Scene::new();
    let right = alone(&scene, "60");
    // Where cores run at once, they are preempted at different instructions.
    for mode in ["io", "io", "io", "args", "every"] {
        let cores = ["--core-threads", "multi", "--tick", "1ms"];
        let options = [&["-n", "2", "--compare", mode], &cores[..]].concat();
        let outcome = system(&scene, &options, &["pipeline", "60"]);
        let what = format!("{mode}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), right, "{what}");
    }
}

#[test]
fn a_pipeline_outlives_the_loss_of_any_replica() {
    let scene = Scene::new();
    let right = alone(&scene, "100");
    for victim in sampled(vec!["0", "1", "2"]) {
        let words = format!("probe=astray victim={victim}");
        let options = ["-n", "3", "--events", "e"];
        let outcome = system_with(&scene, &words, &options, &["pipeline", "100"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{victim}: {}", outcome.err());
        assert_eq!(outcome.out(), right, "{victim}");
        let events = events_of(&scene.path().join("e"));
        let lost = events.iter().find(|event| event["type"] == "divergence");
        let lost = lost.unwrap_or_else(|| panic!("{victim}: {events:?}"));
        assert_eq!(lost["replica"].to_string(), victim);
    }
}

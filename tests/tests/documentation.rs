//! The commands in the README work as written.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, binary};

/// The lines of all fenced blocks of this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let bodies = page
        .split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split_once("\n```"));
    bodies
        .flat_map(|(body, _)| body.lines().map(str::to_owned))
        .collect()
}

#[test]
fn every_example_of_the_readme_runs() {
    let page = include_str!("../../README.md");
    let folder = binary().unwrap().parent().unwrap().display().to_string();
    let examples = blocks(page, "sh");
    assert!(examples.len() >= 5);
    let scene = Scene::new();
    for example in examples {
        let script = format!("PATH={folder}:$PATH; {example}");
        let outcome = scene.run(&["sh", "-e", "-c", &script]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "{example}: {}",
            outcome.err()
        );
        assert!(!outcome.stdout.is_empty(), "{example} printed nothing");
        let native = example
            .split_once(" -- ")
            .map(|(_, command)| scene.run(&["sh", "-c", command]));
        assert!(
            native.is_none_or(|native| native.stdout == outcome.stdout),
            "{example}"
        );
    }
}

#[test]
fn every_option_is_explained_in_the_help() {
    let scene = Scene::new();
    let help = scene.rcoe(&["run", "--help"]).out();
    for option in [
        "-n",
        "--compare",
        "--on-fault",
        "--cores",
        "--timeout",
        "--events",
        "--stats",
        "--strict",
        "--suspect-after",
        "--no-ledger",
        "--metrics",
        "--no-status",
        "--notify",
    ] {
        assert!(help.contains(option), "no {option} in {help}");
    }
}

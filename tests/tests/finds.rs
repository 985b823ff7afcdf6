//! What was found in the code of files is kept for the next run, and is believed no more than what
//! a run finds itself.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;

/// A loader reads the time stamp counter, and asks `cpuid` dozens of times.
const COMMAND: [&str; 3] = ["/bin/sh", "-c", "echo there"];

/// Where they are kept, below a test's home.
fn place(scene: &Scene) -> PathBuf {
    scene.path().join(".cache/rcoe/finds")
}

#[track_caller]
fn run(scene: &Scene, options: &[&str]) {
    let outcome = scene.rcoe(&[&["run"], options, &["--"], &COMMAND].concat());
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!((&*outcome.stdout, &*outcome.err()), (&b"there\n"[..], ""));
}

#[test]
fn a_second_run_finds_nothing_new() {
    let scene = Scene::new();
    run(&scene, &["-n", "2"]);
    let kept = fs::metadata(place(&scene)).expect("something was found");
    assert_eq!(kept.mode() & 0o777, 0o600);
    for options in [&["-n", "2"][..], &["-n", "3", "--scrub", "64"]] {
        run(&scene, options);
        let still = fs::metadata(place(&scene)).expect("it is kept");
        assert_eq!((still.ino(), still.len()), (kept.ino(), kept.len()));
    }
    // What other options look for is kept beside it.
    run(&scene, &["-n", "2", "--clock", "calls"]);
    let both = fs::metadata(place(&scene)).expect("it is kept");
    assert!(both.len() > kept.len());
    for clock in ["calls", "vdso"] {
        run(&scene, &["-n", "2", "--clock", clock]);
        let still = fs::metadata(place(&scene)).expect("it is kept");
        assert_eq!((still.ino(), still.len()), (both.ino(), both.len()));
    }
}

#[test]
fn a_file_that_was_hit_is_made_anew() {
    let scene = Scene::new();
    run(&scene, &["-n", "2"]);
    let whole = fs::read(place(&scene)).expect("something was found");
    for at in [0, 8, 16, whole.len() / 2, whole.len() - 1] {
        let mut hit = whole.clone();
        hit[at] ^= 4;
        fs::write(place(&scene), hit).expect("written");
        run(&scene, &["-n", "2"]);
        assert_eq!(fs::read(place(&scene)).expect("it is kept"), whole);
    }
    fs::remove_file(place(&scene)).expect("it is there");
    fs::create_dir(place(&scene)).expect("made");
    run(&scene, &["-n", "2"]);
}

#[test]
fn nothing_is_kept_of_a_single_replica_or_without_a_ledger() {
    for options in [&["-n", "1"][..], &["-n", "2", "--no-ledger"]] {
        let scene = Scene::new();
        run(&scene, options);
        assert!(!place(&scene).exists(), "{options:?}");
    }
}
